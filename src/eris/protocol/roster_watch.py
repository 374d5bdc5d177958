"""Checks that a roster is what its members said: a coordinator lists members, but can neither speak for nor drop them.

A member signs its own entry. Nobody is taken off a roster except by its own signed leave, by the CA (its certificate
was withdrawn or has expired), or by proof that it lied. So nobody's weight can be shifted, and the draw of participants
cannot be steered by dropping people until it comes out right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

from eris.errors import Reason, Refused
from eris.protocol.roster import Roster, RosterEntry, SignedLeave
from eris.protocol.round_plan import RoundPlan

__all__ = ["EntryCheck", "RosterWatch"]


class EntryCheck(Enum):
    """The result of checking an entry against its member's certificate."""

    GOOD = "good"
    FORGED = "forged"
    UNKNOWN = "unknown"  # the certificate is not at hand: the member was gone before we asked for it


class RosterWatch:
    """Follows the rosters of one run, plan by plan.

    Args:
        check: checks an entry against its member's certificate.
        gone: says whether the CA wants a member gone.
        leaves: asks the coordinator for the leaves that members signed.
        is_leave: checks the signature of such a leave.
    """

    def __init__(
        self,
        check: Callable[[RosterEntry], EntryCheck],
        gone: Callable[[RosterEntry], bool],
        leaves: Callable[[Collection[int]], Collection[SignedLeave]],
        is_leave: Callable[[SignedLeave, RosterEntry], bool],
    ) -> None:
        self._check, self._gone, self._leaves, self._is_leave = check, gone, leaves, is_leave
        self._last = Roster()
        self._unknown: set[int] = set()  # members of the last roster whose entries could not be checked yet
        self._counters: dict[int, int] = {}  # peer → counter of its newest entry

    def follow(self, plan: RoundPlan) -> None:
        """Check the roster of the next plan, or refuse it; unknown entries are checked again with the next."""
        roster = Roster(plan.roster)
        if roster.digest == self._last.digest and not self._unknown:
            return
        known = {entry.peer: entry for entry in self._last if entry.peer not in self._unknown}
        new = [entry for entry in roster if known.get(entry.peer) != entry]
        unknown = {entry.peer for entry in new if not self._is_own(entry, plan)}
        self._require_left([entry for entry in self._last if entry.peer not in roster.peers], plan)
        self._last, self._unknown = roster, unknown
        self._counters |= {entry.peer: entry.counter for entry in roster}

    def _is_own(self, entry: RosterEntry, plan: RoundPlan) -> bool:
        """Whether a member is known to have signed its entry; refuse one that it did not sign or has since replaced."""
        if entry.counter < self._counters.get(entry.peer, 0):
            raise _violation(plan, f"has an entry of {entry.name} that it has replaced since")
        found = self._check(entry)
        if found is EntryCheck.FORGED:
            raise _violation(plan, f"has an entry of {entry.name} that {entry.name} did not sign")
        return found is EntryCheck.GOOD

    def _require_left(self, dropped: list[RosterEntry], plan: RoundPlan) -> None:
        unexplained = [entry for entry in dropped if not self._gone(entry)]
        if not unexplained:
            return
        leaves = self._leaves([entry.peer for entry in unexplained])
        for entry in unexplained:
            if not any(self._is_leave(leave, entry) for leave in leaves):
                raise _violation(plan, f"lacks {entry.name}, who did not leave")


def _violation(plan: RoundPlan, what: str) -> Refused:
    return Refused(
        Reason.WRONG_PLAN,
        f"the plan's roster {what}",
        fix="the coordinator is not honest, or its journal is not this run's",
        round=plan.round,
        field="roster",
    )
