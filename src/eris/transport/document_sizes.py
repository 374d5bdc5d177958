"""Sizes of all documents of a run before it begins, by encoding real ones for as many peers and shards.

>>> sizes = document_sizes(1000, 50)
>>> sizes.plan < 1_000 < sizes.verdict < 6_000
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from eris.aggregate.figures import MOST_FIGURES
from eris.errors import ConfigError, InputError, Reason
from eris.protocol.messages import BriefReport, FullReport, Manifest, Wanted
from eris.protocol.roster import LONGEST_NAME, Roster, RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import PlanName, Seal
from eris.protocol.verdict import GENESIS, ShardVerdict, UnmaskedSum, Verdict
from eris.transport.board import KEPT_BULLETINS
from eris.transport.bulletins import PlanBulletin, VerdictBulletin
from eris.transport.calls import (
    MOST_RELAYS,
    BookAnswer,
    ControlTraffic,
    NewsAnswer,
    NewsRequest,
    Overview,
    PeerRecord,
    PeerStatus,
    Posted,
)
from eris.wire.schema import LONGEST_DOCUMENT, encode

__all__ = ["DocumentSizes", "document_sizes", "require_document_sizes"]

_FIGURES = (2**62,) * (2 * MOST_FIGURES)
_DIGEST = "ff" * 32
_SIGNATURE = "ff" * 72  # the longest of the curve we use
_CERTIFICATE = 700  # bytes; ours have about 600
_BOARD = "ff" * 8
_LARGE = 2**32 - 1  # epochs, rounds and draws late in a run


@dataclass(frozen=True, slots=True)
class DocumentSizes:
    """Sizes in bytes, with names and organisations as long, and numbers as large, as they may be."""

    members: int
    shards: int
    roster: int  # sent once, then as differences
    record: int  # of one peer in the address book
    plan: int  # of a round
    verdict: int  # if all contribute to every shard
    longest_verdict: int  # if no two shards have the same contributors
    manifest: int  # if all contribute
    report: int  # a brief one
    full_report: int  # requested only if somebody signed two manifests
    overview: int  # for `eris status`
    coordinator_sends: int  # in a round in which all contribute
    coordinator_sends_at_most: int  # in one in which no two shards have the same contributors
    coordinator_hears: int  # in a round
    peer_sends: int  # to the coordinator, as a member with one shard
    peer_hears: int  # from the coordinator, in a round in which all contribute
    kept: int  # by the coordinator, in memory: two rosters and the newest bulletins

    @property
    def documents(self) -> dict[str, int]:
        """The documents that grow with the federation, by name."""
        return {
            "roster": self.roster,
            "round plan": self.plan,
            "verdict": self.longest_verdict,
            "full report": self.full_report,
            "overview": self.overview,
        }


def require_document_sizes(
    members: int, shards: int, *, names: Sequence[str] = (), replicas: int = 1, unmaskers: int = 0
) -> DocumentSizes:
    """Refuse a federation in which some document would be too long to send, before it begins.

    The arguments are those of `document_sizes`.
    """
    room = LONGEST_DOCUMENT - 4096  # for what a document travels in
    try:
        sizes = document_sizes(members, shards, names=tuple(names), replicas=replicas, unmaskers=unmaskers)
        too_long = [f"a {name} has {size} bytes" for name, size in sizes.documents.items() if size > room]
    except InputError as error:  # too long even to encode
        too_long = [error.what]
    if too_long:
        raise ConfigError(
            f"with {members:,} members and {shards:,} shards {' and '.join(too_long)}",
            fix=f"at most {room} are accepted: use fewer members or fewer shards",
        )
    return sizes


@lru_cache(maxsize=64)
def document_sizes(
    members: int, shards: int, *, names: tuple[str, ...] = (), replicas: int = 1, unmaskers: int = 0
) -> DocumentSizes:
    """Encode one of every document and return the lengths.

    Args:
        members: how many there are.
        shards: how many an update is divided into.
        names: the members'; empty: all as long as allowed.
        replicas: aggregators of each shard.
        unmaskers: unmaskers of each shard; a plan of masked shards carries everybody's mask key. 0: nothing is masked.
    """
    longest = "n" * LONGEST_NAME
    names = names or (longest,) * members
    everybody = tuple(range(members))
    roster = Roster(
        RosterEntry(peer, name, 2.0**53, _DIGEST, longest, True, _LARGE, _SIGNATURE) for peer, name in enumerate(names)
    )
    owners = tuple(members - 1 - shard % members for shard in range(shards))
    plan = RoundPlan(
        run=longest,
        epoch=_LARGE,
        round=_LARGE,
        chain=_DIGEST,
        spec=_DIGEST,
        roster=roster,
        participants=everybody,
        assignment=owners,
        witnesses=owners[1:] + owners[:1] if replicas > 1 else (),
        draw=_LARGE,
        reference_epoch=_LARGE,
        reference_begins=_LARGE,
        normalisation="participation",
        unmaskers=owners * unmaskers,
        mask_keys=(_DIGEST,) * members if unmaskers else (),
    )
    verdict = _verdict(plan, [everybody] * shards)
    others = [tuple(peer for peer in everybody if peer != shard % members) for shard in range(shards)]
    longest_verdict = _verdict(plan, others, late=everybody)
    if unmaskers:  # all shards lost, each known to as many sets as there are unmaskers
        longest_verdict = max(longest_verdict, _lost(plan, others * unmaskers), key=lambda said: len(said.encoded))
    told = tuple(UnmaskedSum(shard, everybody) for shard in range(-(-shards * unmaskers // members)))
    every_shard = tuple(range(shards))
    record = PeerRecord(
        members - 1, longest, ("h" * 253, 65535), bytes(_CERTIFICATE), (("h" * 253, 65535),) * MOST_RELAYS,
        counter=_LARGE, signature=_SIGNATURE,
    )  # fmt: skip
    named = _DIGEST, _LARGE, shards - 1, members - 1, everybody
    manifest = Manifest(*named, 1.0, 1.0, _DIGEST, signature=_SIGNATURE)
    report = len(encode(BriefReport(_DIGEST, every_shard, _DIGEST, True, _DIGEST, unmasked=told)))
    answer, question = len(encode(Wanted())), len(encode(NewsRequest(_BOARD, _LARGE, 5.0)))
    news, longest_news = (_news(plan, said) for said in (verdict, longest_verdict))
    published = shards * replicas
    return DocumentSizes(
        members=members,
        shards=shards,
        roster=len(roster.encoded),
        record=len(encode(BookAnswer(_BOARD, _LARGE, (record,), (), more=False))),
        plan=len(plan.encoded),
        verdict=len(verdict.encoded),
        longest_verdict=len(longest_verdict.encoded),
        manifest=len(manifest.encoded),
        report=report,
        full_report=len(encode(FullReport(_DIGEST, every_shard, (_DIGEST,) * shards, True, _DIGEST, unmasked=told))),
        overview=len(encode(_overview(roster))),
        coordinator_sends=members * (news + answer) + published * answer,
        coordinator_sends_at_most=members * (longest_news + answer) + published * answer,
        coordinator_hears=members * (question + report) + published * len(manifest.encoded),
        peer_sends=question + report + len(manifest.encoded),
        peer_hears=news + 2 * answer,
        kept=2 * len(roster.encoded) + KEPT_BULLETINS * max(len(plan.encoded), len(longest_verdict.encoded)),
    )


def _verdict(plan: RoundPlan, sets: list[tuple[int, ...]], late: tuple[int, ...] = ()) -> Verdict:
    shards = tuple(
        ShardVerdict(shard, owner, _DIGEST, sets[shard], manifest=_DIGEST)
        for shard, owner in enumerate(plan.assignment)
    )
    figures = _FIGURES if late else ()  # of the longest one
    return Verdict(
        run=plan.run,
        epoch=plan.epoch,
        round=plan.round,
        plan=plan.digest,
        previous=GENESIS,
        shards=shards,
        late=late,
        state=_DIGEST,
        figures=figures,
    )


def _lost(plan: RoundPlan, sets: list[tuple[int, ...]]) -> Verdict:
    shards = tuple(ShardVerdict(shard, owner, lost="n" * 64) for shard, owner in enumerate(plan.assignment))
    told = tuple(UnmaskedSum(number % plan.shards, members) for number, members in enumerate(sets))
    late = plan.participants
    return Verdict(plan.run, plan.epoch, plan.round, plan.digest, GENESIS, shards, late, _DIGEST, unmasked=told)


def _news(plan: RoundPlan, verdict: Verdict) -> int:
    """Return the bytes that everybody hears between two rounds: one's verdict and the next one's plan."""
    last = PlanName(_LARGE, _LARGE, _DIGEST)
    seals = [replace(Seal.of(document, last), signature=_SIGNATURE) for document in (verdict, plan)]
    bulletins = [
        VerdictBulletin(verdict, seals[0]),
        PlanBulletin(plan, _DIGEST, plan.participants, f"{_BOARD}-{_LARGE}", seals[1]),
    ]
    posted = tuple(Posted(_LARGE, encode(bulletin)) for bulletin in bulletins)
    return len(encode(NewsAnswer(_BOARD, posted, more=False)))


def _overview(roster: Roster) -> Overview:
    plain = [replace(entry, counter=0, signature="") for entry in roster]
    peers = tuple(PeerStatus(entry.name, True, True, entry.organisation, entry, 1, 1e9) for entry in plain)
    return Overview(
        federation="n" * LONGEST_NAME,
        digest=_DIGEST,
        version="0" * 16,
        time=0.0,
        control=ControlTraffic(2**40, 2**40, 2**40),
        run="n" * LONGEST_NAME,
        round=_LARGE,
        rounds=_LARGE,
        started=True,
        ended="",
        waiting="",
        lost={reason.value: 2**32 for reason in Reason},
        disagreements=(),
        peers=peers,
        ways=("w" * 40,) * 40,
    )
