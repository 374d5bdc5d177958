"""A peer's own settings, and the address at which others reach it if it names none."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from eris.protocol.floor import Floor

if TYPE_CHECKING:
    from eris.transport.route import Proxy

__all__ = ["SPILL_ABOVE", "NodeSettings", "own_address"]

SPILL_ABOVE = 1 << 30


@dataclass(frozen=True)
class NodeSettings:
    """A peer's name, where it listens, what it insists on, how long it waits, and how much it holds in memory."""

    name: str
    listen: tuple[str, int] | None = ("", 0)  # None: this peer opens no port
    relays: tuple[tuple[str, int], ...] = ()  # where it waits to be called, so that it can aggregate without a port
    proxy: Proxy | None = None  # for all its outgoing connections
    advertise: str = ""  # host others dial; empty: the address of this machine towards the coordinator
    organisation: str = ""  # that it belongs to; empty: as FEDERATION.toml says
    floor: Floor = field(default_factory=Floor)  # the least protection under which it sends anything
    patience: float = 300.0  # seconds of silence from the coordinator before this peer gives up
    wait: float = 60.0  # seconds to wait at the start for a coordinator that is not there yet
    folder: Path | None = None  # where it keeps its records and long vectors; None: no records, and temporary files
    spill_above: int = SPILL_ABOVE  # bytes; longer vectors lie in files and are mapped

    @property
    def reachable(self) -> bool:
        """Whether others can reach this peer at all; one that only dials out never aggregates."""
        return self.listen is not None or bool(self.relays)


def own_address(towards: tuple[str, int]) -> str:
    """Return this machine's address on the way to another one (no packet is sent).

    A name may have addresses of both families. IPv4 is tried first: a server that listens on all addresses is reached
    by it too, and one that listens on IPv4 only would not be by IPv6. Where there is no way at all, we are alone here.

    >>> own_address(("127.0.0.1", 7443))
    '127.0.0.1'
    """
    with contextlib.suppress(OSError, UnicodeError):  # no such host
        for family, kind, protocol, _, place in sorted(_places(towards), key=lambda found: found[0] != socket.AF_INET):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(place)
                return str(probe.getsockname()[0])
    return "127.0.0.1"


def _places(towards: tuple[str, int]) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    return list(socket.getaddrinfo(*towards, type=socket.SOCK_DGRAM))
