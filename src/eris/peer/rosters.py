"""The rosters that plans cite: the newest ones this peer knows, how it gets others, and how it checks them.

A roster is checked against certificates: what its members signed, who was removed by the CA, and who left.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection

from eris.errors import Reason, Refused
from eris.peer.address_book import AddressBook
from eris.protocol.roster import ROSTER_PURPOSE, Roster, RosterEntry, SignedLeave
from eris.protocol.roster_watch import EntryCheck, RosterWatch
from eris.transport.calls import DepartureAnswer, DepartureRequest, RosterAnswer, RosterRequest
from eris.transport.control_client import ControlClient
from eris.transport.credentials import Credentials
from eris.transport.departures import is_own_leave
from eris.transport.signatures import verify_message
from eris.wire.schema import encode

__all__ = ["RosterCache", "roster_watch"]

_KEEP = 8


class RosterCache:
    """Asks the coordinator for each roster once; the answer must have the requested digest."""

    def __init__(self, client: ControlClient) -> None:
        self._client, self._lock = client, threading.Lock()
        self._known: OrderedDict[str, Roster] = OrderedDict()

    def find(self, digest: str) -> Roster:
        """Return the roster with this digest."""
        with self._lock:
            if digest not in self._known:
                base = next(reversed(self._known), "")
                answer = self._client.fetch(RosterRequest(digest, base), RosterAnswer)
                roster = Roster.decode(answer.roster) if answer.change is None else self._changed(answer)
                if roster.digest != digest:
                    raise Refused(Reason.WRONG_DIGEST, "the coordinator sent a roster that its plan does not cite")
                self._known[digest] = roster
            self._known.move_to_end(digest)
            while len(self._known) > _KEEP:
                self._known.popitem(last=False)
            return self._known[digest]

    def _changed(self, answer: RosterAnswer) -> Roster:
        assert answer.change is not None
        if (base := self._known.get(answer.change.base)) is None:
            raise Refused(
                Reason.WRONG_DIGEST, "the coordinator sent a difference from a roster that this peer does not have"
            )
        return base.changed(answer.change)


def roster_watch(federation: str, book: AddressBook, credentials: Credentials, control: ControlClient) -> RosterWatch:
    """Return the watch that checks a run's rosters against certificates.

    Args:
        federation: digest of the file that all peers share.
        book: has the members' certificates.
        credentials: say whose certificate is no longer good.
        control: asks the coordinator for signed leaves.
    """

    def check(entry: RosterEntry) -> EntryCheck:
        certificate = book.certificate(entry.fingerprint)
        if certificate is None:
            return EntryCheck.UNKNOWN
        signature, claim = bytes.fromhex(entry.signature), encode(entry.claim(federation))
        good = verify_message(certificate, ROSTER_PURPOSE, claim, signature)
        return EntryCheck.GOOD if good else EntryCheck.FORGED

    def gone(entry: RosterEntry) -> bool:
        certificate = book.certificate(entry.fingerprint)
        return certificate is not None and credentials.refusal(credentials.identify(certificate)) is not None

    def leaves(peers: Collection[int]) -> Collection[SignedLeave]:
        return control.fetch(DepartureRequest(tuple(sorted(peers))), DepartureAnswer).leaves

    return RosterWatch(check, gone, leaves, lambda leave, entry: is_own_leave(leave, entry, credentials))
