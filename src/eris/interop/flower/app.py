"""Read a Flower project from its pyproject.toml, and refuse what eris cannot run."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eris.config import Config
from eris.errors import ConfigError, MissingExtra
from eris.registry import imported
from eris.tasks import FLOWER

__all__ = ["FlowerApp", "configured", "parsed_node_config", "require_same_app"]

STATE_BYTES = 64 * 1024  # room for a member's context.state, unless the project asks for more

_ASKED = ("train.default", "evaluate.default")
_REFUSED_MODS = ("LocalDpMod", "fixedclipping_mod", "adaptiveclipping_mod", "secagg_mod", "secaggplus_mod")


@dataclass(frozen=True)
class FlowerApp:
    """A project with `[tool.flwr.app]`, read by Flower's own loader."""

    folder: Path
    name: str
    digest: str  # of the files that Flower would send to its clients
    options: dict[str, Any]  # [tool.flwr.app.config], flat
    state_bytes: int
    client: Any = field(repr=False)
    server: Any = field(repr=False)

    @classmethod
    def load(cls, folder: Path) -> FlowerApp:
        """Read a project and import its two apps; refuse what eris cannot run."""
        _require_flower()
        from flwr.clientapp import ClientApp
        from flwr.common.config import flatten_dict
        from flwr.serverapp import ServerApp

        logging.getLogger("flwr").setLevel(logging.WARNING)
        project = _project(folder)
        table, own = project["tool"]["flwr"]["app"], project["tool"].get("eris", {})
        if (place := str(folder.resolve())) not in sys.path:
            sys.path.insert(0, place)
        apps = {}
        for key, kind in (("clientapp", ClientApp), ("serverapp", ServerApp)):
            path = table["components"][key]
            with contextlib.redirect_stdout(sys.stderr):
                apps[key] = imported(path, f"Flower {kind.__name__}")
            if not isinstance(apps[key], kind):
                raise ConfigError(
                    f"{key} = {path!r} is a {type(apps[key]).__name__}, not a {kind.__name__}",
                    fix=f"name the {kind.__name__} in [tool.flwr.app.components]",
                    folder=folder,
                )
        _check_client(apps["clientapp"], folder)
        return cls(
            folder,
            project["project"]["name"],
            _digest(folder),
            flatten_dict(table.get("config", {})),
            int(own.get("state-bytes", STATE_BYTES)),
            apps["clientapp"],
            apps["serverapp"],
        )

    @property
    def known_as(self) -> str:
        """Name and digest in one, on which all peers of a federation agree."""
        return f"{self.name}@{self.digest[:16]}"

    @property
    def classic(self) -> bool:
        """Whether it is a `Client` or `NumPyClient` behind a `client_fn`, whose messages have different records."""
        return getattr(self.client, "_call", None) is not None

    @property
    def evaluates(self) -> bool:
        """Whether it may be asked to evaluate; a classic client says so itself."""
        return self.classic or "evaluate.default" in self.client._registered_funcs

    def fused(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the app's own settings with changes; refuse a key that it does not have."""
        for key in changes:
            if key not in self.options:
                known = ", ".join(self.options) or "none"
                raise ConfigError(
                    f"the app has no setting {key!r}", fix=f"use one of its own: {known}", key="model.options"
                )
        return {**self.options, **changes}


def configured(app: FlowerApp, config: Config) -> Config:
    """Return a run's settings with the app's name and settings filled in; unchanged if they are already this app's."""
    if config.data.name == FLOWER:
        require_same_app(app, config)
        return config
    data = config.data.model_copy(update={"name": FLOWER})
    model = config.model.model_copy(update={"name": app.known_as, "options": app.fused(config.model.options)})
    return config.model_copy(update={"data": data, "model": model})


def parsed_node_config(text: str) -> dict[str, Any]:
    """Read a node config as Flower writes it: ``partition-id=0 num-partitions=2``."""
    _require_flower()
    from flwr.common.config import parse_config_args

    try:
        return dict(parse_config_args([text]))
    except Exception as error:
        raise ConfigError(
            f"--node-config {text!r} cannot be read", fix="write key=value pairs: 'partition-id=0 num-partitions=2'"
        ) from error


def _require_flower() -> None:
    try:
        import flwr.app  # noqa: F401
    except ImportError as error:
        raise MissingExtra("flwr", "flower", "a Flower app") from error


def _project(folder: Path) -> dict[str, Any]:
    from flwr.common.config import get_project_config

    try:
        found: dict[str, Any] = get_project_config(folder)
    except FileNotFoundError:
        raise ConfigError(
            "there is no Flower app: pyproject.toml is missing", fix="give the folder of the project", folder=folder
        ) from None
    except ValueError as error:
        said = "; ".join(line.strip(" -") for line in str(error).splitlines()[1:]) or str(error)
        raise ConfigError(
            f"this is not a Flower app: {said}", fix="correct its pyproject.toml", folder=folder
        ) from error
    if "clientapp" not in found["tool"]["flwr"]["app"]["components"]:
        raise ConfigError("this app has no ClientApp", fix="name one in [tool.flwr.app.components]", folder=folder)
    return found


def _digest(folder: Path) -> str:
    """Return a digest of the files that Flower itself would bundle, whatever compresses them."""
    from flwr.cli.build import build_fab_from_disk

    try:
        bundle = build_fab_from_disk(folder)
    except Exception as error:
        raise ConfigError(
            f"flwr cannot bundle this app: {error}", fix="make `flwr build` succeed first", folder=folder
        ) from error
    found = hashlib.sha256()
    with zipfile.ZipFile(io.BytesIO(bundle)) as files:
        for name in sorted(files.namelist()):
            found.update(f"{name}\n{hashlib.sha256(files.read(name)).hexdigest()}\n".encode())
    return found.hexdigest()


def require_same_app(app: FlowerApp, config: Config) -> None:
    """Refuse settings that were made for another app, or for this app with different files."""
    if config.data.name != FLOWER or config.model.name != app.known_as:
        agreed = config.model.name if config.data.name == FLOWER else f"{config.model.name} on {config.data.name}"
        raise ConfigError(
            f"the app here is {app.known_as}, but the run is of {agreed}",
            fix="use the same files on all peers; `eris run --flower DIR --show-config` prints an app's settings",
            key="model.name",
        )


def _check_client(client: Any, folder: Path) -> None:
    """Refuse a ClientApp with functions that eris never calls, or with privacy that eris would not account for."""
    registered = getattr(client, "_registered_funcs", {})
    if other := [name for name in registered if name not in _ASKED]:
        raise ConfigError(
            f"the ClientApp has {', '.join(other)}, which eris never calls",
            fix="leave it out: eris calls only train and evaluate",
            folder=folder,
        )
    if getattr(client, "_call", None) is None and "train.default" not in registered:
        raise ConfigError("the ClientApp has no train function", fix="decorate one with @app.train()", folder=folder)
    for mod in _mods_of(client):
        name = getattr(mod, "__name__", type(mod).__name__)
        if name in _REFUSED_MODS:
            raise ConfigError(
                f"the app's mod {name} clips, adds noise or masks, which eris would not account for",
                fix="leave it out and use eris's own settings in [privacy]",
                folder=folder,
            )


def _mods_of(client: Any) -> list[Any]:
    """Return all mods of an app: those for every message, and those around single functions."""
    found = list(getattr(client, "_mods", []))
    for function in (*getattr(client, "_registered_funcs", {}).values(), getattr(client, "_call", None)):
        wrapped = function
        while getattr(wrapped, "__closure__", None):
            names = wrapped.__code__.co_freevars
            cells = dict(zip(names, (cell.cell_contents for cell in wrapped.__closure__), strict=True))
            found += [cells["_mod"]] if "_mod" in cells else []
            wrapped = cells.get("_ffn")
    return found
