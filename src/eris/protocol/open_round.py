"""The round in flight as the coordinator knows it: what peers have said, and the verdict that follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain

from eris.aggregate.figures import SHARD
from eris.errors import Reason, Refused
from eris.protocol.false_manifest import Lie
from eris.protocol.messages import BriefReport, Manifest, Report, Wanted, Withheld, joint_digest
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import ShardVerdict, UnmaskedSum, Verdict

__all__ = ["OpenRound"]


@dataclass
class OpenRound:
    """A plan, and the manifests, notices and reports that came in under it."""

    plan: RoundPlan
    due: float  # when the verdict is written even if reports are missing
    away: frozenset[int] = frozenset()  # already absent when the round was planned: nobody was allowed to stand in
    manifests: dict[str, Manifest] = field(default_factory=dict)  # by digest
    withheld: dict[int, Withheld] = field(default_factory=dict)  # by shard
    reports: dict[int, Report] = field(default_factory=dict)
    unread: dict[int, BriefReport] = field(default_factory=dict)  # reports that cite manifests still to come
    disputed: set[int] = field(default_factory=set)  # shards whose two aggregators disagree
    _asked: dict[int, dict[int, bool]] = field(default_factory=dict)  # shard → who reported it early → whether we asked
    _known: dict[int, str] = field(default_factory=dict)  # shard → digest of its (first) aggregator's manifest
    _joint: dict[tuple[int, ...], tuple[str, dict[int, str]]] = field(default_factory=dict)  # what `_held` returned

    def owns(self, shard: int, peer: int) -> bool:
        """Whether a peer aggregates a shard in this round."""
        return 0 <= shard < self.plan.shards and peer in self.plan.aggregators_of(shard)

    def note(self, manifest: Manifest) -> None:
        """Keep an aggregator's manifest, and read the brief reports that were waiting for it."""
        self.manifests[manifest.digest] = manifest
        if manifest.aggregator == self.plan.assignment[manifest.shard]:
            self._known.setdefault(manifest.shard, manifest.digest)
        known = self._known.keys()
        readable = {shards for shards in {brief.shards for brief in self.unread.values()} if known >= set(shards)}
        for peer in [peer for peer, brief in self.unread.items() if brief.shards in readable] if readable else ():
            self.take_brief(peer, self.unread[peer])

    def take(self, report: Report) -> None:
        """Keep a peer's report of what it holds; its latest one counts."""
        self.reports[report.peer] = report
        self.unread.pop(report.peer, None)

    def take_brief(self, peer: int, brief: BriefReport) -> None:
        """Read a brief report if we have the same manifests as its peer; otherwise keep it until we do."""
        self.unread[peer] = brief
        joint, held = self._held(brief.shards)
        if joint == brief.joint:
            said = brief.complete, brief.state, brief.unreached, brief.unmasked
            self.take(Report(brief.plan, peer, held, *said))

    def _held(self, shards: tuple[int, ...]) -> tuple[str, dict[int, str]]:
        """Return the joint digest of these shards' manifests, and the one mapping that all who hold them share."""
        if shards not in self._joint:
            if not all(shard in self._known for shard in shards):
                return "", {}
            held = {shard: self._known[shard] for shard in shards}
            self._joint[shards] = joint_digest(held.values()), held
        return self._joint[shards]

    def wanted(self, peer: int) -> Wanted:
        """Return what we still need from a peer to know what it holds."""
        if (brief := self.unread.get(peer)) is not None:
            lacking = tuple([shard for shard in brief.shards if shard not in self._known])
            # We have every manifest and the digests still differ: somebody signed two.
            return Wanted(tuple([shard for shard in lacking if self._asks(shard, peer)]), full=not lacking)
        report = self.reports.get(peer)
        held = report.held if report is not None else {}
        return Wanted(tuple([shard for shard, digest in held.items() if digest not in self.manifests]))

    def _asks(self, shard: int, peer: int) -> bool:
        """Whether to ask a peer for a manifest: not all who report early, as its aggregator is about to bring it."""
        early = self._asked.setdefault(shard, {})
        number = len(early) + 1
        return early.setdefault(peer, number & (number - 1) == 0)  # the first, second, fourth, eighth …

    def done(self, here: Collection[int]) -> bool:
        """Whether everyone here has everything, and we have every manifest that they cite."""
        if len(self.reports) < len(here):  # asked with every report
            return False
        if not all(peer in self.reports and self.reports[peer].complete for peer in here):
            return False
        wanted = set(chain.from_iterable(held.values() for held in self._distinct()))
        return wanted <= self.manifests.keys()

    def _distinct(self) -> Collection[dict[int, str]]:
        """Return the reported mappings, each object once."""
        return {id(report.held): report.held for report in self.reports.values()}.values()

    @property
    def said(self) -> set[int]:
        """Peers that have reported, whether or not we could read the report yet."""
        return self.reports.keys() | self.unread.keys()

    def require_participants(self, contributors: tuple[int, ...], aggregator: int) -> None:
        """Refuse an aggregator's list of contributors if it names anybody who is not a participant of this round."""
        if list(contributors) != sorted(set(contributors) & self.plan.participant_set):
            raise Refused(
                Reason.MALFORMED, "contributors are not ascending participants", peer=aggregator, round=self.plan.round
            )

    def unreached(self) -> set[int]:
        """Return the aggregators that more than half of the participants say they could not reach.

        Only members are asked, each for itself: what an aggregator says of itself or of another does not count.
        """
        said: dict[int, Report | BriefReport] = {**self.reports, **self.unread}
        asked = [said[member] for member in self.plan.participants if member in said]
        lacking = Counter(peer for report in asked for peer in set(report.unreached))
        return {peer for peer in self.plan.aggregators if 2 * lacking[peer] > len(self.plan.participants)}

    def verdict(self, *, quorum: int, excluded: Mapping[int, Lie], max_share: float) -> Verdict:
        """Return the verdict if the round ended now.

        Args:
            quorum: how many peers must hold a shard for it to be committed.
            excluded: proven liars, whose shards are lost.
            max_share: largest share of an update that standing in may bring one peer to; quoted if nobody stood in.
        """
        plan, held = self.plan, self._most_held()
        shards = tuple(
            self._shard(shard, held.get(shard, ("", 0)), quorum, excluded, max_share) for shard in range(plan.shards)
        )
        late = tuple(entry.peer for entry in plan.roster if entry.peer not in self.said)
        said_of = plan.run, plan.epoch, plan.round, plan.digest, plan.chain
        told = self._agreed_state(), self._figures(shards), self._unmasked(shards)
        return Verdict(*said_of, shards, late, *told)

    def _figures(self, shards: tuple[ShardVerdict, ...]) -> tuple[int, ...]:
        """Return the members' figures, from the manifest of the shard that carries them."""
        return self.manifests[shards[SHARD].manifest].figures if shards[SHARD].committed else ()

    def _unmasked(self, shards: tuple[ShardVerdict, ...]) -> tuple[UnmaskedSum, ...]:
        """Return what the unmaskers of lost shards say they gave out, which an aggregator may know and keep to itself.

        Only sets that an honest unmasker answers for are included, so that a lie costs no more than a shard.
        """
        lost = {entry.shard for entry in shards if not entry.committed}
        reports: dict[int, Report | BriefReport] = {**self.reports, **self.unread}
        said = {
            (told.shard, told.contributors)
            for peer, report in reports.items()
            for told in report.unmasked
            if told.shard in lost and peer in self.plan.unmaskers_of(told.shard) and self._is_large(told.contributors)
        }
        return tuple(UnmaskedSum(shard, members) for shard, members in sorted(said))

    def _unmasked_otherwise(self, manifest: Manifest) -> bool:
        """Whether an unmasker of the shard says that it gave out the pads of other members than the manifest lists.

        One of the two lies, and this does not show which: the shard is lost, and goes to another pair.
        """
        unmaskers = self.plan.unmaskers_of(manifest.shard)
        said = (self.unread.get(peer) or self.reports.get(peer) for peer in unmaskers)
        told = (each for report in said if report for each in report.unmasked if each.shard == manifest.shard)
        return any(each.contributors != manifest.contributors for each in told)

    def _is_large(self, members: tuple[int, ...]) -> bool:
        return len(members) >= self.plan.least_contributors and set(members) <= set(self.plan.participants)

    def _most_held(self) -> dict[int, tuple[str, int]]:
        """Return for each shard the manifest that most peers hold, and how many hold it."""
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
        self, shard: int, held: tuple[str, int], quorum: int, excluded: Mapping[int, Lie], max_share: float
    ) -> ShardVerdict:
        home, owners, (digest, count) = self.plan.assignment[shard], self.plan.aggregators_of(shard), held
        silent = "published, but no member holds it" if shard in self._known else "not published"
        lost = f"held by {count} of {quorum} needed" if count else silent
        if liars := [peer for peer in owners if peer in excluded]:
            lost = excluded[liars[0]].reason.value
        elif shard in self.disputed:
            lost = Reason.REPLICAS_DIFFER.value
        elif digest in self.manifests and self._unmasked_otherwise(self.manifests[digest]):
            lost = Reason.UNMASK.value
        elif count >= quorum and digest in self.manifests:
            manifest = self.manifests[digest]
            return ShardVerdict(shard, home, manifest.hash, manifest.contributors, manifest=digest)
        elif shard in self.withheld:
            lost = self.withheld[shard].reason.value
        elif self.away & set(owners):
            lost = f"its aggregator is away, and nobody else may see more than {max_share:.0%} of an update"
        return ShardVerdict(shard, home, lost=lost)

    def _agreed_state(self) -> str:
        """Return the replica digest that more than half of the members reported, if they were asked for it.

        The first few to report must not speak for all: a peer that differs from this digest ends.
        """
        said = [*(report.state for report in self.reports.values()), *(brief.state for brief in self.unread.values())]
        digests = Counter(filter(None, said))
        digest, count = digests.most_common(1)[0] if digests else ("", 0)
        return digest if 2 * count > len(self.plan.roster) else ""
