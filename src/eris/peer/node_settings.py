"""What a peer decides for itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from eris.protocol.floor import Floor

__all__ = ["NodeSettings"]


@dataclass(frozen=True)
class NodeSettings:
    """A peer's name, where it listens, what it insists on, and how long it waits."""

    name: str
    listen: tuple[str, int] | None = ("", 0)  # None: this peer cannot be dialled and never aggregates
    advertise: str = ""  # host others dial; empty: the address of this machine towards the coordinator
    organisation: str = ""
    floor: Floor = field(default_factory=Floor)
    patience: float = 300.0  # seconds without a word from the coordinator until this peer gives up
    wait: float = 60.0  # seconds to wait at the start for a coordinator that is not there yet
