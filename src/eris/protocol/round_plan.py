"""The plan of a round: who takes part with which weight, who aggregates what, under which seed and deadlines.

The plan has a digest, which every data message carries; a message made for another plan is refused. On the wire a plan
cites its roster by digest: its reader knows the roster already, or asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import msgspec
import numpy as np

from eris.errors import InputError
from eris.protocol.participation import drawn_count
from eris.protocol.roster import Cited, Roster, cited
from eris.wire.schema import MOST_PEERS, Digest, Number, Numbers, Peers, Real, Text, decode, digest_of, document, encode

__all__ = ["Deadlines", "Normalisation", "RoundPlan"]

# How the mean treats members missing from a shard: c = 1/W_P, c = 1/q, or c = 1 (methods: B.4 and H).
Normalisation = Literal["contributors", "participation", "none"]
MaskKeys = Annotated[tuple[Digest, ...], msgspec.Meta(max_length=MOST_PEERS)]  # 32 bytes each, as long as a digest


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Durations in seconds from the start of the round."""

    contribute: Real = 60.0  # when an aggregator cuts its shard
    report: Real = 90.0  # when the coordinator writes the verdict
    unmask: Real = 0.0  # when an aggregator gives up a shard still masked; 0: half-way between the two

    @property
    def unmasked(self) -> float:
        """When a masked shard must be unmasked."""
        return self.unmask or (self.contribute + self.report) / 2


