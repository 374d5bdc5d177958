"""The folder of a run: what is written while it runs, and its results.

config.toml          the resolved configuration; running it again gives the same bits
metrics.jsonl        a line per round
verdicts.jsonl       a line per round: its plan and how it ended
exposure.json        who saw how much
summary.json         the run in one object
model.safetensors    the final model
checkpoint/          what `--resume` continues from
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from eris.atomic_file import write_atomically, writing
from eris.config import Config, dump_config
from eris.errors import CheckpointError
from eris.events import Event, RoundEnded, VerdictWritten
from eris.exposure import ExposureLedger
from eris.local.spec import ModelSpec, Vector
from eris.plain_json import sayable
from eris.simulate.peer_exposure import PeerExposure

__all__ = ["RunFolder"]

_LINES = ("metrics.jsonl", "verdicts.jsonl")
_FIX = "make room there, then continue with `eris run --resume`"


class RunFolder:
    """Writes a run's events to its folder."""

    hears = (RoundEnded, VerdictWritten)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ledger: ExposureLedger | PeerExposure | None = None

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are."""
        return self.path / "checkpoint"

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return any(self.checkpoints.glob("round-*.safetensors"))

    def create(self, config: Config) -> None:
        """Begin a new run."""
        with writing(self.path, fix="give another folder"):
            self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / "config.toml", dump_config(config).encode())
        for name in _LINES:
            write_atomically(self.path / name, b"")

    def take_back(self) -> None:
        """Remove everything that a run writes; what else is in the folder stays."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        for name in ("config.toml", *_LINES, "exposure.json", "summary.json", "model.safetensors"):
            (self.path / name).unlink(missing_ok=True)

    def __call__(self, event: Event) -> None:
        """Write the events that have a line in a file."""
        if isinstance(event, RoundEnded):
            metrics = json.dumps(sayable(self._metrics(event)), separators=(",", ":"), allow_nan=False)
            self._append("metrics.jsonl", metrics.encode())
        elif isinstance(event, VerdictWritten):
            self._append("verdicts.jsonl", msgspec.json.encode({"plan": event.plan, "verdict": event.verdict}))

    def sizes(self) -> dict[str, int]:
        """Return how long the files of lines are, for a checkpoint."""
        return {name: (self.path / name).stat().st_size for name in _LINES}

    def cut_back(self, sizes: Mapping[str, int]) -> None:
        """Drop the lines written after a checkpoint; their rounds will be done again."""
        for name in _LINES:
            path = self.path / name
            if not path.exists() or path.stat().st_size < sizes[name]:
                raise CheckpointError(f"{name} is shorter than its checkpoint says", fix="start a new run", path=path)
            with path.open("r+b") as file:
                file.truncate(sizes[name])

    def rounds(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl."""
        return self._lines("metrics.jsonl")

    def verdicts(self) -> list[dict[str, Any]]:
        """Return the lines of verdicts.jsonl."""
        return self._lines("verdicts.jsonl")

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        """Write a JSON file for people and programs."""
        write_atomically(self.path / name, (json.dumps(sayable(data), indent=2) + "\n").encode())

    def write_model(self, spec: ModelSpec, model: Vector) -> None:
        """Write the model as named tensors."""
        from safetensors.numpy import save

        write_atomically(self.path / "model.safetensors", save(dict(spec.unflatten(model)), {"spec": spec.digest}))

    def _metrics(self, event: RoundEnded) -> dict[str, Any]:
        traffic = event.traffic
        roles = {"member": traffic.member, traffic.aggregator_name: traffic.aggregator}
        return {
            "round": event.round,
            **event.metrics,
            "bytes_up": {role: count.up for role, count in roles.items()},
            "bytes_down": {role: count.down for role, count in roles.items()},
            "bytes_total": traffic.total,
            "distribution_seconds": traffic.seconds,
            "virtual_round_seconds": traffic.round_seconds,
            "largest_share": self.ledger.of_round.pop(event.round, None) if self.ledger else None,
            "lost_shards": event.lost_shards,
            "seconds": event.seconds,
        }

    def _append(self, name: str, line: bytes) -> None:
        path = self.path / name
        with writing(path, fix=_FIX), path.open("ab") as file:
            file.write(line + b"\n")
