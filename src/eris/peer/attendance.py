"""Who is there: every peer that joined, where it can be dialled, and whether it still speaks to the coordinator."""

from __future__ import annotations

import base64
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from eris.peer.book import MANIFEST_PURPOSE
from eris.peer.wish import Wish
from eris.protocol.round_plan import RosterEntry
from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity
from eris.transport.link import LinkError
from eris.transport.signatures import verify_message
from eris.transport.socket_stream import connect

__all__ = ["Attendance", "Present", "can_be_dialled"]

_LOG = logging.getLogger(__name__)
_DIAL_SECONDS = 2.0
_MOMENT = 1.5  # seconds to dial again after a connection broke


@dataclass
class Present:
    """A peer that joined: its place on the roster, where it can be dialled, and its certificate."""

    entry: RosterEntry
    address: tuple[str, int] | None
    certificate: bytes
    wish: Wish
    joined: float = field(default_factory=time.monotonic)
    calls: int = 0  # for news, that it waits in; the next may come before the end of the last is noticed
    heard: float = field(default_factory=time.monotonic)
    lost: float | None = None  # since when its connection is broken

    def silent(self, now: float, patience: float) -> bool:
        """Whether it hung up and did not dial again, or asked for no news in `patience` s (frozen, or cut off)."""
        broken = self.lost is not None and self.lost < now - min(_MOMENT, patience)
        return broken or (not self.calls and self.heard < now - patience)

    def page(self) -> dict[str, Any]:
        """Return its page of the address book."""
        return {
            "name": self.entry.name,
            "address": list(self.address) if self.address else None,
            "certificate": base64.b64encode(self.certificate).decode(),
        }


class Attendance:
    """The peers that are here; every call is made under the coordinator's lock.

    A peer that asks for no news for `patience` seconds is taken for gone: as long as the federation gives itself to
    reach somebody, for a machine that is short of time dials late and asks late alike.
    """

    def __init__(self, credentials: Credentials, *, patience: float) -> None:
        self._credentials, self._patience = credentials, patience
        self.present: dict[int, Present] = {}
        self.edition = 0  # of the address book
        self._certificates: dict[int, bytes] = {}  # also of peers that left: their last manifests are still to come
        self._known_revocations = 0

    def enter(self, present: Present) -> bool:
        """Note a peer that has come, or come back; return whether it is where nobody looks for it yet."""
        number, known = present.entry.peer, self.present.get(present.entry.peer)
        moved = known is None or known.address != present.address
        self.edition += moved
        present.calls = known.calls if known is not None else 0
        self.present[number], self._certificates[number] = present, present.certificate
        return moved

    def leave(self, number: int) -> None:
        """Strike a peer off."""
        self.present.pop(number, None)

    def find(self, caller: PeerIdentity) -> Present | None:
        """Return who calls, if it joined."""
        return next((present for present in self.present.values() if present.entry.name == caller.name), None)

    def heard(self, caller: PeerIdentity, *, waits: bool) -> Present | None:
        """Note that a peer asks for news; return it if it waits for them now."""
        present = self.find(caller)
        if present is None:
            return None
        present.calls, present.heard = max(0, present.calls + (1 if waits else -1)), time.monotonic()
        if caller.fingerprint == present.entry.fingerprint:  # renewed with the same key, perhaps
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
        """Hold a time in which we heard nobody against nobody."""
        for present in self.present.values():
            present.heard += seconds
            present.lost = None if present.lost is None else present.lost + seconds

    def silent(self) -> Iterator[Present]:
        """Return peers whose connection stays broken, and those whose certificate the CA has withdrawn."""
        self._give_up_revoked()
        now = time.monotonic()
        return (present for present in list(self.present.values()) if present.silent(now, self._patience))

    def unwelcome(self) -> Iterator[tuple[int, str]]:
        """Return peers, here or gone, whose certificate was revoked or has expired, and which of it."""
        for number, certificate in self._certificates.items():
            refusal = self._credentials.refusal(self._credentials.identify(certificate))
            if refusal is not None:
                yield number, refusal.value

    def verify(self, peer: int, message: bytes, signature: str) -> bool:
        """Return whether a peer signed a manifest."""
        certificate = self._certificates.get(peer)
        try:
            signed = bytes.fromhex(signature)
        except ValueError:
            return False
        return certificate is not None and verify_message(certificate, MANIFEST_PURPOSE, message, signed)

    def _give_up_revoked(self) -> None:
        """Count peers as gone as soon as the CA withdraws their certificate; the next plan is without them."""
        self._credentials.refresh()
        if self._credentials.revocations.number == self._known_revocations:
            return
        self._known_revocations = self._credentials.revocations.number
        for present in self.present.values():
            if self._credentials.refusal(self._credentials.identify(present.certificate)) is not None:
                present.lost = -math.inf


def can_be_dialled(address: tuple[str, int]) -> bool:
    """Return whether somebody listens there, as seen from this machine; who it is, links will find out."""
    try:
        connect(address, _DIAL_SECONDS).shut()
    except LinkError:
        return False
    return True
