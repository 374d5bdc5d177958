"""A member's signed statement that it leaves for good, by which others can hold the coordinator to account."""

from __future__ import annotations

import time

from eris.protocol.roster import LEAVE_PURPOSE, LeaveClaim, RosterEntry, SignedLeave
from eris.transport.credentials import Credentials
from eris.transport.signatures import verify_message
from eris.wire.schema import encode

__all__ = ["is_own_leave", "sign_leave"]


def sign_leave(credentials: Credentials) -> SignedLeave:
    """Sign that this peer leaves its federation's run for good."""
    claim = LeaveClaim(credentials.federation, credentials.name, int(time.time()))
    signature = credentials.sign(LEAVE_PURPOSE, encode(claim)).hex()
    return SignedLeave(claim, signature, credentials.identity.certificate)


def is_own_leave(leave: SignedLeave, entry: RosterEntry, credentials: Credentials) -> bool:
    """Return whether the member of this roster entry signed the leave itself, and not before it made the entry."""
    claim = leave.claim
    if (claim.federation, claim.name) != (credentials.federation, entry.name) or claim.counter < entry.counter:
        return False
    signed = verify_message(leave.certificate, LEAVE_PURPOSE, encode(claim), bytes.fromhex(leave.signature))
    return signed and credentials.issued(entry.name, leave.certificate)
