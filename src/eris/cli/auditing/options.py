"""What every audit can be told on the command line: settings, attack, folder, form of the answer."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eris.errors import ConfigError

if TYPE_CHECKING:
    from eris.config import Config

__all__ = [
    "AttackName",
    "Canaries",
    "Changes",
    "Json",
    "Out",
    "Source",
    "Views",
    "attacks",
    "settings",
    "stamped_folder",
]

Source = Annotated[
    Path | None,
    typer.Argument(metavar="[CONFIG or RUN DIR]", help="Settings to train with (default: a small preset)."),
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. data.samples=64.")
]
AttackName = Annotated[
    str,
    typer.Option(
        "--attack",
        help="best (on tuning seeds, of all that are possible), whitened, stacked, lira, rmia, adaptive, or one score: "
        "loss, calibrated, dot, cosine, regression, spv, paper.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON, nothing else.")]
Canaries = Annotated[int, typer.Option(min=4, help="Most canaries per member (at most half of its samples).")]
Views = Annotated[int, typer.Option(min=1, help="Most viewpoints on each member.")]
_FEDERATION = "FEDERATION.toml"
Out = Annotated[Path | None, typer.Option(help="Folder of the results (default: audits/TIME).")]


def settings(source: Path | None, changes: list[str], *, preset: Sequence[str] = ()) -> Config:
    """Return the settings of a file or a finished run, or those of a preset (the membership audit's small one)."""
    from eris.audit.membership_run import SMALL
    from eris.config import load_config

    sys.path.insert(0, str(Path.cwd()))  # so that the user's own modules can be imported
    if source is None:
        return load_config(changes=[*(preset or SMALL), *changes])
    path = _settings_in(source) if source.is_dir() else source
    if path.name == _FEDERATION:
        from eris.peer.federation_file import load_federation

        real = load_federation(path).config.model_dump(mode="json", exclude_none=True)
        return load_config(real, changes=changes)
    return load_config(path, changes=changes)


def _settings_in(folder: Path) -> Path:
    """Return where a finished run, simulated or of real processes, keeps its settings."""
    for name in ("config.toml", _FEDERATION):
        if (folder / name).exists():
            return folder / name
    raise ConfigError(
        "there is no run in this folder",
        fix="give a TOML file, or the folder that eris run or eris up wrote",
        path=folder,
    )


def attacks(name: str) -> tuple[str, ...]:
    """Return the attack asked for, and the paper's for comparison; what `best` is, is decided with the task at hand."""
    from eris.audit.attacks.by_name import BEST, attack_by_name

    return tuple(dict.fromkeys(each if each == BEST else attack_by_name(each).name for each in (name, "paper")))


def stamped_folder() -> Path:
    """Return a folder named after the time."""
    return Path("audits") / time.strftime("%Y%m%d-%H%M%S")
