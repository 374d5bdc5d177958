"""Totals over all links with one peer: frames, bytes, and the kernel's own count."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from eris.transport.stream_link import StreamLink

__all__ = ["LinkAccount"]


@dataclass(frozen=True, slots=True)
class LinkAccount:
    """The totals for one peer; `plus` adds those of another link.

    >>> LinkAccount("birch").links
    0
    """

    peer: str
    links: int = 0
    frames_sent: int = 0
    frames_received: int = 0
    sent: int = 0  # headers and payloads
    received: int = 0
    wire_sent: int = 0  # handshakes and encryption included
    wire_received: int = 0
    kernel_sent: int = 0  # the same by the kernel's count; 0 where it has none
    kernel_received: int = 0

    def plus(self, link: StreamLink | None) -> LinkAccount:
        """Return the totals with those of a link, open or closed, added."""
        if link is None:
            return self
        traffic, (kernel_sent, kernel_received) = link.traffic, link.kernel or (0, 0)
        return LinkAccount(
            peer=self.peer,
            links=self.links + 1,
            frames_sent=self.frames_sent + traffic.frames_sent,
            frames_received=self.frames_received + traffic.frames_received,
            sent=self.sent + traffic.sent,
            received=self.received + traffic.received,
            wire_sent=self.wire_sent + traffic.wire_sent,
            wire_received=self.wire_received + traffic.wire_received,
            kernel_sent=self.kernel_sent + kernel_sent,
            kernel_received=self.kernel_received + kernel_received,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return asdict(self)
