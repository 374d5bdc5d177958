"""A link: one connection between a member, which dials, and an aggregator, which accepts; kept over rounds.

A frame is a header of fixed size and a payload whose length the header gives. `wire/` knows what headers mean; here
they are bytes. A link is half duplex and belongs to one thread at each end. Every wait ends, either with bytes or with
one of these:

    LinkError
    ├── LinkClosed     the other side is gone (`clean`: between two frames, with a goodbye), or this side closed
    ├── LinkTimeout    too slow; `kind` says by which measure (connect, handshake, idle, deadline)
    └── LinkRefused    one side turned the other away; `reason` says why, `by_us` which side it was

A `deadline` is a moment of the monotonic clock; without one, only idling ends a wait.

After an error a link is unusable, with one exception: a `LinkTimeout` of `receive_header` before the first byte
(`between_frames`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

from numpy.typing import NDArray

from eris.errors import ErisError, InputError
from eris.transport.identity import PeerIdentity, Refusal

__all__ = [
    "Bytes",
    "Link",
    "LinkClosed",
    "LinkError",
    "LinkLimits",
    "LinkRefused",
    "LinkTimeout",
    "LinkTraffic",
    "TimeoutKind",
]

Bytes = bytes | bytearray | memoryview | NDArray[Any]
TimeoutKind = Literal["connect", "handshake", "idle", "deadline"]

_TIMEOUT_FIXES: dict[TimeoutKind, str] = {
    "connect": "check address, port and firewall with `eris doctor`",
    "handshake": "check that an eris peer listens there, and that it is not overloaded",
    "idle": "the other side stalls or the way is too slow; raise the idle time if it is the way",
    "deadline": "the round goes on without this frame; raise the deadline if rounds are often late",
}

_REFUSAL_FIXES: dict[Refusal, str] = {
    Refusal.NOT_TLS: "both sides must speak TLS 1.3; plain text is for loopback, on both sides or none",
    Refusal.NO_CERTIFICATE: "give a folder made by `eris certs issue`",
    Refusal.UNKNOWN_CA: "both sides need certificates of the same CA; compare ca.pem with `eris certs show`",
    Refusal.EXPIRED: "renew it with `eris certs issue`, and check the clocks",
    Refusal.NOT_YET_VALID: "check the clocks of both machines",
    Refusal.REVOKED: "ask the federation's CA; a new certificate needs a new key",
    Refusal.WRONG_FEDERATION: "use a certificate that was issued for this federation",
    Refusal.WRONG_NAME: "check the address: another peer of the federation answers there",
    Refusal.WRONG_FINGERPRINT: "the key changed since the roster was made: join again",
    Refusal.NOT_ON_ROSTER: "join the run first; the roster of the next round will have this peer",
    Refusal.WRONG_VERSION: "update eris on the older side",
    Refusal.BUSY: "try again in a moment",
    Refusal.BAD_CERTIFICATE: "make a new one with `eris certs`; the log of the refusing side says more",
}


class LinkError(ErisError):
    """A link could not be made or kept."""


class LinkClosed(LinkError):
    """The link has ended; `clean` says whether between two frames and with a goodbye."""

    def __init__(self, what: str, *, clean: bool, fix: str = "", **where: object) -> None:
        self.clean = clean
        super().__init__(what, fix=fix, **where)


class LinkTimeout(LinkError):
    """A wait took too long; `kind` says by which measure, `between_frames` that nothing was lost: try again."""

    def __init__(self, kind: TimeoutKind, what: str, **where: object) -> None:
        self.kind, self.between_frames = kind, False
        super().__init__(what, fix=_TIMEOUT_FIXES[kind], **where)


class LinkRefused(LinkError):
    """One side turned the other away."""

    def __init__(self, reason: Refusal, *, by_us: bool, **where: object) -> None:
        self.reason, self.by_us = reason, by_us
        side = "we refused the other side" if by_us else "the other side refused us"
        super().__init__(f"{side} ({reason.value})", fix=_REFUSAL_FIXES[reason], **where)


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """What both ends of a link agree on beforehand, and how long they wait."""

    header_size: int  # bytes, of every frame
    max_payload: int  # a longer payload is refused before memory is spent on it
    connect: float = 10.0  # seconds until TCP is connected
    handshake: float = 10.0  # seconds from then until each side has welcomed the other
    idle: float = 30.0  # seconds in which at least 64 KiB (or what is left of a frame) must move

    def __post_init__(self) -> None:
        if self.header_size < 1 or self.max_payload < 0:
            raise InputError(
                f"the header has {self.header_size} bytes and a payload at most {self.max_payload}", fix="use more"
            )
        if min(self.connect, self.handshake, self.idle) <= 0:
            raise InputError("a time limit of a link is not positive", fix="give seconds > 0")


@dataclass(frozen=True, slots=True)
class LinkTraffic:
    """What has gone through one end of a link so far."""

    frames_sent: int = 0
    frames_received: int = 0
    sent: int = 0  # headers and payloads
    received: int = 0
    wire_sent: int = 0  # what the socket carried, handshake and encryption included
    wire_received: int = 0


class Link(Protocol):
    """Frames in order, exactly once, from one known peer to another, or an error."""

    @property
    def peer(self) -> PeerIdentity:
        """Who is at the other end."""
        ...

    @property
    def closed(self) -> bool:
        """Whether this side has closed it."""
        ...

    @property
    def limits(self) -> LinkLimits:
        """The sizes and times that this end enforces."""
        ...

    @property
    def traffic(self) -> LinkTraffic:
        """Byte and frame counts up to now."""
        ...

    @property
    def worn(self) -> bool:
        """Whether its keys have encrypted so much that a new link should replace it between two rounds."""
        ...

    def send(self, header: bytes, *buffers: Bytes, deadline: float | None = None, more: bool = False) -> None:
        """Send one frame, its buffers one after another; waits while the other side does not read.

        With `more`, another frame follows at once, and the end of this one may be held back until then.
        """
        ...

    def receive_header(self, *, deadline: float | None = None) -> bytes:
        """Return the next frame's header; its first byte may take until the deadline (by default, the idle time)."""
        ...

    def receive_into(self, view: memoryview, *, deadline: float | None = None) -> None:
        """Fill `view` with the next bytes of the payload, which may be read in several parts."""
        ...

    def discard(self, length: int, *, deadline: float | None = None) -> None:
        """Skip the next `length` bytes of an unwanted payload, so that the link can go on."""
        ...

    def close(self) -> None:
        """Say goodbye and end; if another thread is using the link, its wait ends too."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...
