"""Attendance: every peer that joined, where it can be dialled, and whether it still speaks to the coordinator."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from eris.errors import Reason, Refused
from eris.protocol.messages import MANIFEST_PURPOSE, ShownKey
from eris.protocol.roster import RosterEntry
from eris.transport.calls import BookAnswer, JoinRequest, PeerRecord
from eris.transport.control_server import a_page
from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity
from eris.transport.link import LinkError
from eris.transport.route import address_text, ways_to
from eris.transport.signatures import verify_message
from eris.wire.schema import encode

__all__ = ["Attendance", "Present", "can_be_reached"]

_LOG = logging.getLogger(__name__)
_DIAL_SECONDS = 2.0
_MOST_WAYS = 40
_MOMENT = 1.5  # seconds to dial again after a connection broke


@dataclass
class Present:
    """A peer that joined: its place on the roster, where it can be dialled, and its certificate."""

    entry: RosterEntry
    address: tuple[str, int] | None  # where it listens; None: it opens no port
    certificate: bytes  # DER
    request: JoinRequest  # its last one
    relays: tuple[tuple[str, int], ...] = ()  # where it waits to be called
    mask_key: ShownKey | None = None
    joined: float = field(default_factory=time.monotonic)
    calls: int = 0  # calls for news it waits in; the next may come before the end of the last is noticed
    heard: float = field(default_factory=time.monotonic)  # when it last asked for news
    lost: float | None = None  # when its connection broke
    edition: int = 0  # the address book's edition that first had this record

    def silent(self, now: float, patience: float) -> bool:
        """Whether it hung up and did not dial again, or asked for no news in `patience` s (frozen, or cut off)."""
        broken = self.lost is not None and self.lost < now - min(_MOMENT, patience)
        return broken or (not self.calls and self.heard < now - patience)

    def record(self) -> PeerRecord:
        """Return its record in the address book."""
        place = self.entry.peer, self.entry.name, self.address
        signed = self.request.place_counter, self.request.place_signature
        return PeerRecord(*place, *self.shown, *signed)

    @property
    def shown(self) -> tuple[bytes, tuple[tuple[str, int], ...], ShownKey | None]:
        """What others must be told again if it changes: certificate, relays and mask key."""
        return self.certificate, self.relays, self.mask_key

    def record_bytes(self) -> int:
        """Return the largest size of its record."""
        return len(self.certificate) + len(self.entry.name.encode()) + 300 * (1 + len(self.relays))

    @property
    def reached(self) -> str:
        """How others reach it, in words; empty if it only dials out."""
        ways = [*(("direct",) if self.address else ()), *(f"relay {address_text(at)}" for at in self.relays)]
        return ", ".join(ways)


class Attendance:
    """The peers that are here; every call is made under the coordinator's lock.

    A peer that asks for no news for `patience` seconds counts as gone. That is as long as the federation allows for
    reaching somebody, since a machine short of time both dials and asks late.
    """

    def __init__(self, credentials: Credentials, *, patience: float) -> None:
        self._credentials, self._patience = credentials, patience
        self.present: dict[int, Present] = {}
        self.edition = 0  # of the address book
        self._certificates: dict[int, bytes] = {}  # includes peers that left: their last manifests are still to come
        self._known_revocations = 0
        self._numbers: dict[str, int] = {}  # of everybody who was ever here, by name
        self._renewals = 0  # of certificates, under the same key
        self._pages: tuple[object, dict[tuple[str, int], bytes]] = None, {}  # of the address book, in its last state

    def enter(self, present: Present) -> bool:
        """Note a peer that came or came back; return whether it is at a place that others do not know yet."""
        number, known = present.entry.peer, self.present.get(present.entry.peer)
        moved = known is None or (known.address, known.relays) != (
            present.address,
            present.relays,
        )
        changed = moved or known is None or known.shown != present.shown
        self.edition += changed
        present.edition = self.edition if known is None or changed else known.edition
        present.calls = known.calls if known is not None else 0
        self.present[number], self._certificates[number] = present, present.certificate
        self._numbers[present.entry.name] = number
        return moved

    def ways(self) -> tuple[str, ...]:
        """Return how others reach those who are here: each way once, and no more than fit into an overview."""
        return tuple(sorted({present.reached for present in self.present.values()} - {""})[:_MOST_WAYS])

    def show_key(self, number: int, shown: ShownKey) -> None:
        """Put a peer's next mask key into the book; refuse one that is not newer than the last.

        A peer shows its next key until a plan has it, so the last one may come again.
        """
        present = self.present.get(number)
        known = present.mask_key if present is not None else None
        if known is not None and (known.key, known.counter) == (shown.key, shown.counter):  # perhaps signed anew
            return
        if present is None or known is None or shown.counter <= known.counter:
            raise Refused(Reason.DUPLICATE, "this mask key is not newer than the last one", peer=number)
        self.edition += 1
        present.mask_key, present.edition = shown, self.edition

    def leave(self, number: int) -> None:
        """Remove a peer from those who are here."""
        self.present.pop(number, None)

    def book(self, board: str, edition: int) -> BookAnswer:
        """Return the records that are newer than an edition, as many as fit."""
        newer = sorted((p for p in self.present.values() if p.edition > edition), key=lambda p: p.edition)
        page = a_page(newer, Present.record_bytes)
        more = len(page) < len(newer)
        reached = page[-1].edition if more else self.edition
        return BookAnswer(board, reached, tuple(p.record() for p in page), tuple(sorted(self.present)), more)

    def encoded_book(self, board: str, edition: int) -> bytes:
        """Return the encoded answer to a call for the book; at the start of a run all peers ask for the same pages."""
        state = self.edition, self._renewals, tuple(sorted(self.present))
        if self._pages[0] != state:
            self._pages = state, {}
        pages = self._pages[1]
        if (board, edition) not in pages:
            pages[board, edition] = encode(self.book(board, edition))
        return pages[board, edition]

    def find(self, caller: PeerIdentity) -> Present | None:
        """Return the caller, if it joined."""
        return self.present.get(self._numbers.get(caller.name, -1))

    def heard(self, caller: PeerIdentity, *, waits: bool) -> Present | None:
        """Note that a peer asks for news; return it if it now waits for them."""
        present = self.find(caller)
        if present is None:
            return None
        present.calls, present.heard = max(0, present.calls + (1 if waits else -1)), time.monotonic()
        if caller.fingerprint == present.entry.fingerprint:  # perhaps renewed with the same key
            self._renewals += present.certificate != caller.certificate
            present.certificate = self._certificates[present.entry.peer] = caller.certificate
        if not waits:
            return None
        present.lost = None
        return present

    def lost(self, caller: PeerIdentity) -> None:
        """Note that a peer's connection broke; it has a moment to dial again."""
        present = self.find(caller)
        if present is None:
            return
        present.calls = max(0, present.calls - 1)
        if not present.calls and present.lost is None:
            present.lost = time.monotonic()

    def forgive(self, seconds: float) -> None:
        """Do not count time in which this process could hear no peer."""
        for present in self.present.values():
            present.heard += seconds
            present.lost = None if present.lost is None else present.lost + seconds

    def silent(self) -> Iterator[Present]:
        """Return peers that hung up or ask for no news, and those whose certificate the CA has withdrawn."""
        self._give_up_revoked()
        now = time.monotonic()
        return (present for present in list(self.present.values()) if present.silent(now, self._patience))

    def unwelcome(self) -> Iterator[tuple[int, str]]:
        """Return peers, here or gone, whose certificate was revoked or has expired, and which of the two."""
        for number, certificate in self._certificates.items():
            refusal = self._credentials.refusal(self._credentials.identify(certificate))
            if refusal is not None:
                yield number, refusal.value

    def verify(self, peer: int, message: bytes, signature: str) -> bool:
        """Return whether a peer signed a message, the bytes of a manifest or a receipt; `signature` is hex."""
        certificate = self._certificates.get(peer)
        try:
            signed = bytes.fromhex(signature)
        except ValueError:
            return False
        return certificate is not None and verify_message(certificate, MANIFEST_PURPOSE, message, signed)

    def certificate(self, peer: int) -> bytes:
        """Return the certificate (DER) of a peer that was ever here; empty for any other."""
        return self._certificates.get(peer, b"")

    def _give_up_revoked(self) -> None:
        """Count peers as gone as soon as the CA withdraws their certificate; the next plan is without them."""
        self._credentials.refresh()
        if self._credentials.revocations.number == self._known_revocations:
            return
        self._known_revocations = self._credentials.revocations.number
        for present in self.present.values():
            if self._credentials.refusal(self._credentials.identify(present.certificate)) is not None:
                present.lost = -math.inf


def can_be_reached(
    name: str, address: tuple[str, int] | None, relays: Sequence[tuple[str, int]], credentials: Credentials
) -> bool:
    """Return whether somebody answers at the address or waits at a relay; links will find out who it is.

    `name` is whom a relay is asked for, `credentials` are our own.
    """
    for way in ways_to(address, relays, name, credentials).values():
        with contextlib.suppress(LinkError):
            way(_DIAL_SECONDS).shut()
            return True
    return False
