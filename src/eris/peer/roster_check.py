"""A roster held against certificates: what its members signed, who the CA took away, and who left."""

from __future__ import annotations

from collections.abc import Collection

from eris.peer.address_book import AddressBook
from eris.protocol.roster import ROSTER_PURPOSE, RosterEntry, SignedLeave
from eris.protocol.roster_watch import EntryCheck, RosterWatch
from eris.transport.calls import DepartureAnswer, DepartureRequest
from eris.transport.control_client import ControlClient
from eris.transport.credentials import Credentials
from eris.transport.departures import is_own_leave
from eris.transport.signatures import verify_message
from eris.wire.schema import encode

__all__ = ["roster_watch"]


def roster_watch(federation: str, book: AddressBook, credentials: Credentials, control: ControlClient) -> RosterWatch:
    """Return what holds the rosters of a run, of the federation file with this digest, against certificates."""

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
