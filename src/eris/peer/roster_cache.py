"""The rosters that plans cite: the newest ones this peer knows, and where it gets the others."""

from __future__ import annotations

import threading
from collections import OrderedDict

from eris.errors import Reason, Refused
from eris.protocol.roster import Roster
from eris.transport.calls import RosterAnswer, RosterRequest
from eris.transport.control_client import ControlClient

__all__ = ["RosterCache"]

_KEEP = 8


class RosterCache:
    """Asks the coordinator for a roster once; what it answers must have the digest that was asked for."""

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
                    raise Refused(Reason.WRONG_DIGEST, "the coordinator sent another roster than its plan cites")
                self._known[digest] = roster
            self._known.move_to_end(digest)
            while len(self._known) > _KEEP:
                self._known.popitem(last=False)
            return self._known[digest]

    def _changed(self, answer: RosterAnswer) -> Roster:
        assert answer.change is not None
        if (base := self._known.get(answer.change.base)) is None:
            raise Refused(Reason.WRONG_DIGEST, "the coordinator sent a difference from a roster that is not ours")
        return base.changed(answer.change)
