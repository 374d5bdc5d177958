"""What came of a federation on one machine: how every process ended, and whether all have the same model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Outcome", "PeerOutcome"]


@dataclass(frozen=True, slots=True)
class PeerOutcome:
    """One peer; what it did not live to write is empty."""

    name: str
    exit_code: int | None
    ended: str = ""
    pid: int | None = None
    rounds: int = 0
    sent: int = 0
    received: int = 0
    accuracy: float | None = None
    loss: float | None = None
    model_digest: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All peers together."""

    peers: tuple[PeerOutcome, ...]

    @classmethod
    def read(cls, folders: Mapping[str, Path], exit_codes: Mapping[str, int | None]) -> Outcome:
        """Read the summaries that the peers left in their folders."""
        return cls(tuple(_read(name, folder, exit_codes.get(name)) for name, folder in folders.items()))

    @property
    def model_digest(self) -> str:
        """The model that all peers have; empty if they differ or one has none."""
        digests = {peer.model_digest for peer in self.peers}
        return digests.pop() if len(digests) == 1 else ""

    @property
    def all_well(self) -> bool:
        """Whether every process ended as it should."""
        return all(peer.exit_code == 0 for peer in self.peers)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {"model_digest": self.model_digest, "peers": [asdict(peer) for peer in self.peers]}


def _read(name: str, folder: Path, exit_code: int | None) -> PeerOutcome:
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return PeerOutcome(name, exit_code)
    links = [*summary["links"]["dialled"], *summary["links"]["accepted"]]
    return PeerOutcome(
        name,
        exit_code,
        ended=summary["ended"],
        pid=summary["pid"],
        rounds=summary["rounds"],
        sent=sum(link["wire_sent"] for link in links),
        received=sum(link["wire_received"] for link in links),
        accuracy=summary["final_accuracy"],
        loss=summary["final_loss"],
        model_digest=summary["model_digest"],
    )
