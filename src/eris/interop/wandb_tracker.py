"""Track runs with Weights & Biases: one run for each method, in the run's folder unless WANDB_MODE says otherwise."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from eris.errors import MissingExtra
from eris.interop.trackers import Tracker

__all__ = ["WeightsAndBiases", "wandb"]


class WeightsAndBiases:
    """One run of W&B. Nothing leaves this machine unless WANDB_MODE is `online`; `wandb sync` sends it later."""

    def __init__(self, name: str, folder: Path) -> None:
        try:
            import wandb as library
        except ImportError as error:
            raise MissingExtra("wandb", "wandb", "a tracker") from error
        folder.mkdir(parents=True, exist_ok=True)
        self._run = library.init(
            project=os.environ.get("WANDB_PROJECT", "eris"),
            name=name,
            dir=str(folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            reinit="create_new",
            settings=library.Settings(silent=True, console="off", x_disable_stats=True),
        )

    def settings(self, text: str) -> None:
        """Store the configuration as the run's."""
        self._run.config.update(tomllib.loads(text))

    def figures(self, figures: Mapping[str, float], round: int) -> None:
        """Log the figures of a round as those of that step."""
        self._run.log(dict(figures), step=round)

    def artefact(self, path: Path) -> None:
        """Store a file as an artifact of the run."""
        self._run.log_artifact(str(path), name=path.stem, type="report")

    def close(self) -> None:
        """End the run, and write everything down."""
        self._run.finish()


def wandb(name: str, folder: Path) -> Tracker:
    """Write a W&B run into the run's folder, offline unless WANDB_MODE says otherwise."""
    return WeightsAndBiases(name, folder)
