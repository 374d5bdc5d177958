"""Transforms by name, as configurations and plug-ins write them.

>>> transform_by_name("shift", compressor={"name": "rand_k", "p": 0.01}, gamma="diana")
shift(rand_k(0.01), gamma=diana)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eris.errors import ConfigError
from eris.privacy import clip_by_norm, gaussian_noise
from eris.registry import Registry, call_with_options, described_options
from eris.transforms import Compress, Compressor, Transform, compressor_by_name, normalise_steps, prune, shift
from eris.transforms.named import not_callable

__all__ = ["TRANSFORMS", "transform_by_name"]


def compress(compressor: Compressor) -> Compress:
    """Compress without a shift."""
    return Compress(compressor)


TRANSFORMS: Registry[Callable[..., Transform]] = Registry(
    "transform",
    "eris.transforms",
    {make.__name__: make for make in (clip_by_norm, compress, gaussian_noise, normalise_steps, prune, shift)},
    refuses=not_callable,
    options=described_options,
)


def transform_by_name(name: str, **parameters: Any) -> Transform:
    """Return the transform of that name; a compressor inside it may be given by name too."""
    if "compressor" in parameters:
        parameters = parameters | {"compressor": _inner(parameters["compressor"])}
    made = call_with_options(name, TRANSFORMS.find(name), parameters)
    if not isinstance(made, Transform):
        raise ConfigError(
            f"transform {name} returned a {type(made).__name__}", fix="return an eris.transforms.Transform"
        )
    return made


def _inner(given: Any) -> Any:
    if isinstance(given, str):
        return compressor_by_name(given)
    if isinstance(given, Mapping):
        parameters = dict(given)
        return compressor_by_name(str(parameters.pop("name", "")), **parameters)
    return given
