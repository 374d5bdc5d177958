"""The round in flight, as the coordinator knows it: what was said in it, and what that comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain

from eris.errors import Reason
from eris.protocol.messages import Manifest, Report, Withheld
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import ShardVerdict, Verdict

__all__ = ["OpenRound"]


@dataclass
class OpenRound:
    """A plan, and the manifests, notices and reports that came in under it."""

    plan: RoundPlan
    due: float
    away: frozenset[int] = frozenset()  # who was absent already when it was planned: nobody might stand in
    manifests: dict[str, Manifest] = field(default_factory=dict)  # by digest
    withheld: dict[int, Withheld] = field(default_factory=dict)
    reports: dict[int, Report] = field(default_factory=dict)
    disputed: set[int] = field(default_factory=set)  # shards whose two aggregators do not say the same

    def owns(self, shard: int, peer: int) -> bool:
        """Whether a peer aggregates a shard in this round."""
        return 0 <= shard < self.plan.shards and peer in self.plan.aggregators_of(shard)

    def done(self, here: Collection[int]) -> bool:
        """Whether all who are here have everything, and we have every manifest that they speak of."""
        wanted = set(chain.from_iterable(held.values() for held in self._distinct()))
        complete = all(peer in self.reports and self.reports[peer].complete for peer in here)
        return complete and wanted <= self.manifests.keys()

    def _distinct(self) -> Collection[dict[int, str]]:
        """Return what was reported, each object once."""
        return {id(report.held): report.held for report in self.reports.values()}.values()

    def heard(self) -> dict[int, int]:
        """Return how many members got through to each aggregator that said so."""
        heard = {m.aggregator: len(m.contributors) for m in self.manifests.values()}
        return heard | {w.aggregator: len(w.contributors) for w in self.withheld.values() if w.reason is Reason.TOO_FEW}

    def verdict(self, *, quorum: int, excluded: Collection[int], max_share: float) -> Verdict:
        """Return how the round ends if it ends now."""
        plan, held = self.plan, self._most_held()
        shards = tuple(
            self._shard(shard, held.get(shard, ("", 0)), quorum, excluded, max_share) for shard in range(plan.shards)
        )
        late = tuple(entry.peer for entry in plan.roster if entry.peer not in self.reports)
        return Verdict(plan.run, plan.epoch, plan.round, plan.digest, plan.chain, shards, late, self._agreed_state())

    def _most_held(self) -> dict[int, tuple[str, int]]:
        """Return, for each shard, the manifest that most peers hold, and how many."""
        most: dict[int, tuple[str, int]] = {}
        alike = Counter(id(report.held) for report in self.reports.values())  # simulated peers all report one object
        every: Counter[tuple[int, str]] = Counter()
        for held in self._distinct():
            for item in held.items():
                every[item] += alike[id(held)]
        for (shard, digest), count in every.items():
            if count > most.get(shard, ("", 0))[1]:
                most[shard] = digest, count
        return most

    def _shard(
        self, shard: int, held: tuple[str, int], quorum: int, excluded: Collection[int], max_share: float
    ) -> ShardVerdict:
        home, owners, (digest, count) = self.plan.assignment[shard], self.plan.aggregators_of(shard), held
        lost = f"held by {count} of {quorum} needed" if count else "not published"
        if any(peer in excluded for peer in owners):
            lost = Reason.EQUIVOCATION.value
        elif shard in self.disputed:
            lost = Reason.REPLICAS_DIFFER.value
        elif count >= quorum and digest in self.manifests:
            manifest = self.manifests[digest]
            return ShardVerdict(shard, home, manifest.hash, manifest.contributors)
        elif shard in self.withheld:
            lost = self.withheld[shard].reason.value
        elif self.away & set(owners):
            lost = f"its aggregator is away, and nobody else may see more than {max_share:.0%} of an update"
        return ShardVerdict(shard, home, lost=lost)

    def _agreed_state(self) -> str:
        """Return the replica digest that more than half of the members reported, if they were asked for it.

        A few that come first must not speak for all: who differs from this ends.
        """
        digests = Counter(report.state for report in self.reports.values() if report.state)
        digest, count = digests.most_common(1)[0] if digests else ("", 0)
        return digest if 2 * count > len(self.plan.roster) else ""
