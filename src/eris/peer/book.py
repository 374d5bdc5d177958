"""Who is where: names, addresses and certificates of the other peers, as the coordinator knows them.

The coordinator is not believed: a certificate counts only if the federation's CA signed it and its key is the one the
roster pins.
"""

from __future__ import annotations

import base64
import threading
from dataclasses import dataclass, field
from typing import Any

from eris.protocol.round_plan import RoundPlan
from eris.transport.credentials import Credentials
from eris.transport.signatures import verify_message

__all__ = ["MANIFEST_PURPOSE", "Book", "Page"]

MANIFEST_PURPOSE = "manifest"  # what a signature is for stands in what is signed


@dataclass(frozen=True, slots=True)
class Page:
    """One peer."""

    name: str
    address: tuple[str, int] | None
    certificate: bytes = field(repr=False)


class Book:
    """What this peer knows of the others; safe to use from many threads."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self._pages: dict[int, Page] = {}
        self._roster: dict[str, str] = {}
        self._numbers: dict[str, int] = {}

    def learn(self, answer: dict[str, Any]) -> None:
        """Take over the coordinator's pages; those whose certificate is not good are left out."""
        pages = {}
        for number, page in answer["book"].items():
            certificate = base64.b64decode(page["certificate"])
            if self._credentials.vouches_for(certificate, page["name"]):
                address = (str(page["address"][0]), int(page["address"][1])) if page["address"] else None
                pages[int(number)] = Page(page["name"], address, certificate)
        with self._lock:
            self._pages = pages

    def follow(self, plan: RoundPlan) -> None:
        """Take the roster of a round: whose links are welcome, and under which key."""
        with self._lock:
            self._roster = {entry.name: entry.fingerprint for entry in plan.roster}
            self._numbers = {entry.name: entry.peer for entry in plan.roster}

    def page(self, peer: int) -> Page | None:
        """Return what is known of a peer."""
        with self._lock:
            return self._pages.get(peer)

    def lacks(self, plan: RoundPlan) -> bool:
        """Whether somebody on the roster is not in the book, or is there with another key."""
        with self._lock:
            known = {
                page.name: self._credentials.identify(page.certificate).fingerprint for page in self._pages.values()
            }
        return any(known.get(entry.name) != entry.fingerprint for entry in plan.roster)

    def roster(self) -> dict[str, str]:
        """Return names and fingerprints of the members."""
        with self._lock:
            return dict(self._roster)

    def number(self, name: str) -> int | None:
        """Return a member's number."""
        with self._lock:
            return self._numbers.get(name)

    def dialable(self, but: int) -> list[int]:
        """Return the other peers that can be dialled."""
        with self._lock:
            return [number for number, page in self._pages.items() if page.address is not None and number != but]

    def verify(self, peer: int, message: bytes, signature: str) -> bool:
        """Return whether this peer, under the key the roster pins, signed the message."""
        page = self.page(peer)
        try:
            return page is not None and verify_message(
                page.certificate, MANIFEST_PURPOSE, message, bytes.fromhex(signature)
            )
        except (TypeError, ValueError):
            return False
