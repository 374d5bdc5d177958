"""Track runs with MLflow: one MLflow run for each method, in the run's folder or where MLFLOW_TRACKING_URI says."""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eris.errors import MissingExtra
from eris.interop.trackers import Tracker

__all__ = ["Mlflow", "mlflow"]

_EXPERIMENT = "eris"
_LONGEST = 500  # characters of a parameter that every store accepts


class Mlflow:
    """One run of MLflow: settings as parameters, figures as metrics, files as artifacts."""

    def __init__(self, name: str, folder: Path) -> None:
        try:
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise MissingExtra("mlflow", "mlflow", "a tracker") from error
        folder.mkdir(parents=True, exist_ok=True)
        store = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        self._client = MlflowClient(tracking_uri=store)
        self._run = self._client.create_run(self._experiment(folder), run_name=name).info.run_id

    def settings(self, text: str) -> None:
        """Log every setting as a parameter, and the file itself."""
        from mlflow.entities import Param

        flat = {key: str(value)[:_LONGEST] for key, value in _flat(tomllib.loads(text))}
        self._client.log_batch(self._run, params=[Param(key, value) for key, value in flat.items()])
        self._client.log_text(self._run, text, "config.toml")

    def figures(self, figures: Mapping[str, float], round: int) -> None:
        """Log the figures of a round as metrics of that step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, round) for name, value in figures.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def artefact(self, path: Path) -> None:
        """Log a file."""
        self._client.log_artifact(self._run, str(path))

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._run)

    def _experiment(self, folder: Path) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT)
        if (known := self._client.get_experiment_by_name(name)) is not None:
            return str(known.experiment_id)
        ours = None if os.environ.get("MLFLOW_TRACKING_URI") else (folder / "mlflow-artifacts").resolve().as_uri()
        return str(self._client.create_experiment(name, artifact_location=ours))


def mlflow(name: str, folder: Path) -> Tracker:
    """Write to MLflow: a database in the run's folder, or where MLFLOW_TRACKING_URI says."""
    return Mlflow(name, folder)


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
