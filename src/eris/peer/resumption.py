"""From where a run goes on after its coordinator was away: what the members say they have, against the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property

from eris.peer.journal import SqliteJournal
from eris.peer.wish import Wish
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import GENESIS

__all__ = ["Resumption", "is_older"]


class Resumption:
    """Members that are back, by number, with what they wish; a journal; and the round that it stands at."""

    def __init__(self, journal: SqliteJournal, wishes: Mapping[int, Wish], round: int) -> None:
        self._journal, self._wishes, self._round = journal, wishes, round

    def goes_back_to(self, quorum: int) -> int | None:
        """Return the newest round that is durable at all, if all were down or none has what came after it; else None.

        Where only the very beginning is (one came late and kept nothing yet), the newest that a quorum has: the others
        take a snapshot of it. One that is a round ahead of others because it kept more goes back with them, or they
        would lose what they have of their own.
        """
        wishes = self._wishes.values()
        if any(self._knows(wish) for wish in wishes if not wish.fresh):
            return None
        rounds = Counter(r for wish in wishes for r in {0, *wish.checkpoints} if r <= self._round)
        target = max(round for round, count in rounds.items() if count == len(wishes))
        if target == 0:
            target = max((round for round, count in rounds.items() if count >= quorum), default=0)
        if target == self._round and any(self._knows(wish) for wish in wishes):
            return None
        return target

    def aggregator_forgot(self, plan: RoundPlan | None) -> bool:
        """Whether an aggregator of the round in flight was restarted too, while others are still in it.

        They may hold what it published before. Publishing under the same plan again it would contradict itself.
        """
        inside = {number for number, wish in self._wishes.items() if wish.private_round > self._round}
        return plan is not None and bool(inside) and bool(plan.aggregators & self._wishes.keys() - inside)

    def _knows(self, wish: Wish) -> bool:
        """Whether a peer stands at this round, or is still in the one before: of this course, not of one taken back."""
        return wish.private_round >= self._round and wish.chain in self._last_chains

    @cached_property
    def _last_chains(self) -> set[str]:
        last = {verdict.digest for _, verdict in self._journal.since(max(0, self._round - 2))}
        return last | {GENESIS} if self._round < 2 else last


def is_older(journal: SqliteJournal, wishes: Mapping[int, Wish]) -> bool:
    """Return whether most members have followed verdicts that were never written to this journal: it is an old copy."""
    chains = [wish.chain for wish in wishes.values()]
    unknown = journal.unknown(set(chains))
    return 2 * sum(chain in unknown for chain in chains) > len(chains)
