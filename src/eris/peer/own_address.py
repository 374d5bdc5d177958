"""Under which address others reach this machine, if nobody says another one."""

from __future__ import annotations

import contextlib
import socket

__all__ = ["own_address"]


def own_address(towards: tuple[str, int]) -> str:
    """Return this machine's address on the way to another one (no packet is sent).

    A name may have addresses of both families. IPv4 is tried first: whoever listens on all addresses is reached by it
    too, and whoever listens on IPv4 only would not be by the other. Where there is no way at all, we are alone here.

    >>> own_address(("127.0.0.1", 7443))
    '127.0.0.1'
    """
    with contextlib.suppress(OSError, UnicodeError):  # nobody is called so
        for family, kind, protocol, _, place in sorted(_places(towards), key=lambda found: found[0] != socket.AF_INET):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(place)
                return str(probe.getsockname()[0])
    return "127.0.0.1"


def _places(towards: tuple[str, int]) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    return list(socket.getaddrinfo(*towards, type=socket.SOCK_DGRAM))
