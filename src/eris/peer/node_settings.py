"""What a peer decides for itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from eris.protocol.floor import Floor

__all__ = ["SPILL_ABOVE", "NodeSettings"]

SPILL_ABOVE = 1 << 30


@dataclass(frozen=True)
class NodeSettings:
    """A peer's name, where it listens, what it insists on, how long it waits, and how much it holds in memory."""

    name: str
    listen: tuple[str, int] | None = ("", 0)  # None: this peer cannot be dialled and never aggregates
    advertise: str = ""  # host others dial; empty: the address of this machine towards the coordinator
    organisation: str = ""
    floor: Floor = field(default_factory=Floor)
    patience: float = 300.0  # seconds without a word from the coordinator until this peer gives up
    wait: float = 60.0  # seconds to wait at the start for a coordinator that is not there yet
    folder: Path | None = None  # where long vectors lie; None: where temporary files go
    spill_above: int = SPILL_ABOVE  # bytes; longer vectors lie in files and are mapped
