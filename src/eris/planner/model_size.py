"""How many values a model has: a number, a model's name, or the spec of a run.

>>> model_size("1.65M").n, model_size("lenet5").n, model_size("resnet18").buffers
(1650000, 61706, 9600)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eris.errors import ConfigError, SpecError
from eris.local.spec import ModelSpec, TensorSpec
from eris.planner.quantity import parse_count

__all__ = ["NAMED_MODELS", "VALUE_BYTES", "ModelSize", "model_size"]

VALUE_BYTES = 4  # float32


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Trainable values, which transforms may shrink, and buffers, which always travel whole."""

    n: int
    buffers: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        if self.n < 1 or self.buffers < 0:
            raise ConfigError(
                f"the model has {self.n} trainable values and {self.buffers} buffers", fix="give at least one value"
            )

    @property
    def values(self) -> int:
        """Length of the flat vector."""
        return self.n + self.buffers

    @property
    def bytes(self) -> int:
        """Size b of the uncompressed vector."""
        return VALUE_BYTES * self.values


NAMED_MODELS: dict[str, ModelSize] = {
    size.name: size
    for size in (
        ModelSize(61_706, name="lenet5"),
        ModelSize(1_652_682, name="resnet9"),
        ModelSize(11_689_512, 9_600, name="resnet18"),
        ModelSize(66_955_010, name="distilbert"),
        ModelSize(124_439_808, name="gpt2"),
        ModelSize(1_315_577_856, name="gpt-neo-1.3b"),  # with the separator token of the paper's runs
    )
}


def model_size(text: str | int) -> ModelSize:
    """Return the size behind a number (`1.65M`), a model's name, a spec in JSON, or the settings of a run in TOML."""
    if isinstance(text, int):
        return ModelSize(text)
    if (named := NAMED_MODELS.get(text.lower())) is not None:
        return named
    if text.lower().endswith(".json"):
        return _from_spec(Path(text))
    if text.lower().endswith(".toml"):
        return _from_settings(Path(text))
    if text[:1].isdigit() or text.startswith("."):
        return ModelSize(parse_count(text))
    return _built(text)


def _built(name: str) -> ModelSize:
    """Count the values of a model that `eris run` trains, built without options."""
    from eris.models.registry import model_by_name, model_names

    if ":" not in name and name not in model_names():
        known = ", ".join(dict.fromkeys([*NAMED_MODELS, *model_names()]))
        raise ConfigError(
            f"no model is named {name!r}",
            fix=f"use a number such as 1.65M, a spec (spec.json), a run's settings (TOML), or one of {known}",
        )
    return _of_module(model_by_name(name), name)


def _from_settings(path: Path) -> ModelSize:
    from eris.config import load_config
    from eris.models.registry import model_by_name
    from eris.tasks import build_task

    config = load_config(path)
    if config.data.name.startswith("synthetic-"):  # has a model of its own
        spec = build_task(config.model_dump(mode="json"), dry=False).spec
        return ModelSize(spec.n_trainable, spec.n_buffer, config.data.name)
    return _of_module(model_by_name(config.model.name, **config.model.options), config.model.name)


def _of_module(module: Any, name: str) -> ModelSize:
    from eris.local.torch_module import spec_of

    spec = spec_of(module)
    return ModelSize(spec.n_trainable, spec.n_buffer, name)


def _from_spec(path: Path) -> ModelSize:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"spec {path} cannot be read: {error}", fix="give a JSON list of tensors") from error
    listing = data.get("tensors") if isinstance(data, dict) else data
    if not isinstance(listing, list):
        raise ConfigError(
            f"spec {path} has no list of tensors",
            fix='write {"tensors": [{"name": …, "shape": […], "dtype": "float32", "role": "trainable"}, …]}',
        )
    spec = ModelSpec(tuple(_tensor(entry, path) for entry in listing))
    return ModelSize(spec.n_trainable, spec.n_buffer, path.stem)


def _tensor(entry: Any, path: Path) -> TensorSpec:
    """Read one tensor, written as an object or as [name, shape, dtype, role] (the form a digest is made of)."""
    if isinstance(entry, list) and len(entry) == 4:
        entry = dict(zip(("name", "shape", "dtype", "role"), entry, strict=True))
    try:
        shape = tuple(int(length) for length in entry["shape"])
        return TensorSpec(str(entry["name"]), shape, entry.get("dtype", "float32"), entry.get("role", "trainable"))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise SpecError(
            f"spec {path} has a tensor that cannot be read: {entry!r}", fix="give it a name and a shape"
        ) from error
