"""Under which address others reach this machine, if nobody says another one."""

from __future__ import annotations

import socket

__all__ = ["own_address"]


def own_address(towards: tuple[str, int]) -> str:
    """Return this machine's address on the way to another one (no packet is sent)."""
    family = socket.AF_INET6 if ":" in towards[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(towards)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