@document(3)
@dataclass(frozen=True)
class RoundPlan:
    """One round, as every peer must see it."""

    run: Text
    epoch: Number  # rises when the coordinator starts again, and when the run goes back
    round: Number
    chain: Digest  # digest of the last verdict, so that a peer that lags behind notices
    spec: Digest  # digest of the model spec
    roster: Cited  # ascending peer id
    participants: Peers  # who trains in this round, ascending
    assignment: Numbers  # shard → aggregating peer
    witnesses: Numbers = ()  # shard → second aggregator, whose mean is compared; empty without replicas
    draw: Number = 0  # which draw of the shard plan is in force (0: the first, for the whole run)
    reference_epoch: Number = 0  # rises when members change, or one has lost its reference
    reference_begins: Number = 0  # the round that opened this epoch: in it, and only in it, all members set s_k := s
    normalisation: Normalisation = "contributors"
    participation: Real = 1.0  # q, for normalisation = "participation"
    min_contributors: Number = 3  # of a published shard
    checkpoint: bool = False  # all report the digest of their state
    attest: bool = False  # all report it because somebody came back, who compares it with its own
    deadlines: Deadlines = Deadlines()
    unmaskers: Numbers = ()  # of shard 0, then of shard 1, …, equally many each; empty: nothing is masked
    mask_keys: MaskKeys = ()  # X25519 keys in roster order, empty for a peer that has shown none

    def __post_init__(self) -> None:
        roster = Roster(self.roster)
        object.__setattr__(self, "roster", roster)
        peers = roster.peers
        if list(self.participants) != sorted(set(self.participants) & peers):
            raise InputError("participants must be on the roster, in ascending order", round=self.round)
        if not self.assignment or not peers.issuperset(self.assignment):
            raise InputError("a shard's aggregator is not on the roster", round=self.round)
        if self.witnesses:
            alone = any(first == second for first, second in zip(self.assignment, self.witnesses, strict=False))
            if len(self.witnesses) != self.shards or alone or not peers.issuperset(self.witnesses):
                raise InputError("a shard does not have two different aggregators on the roster", round=self.round)
        if self.unmaskers and (len(self.unmaskers) % self.shards or not peers.issuperset(self.unmaskers)):
            raise InputError("shards must all have the same number of unmaskers, on the roster", round=self.round)
        if len(self.mask_keys) not in (0, len(roster)):
            raise InputError("mask keys do not match the roster", round=self.round)

    @cached_property
    def encoded(self) -> bytes:
        """The whole plan as it travels."""
        return encode(self)

    @cached_property
    def digest(self) -> str:
        """Digest of everything above."""
        return digest_of(self.encoded)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, roster: Callable[[str], Roster]) -> RoundPlan:
        """Decode a plan that came from outside; `roster` returns the roster with a given digest, or raises."""
        plan: RoundPlan = decode(cls, data, roster=cited(roster))
        return plan

    @property
    def when(self) -> tuple[int, int]:
        """Epoch and round, which rise from plan to plan: a run that goes back does so in a new epoch."""
        return self.epoch, self.round

    @property
    def shards(self) -> int:
        """Number of shards A."""
        return len(self.assignment)

    @property
    def least_contributors(self) -> int:
        """How many contributors a shard needs to be published; at least one in any case.

        A masked shard needs two thirds of the participants: an aggregator chooses whose sum is unmasked, and with
        friends among them a smaller set would leave too few values to hide each other.
        """
        return self.least_masked if self.unmaskers else max(self.min_contributors, 1)

    @property
    def least_masked(self) -> int:
        """The smallest number of members in a sum that an unmasker takes pads off."""
        return max(self.min_contributors, math.ceil(2 * len(self.participants) / 3))

    @property
    def least_apart(self) -> int:
        """The smallest number of members that combined sums from one state may show.

        A third of those drawn, as many as an aggregator can leave out: fewer could be its friends but for one. Who sits
        out after alarms counts: with nine of nine, then six, then another six, two ninths would be shown otherwise.
        """
        drawn = drawn_count(len(self.roster), self.participation)
        return max(self.min_contributors, max(drawn, len(self.participants)) // 3)

    @cached_property
    def weights(self) -> dict[int, np.float32]:
        """w_k of every member on the roster, participant or not; they sum to one up to rounding."""
        return Roster(self.roster).weights

    @cached_property
    def participant_set(self) -> frozenset[int]:
        """The participants, to be looked up."""
        return frozenset(self.participants)

    @cached_property
    def _scales(self) -> dict[tuple[int, ...], np.float32]:
        return {}

    @cached_property
    def worths(self) -> dict[tuple[int, ...], float]:
        """What `effective_contributors` found for sets of members under this plan."""
        return {}

    def shards_of(self, peer: int) -> tuple[int, ...]:
        """Return the shards a peer aggregates in this round, first or second."""
        return self._shards_by_peer.get(peer, ())

    @cached_property
    def _shards_by_peer(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        for shard in range(self.shards):
            for peer in self.aggregators_of(shard):
                found[peer] = (*found.get(peer, ()), shard)
        return found

    def aggregators_of(self, shard: int) -> tuple[int, ...]:
        """Return who aggregates a shard: one peer, or two whose means are compared."""
        return (self.assignment[shard], *self.witnesses[shard : shard + 1])

    def unmaskers_of(self, shard: int) -> tuple[int, ...]:
        """Return who takes the pads off a shard's sum; nobody where nothing is masked."""
        each = len(self.unmaskers) // self.shards
        return self.unmaskers[shard * each : (shard + 1) * each]

    @cached_property
    def coalitions(self) -> dict[frozenset[int], tuple[int, ...]]:
        """The smallest sets of peers that see single members' values, each with the shards it sees."""
        seen: dict[frozenset[int], tuple[int, ...]] = {}
        for shard in range(self.shards):
            for owner in self.aggregators_of(shard):
                group = frozenset((owner, *self.unmaskers_of(shard)))
                seen[group] = (*seen.get(group, ()), shard)
        return seen

    @cached_property
    def keys(self) -> dict[int, bytes]:
        """The mask keys of all peers that have shown one."""
        pairs = zip(self.roster, self.mask_keys, strict=False)
        return {entry.peer: bytes.fromhex(key) for entry, key in pairs if key}

    @cached_property
    def aggregators(self) -> frozenset[int]:
        """All peers that aggregate in this round."""
        return frozenset(self.assignment) | frozenset(self.witnesses)

    def scale(self, contributors: tuple[int, ...]) -> np.float32:
        """Return the scalar c of a shard with these contributors."""
        if self.normalisation == "none":
            return np.float32(1.0)
        if self.normalisation == "participation":
            return np.float32(1.0 / self.participation)
        if (known := self._scales.get(contributors)) is not None:  # most shards have the same contributors
            return known
        total = math.fsum(float(self.weights[peer]) for peer in contributors)
        return self._scales.setdefault(contributors, np.float32(1.0 / total) if total > 0 else np.float32(1.0))
