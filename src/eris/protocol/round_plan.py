"""What a round will be: who takes part with which weight, who aggregates what, under which seed and deadlines.

The plan has a digest; every data message carries it. A message made for another plan is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from eris.errors import InputError
from eris.protocol.canonical import canonical_bytes, digest_of, plain

__all__ = ["Deadlines", "Normalisation", "RosterEntry", "RoundPlan", "roster_weights"]

# How the mean treats members that are missing from a shard: c = 1/W_P, c = 1/q, or c = 1 (methods: B.4 and H).
Normalisation = Literal["contributors", "participation", "none"]


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One member of the federation as all others know it."""

    peer: int
    name: str
    weight: float  # samples, or 1 for a plain mean; fixed within a reference epoch
    fingerprint: str = ""
    organisation: str = ""
    can_aggregate: bool = True

    def __post_init__(self) -> None:
        if not (isinstance(self.weight, int | float) and math.isfinite(self.weight) and 0 < self.weight <= 2.0**53):
            raise InputError(
                f"weight is {self.weight}", fix="use a finite weight in (0, 2⁵³]; leave out members without samples",
                peer=self.name,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Durations in seconds from the start of the round."""

    contribute: float = 60.0  # an aggregator cuts its shard
    report: float = 90.0  # the coordinator writes the verdict


@dataclass(frozen=True)
class RoundPlan:
    """One round, as every peer must see it."""

    run: str
    epoch: int  # rises at every start of the coordinator
    round: int
    chain: str  # digest of the last verdict: whoever lags behind notices
    spec: str  # digest of the model spec
    roster: tuple[RosterEntry, ...]  # ascending peer id
    participants: tuple[int, ...]  # who trains in this round, ascending
    assignment: tuple[int, ...]  # shard → aggregating peer
    witnesses: tuple[int, ...] = ()  # shard → second aggregator, whose mean is compared; empty without replicas
    draw: int = 0  # which draw of the shard plan is in force (0: the first, for the whole run)
    reference_epoch: int = 0
    reference_begins: int = 0  # the round that opened this epoch: in it, and only in it, all members set s_k := s
    normalisation: Normalisation = "contributors"
    participation: float = 1.0  # q, for normalisation = "participation"
    min_contributors: int = 3
    checkpoint: bool = False
    attest: bool = (
        False  # somebody came back: all say what they hold, as at checkpoints, so that it knows it has the same
    )
    deadlines: Deadlines = Deadlines()

    def __post_init__(self) -> None:
        peers = [entry.peer for entry in self.roster]
        if peers != sorted(set(peers)):
            raise InputError("the roster is not in ascending order of peer ids without repeats", round=self.round)
        if list(self.participants) != sorted(set(self.participants) & set(peers)):
            raise InputError("participants are not an ascending part of the roster", round=self.round)
        if not self.assignment or not set(self.assignment) <= set(peers):
            raise InputError("a shard is assigned to nobody on the roster", round=self.round)
        if self.witnesses:
            alone = any(first == second for first, second in zip(self.assignment, self.witnesses, strict=False))
            if len(self.witnesses) != self.shards or alone or not set(self.witnesses) <= set(peers):
                raise InputError("a shard is not given to two peers on the roster", round=self.round)

    @cached_property
    def spelled(self) -> bytes:
        """All of it, as one line of JSON."""
        return canonical_bytes(self)

    @cached_property
    def digest(self) -> str:
        """Digest of everything above."""
        return digest_of(self.spelled)

    @property
    def when(self) -> tuple[int, int]:
        """Epoch and round, which rise from plan to plan: a run that goes back does so in a new epoch."""
        return self.epoch, self.round

    @property
    def shards(self) -> int:
        """Number of shards A."""
        return len(self.assignment)

    @cached_property
    def weights(self) -> dict[int, np.float32]:
        """w_k of every member on the roster, participant or not; they sum to one up to rounding."""
        weights = roster_weights([entry.weight for entry in self.roster])
        return {entry.peer: weight for entry, weight in zip(self.roster, weights, strict=True)}

    @cached_property
    def _scales(self) -> dict[tuple[int, ...], np.float32]:
        return {}

    def shards_of(self, peer: int) -> tuple[int, ...]:
        """Return the shards a peer aggregates in this round, first or second."""
        return tuple(shard for shard in range(self.shards) if peer in self.aggregators_of(shard))

    def aggregators_of(self, shard: int) -> tuple[int, ...]:
        """Return who aggregates a shard: one peer, or two whose means are compared."""
        return (self.assignment[shard], *self.witnesses[shard : shard + 1])

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
        if contributors not in self._scales:  # most shards have the same ones
            total = math.fsum(float(self.weights[peer]) for peer in contributors)
            self._scales[contributors] = np.float32(1.0 / total) if total > 0 else np.float32(1.0)
        return self._scales[contributors]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return cast(dict[str, Any], plain(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RoundPlan:
        """Rebuild a plan from `to_dict`."""
        fields = dict(data)
        fields["roster"] = tuple(RosterEntry(**entry) for entry in fields["roster"])
        fields["participants"] = tuple(fields["participants"])
        fields["assignment"] = tuple(fields["assignment"])
        fields["witnesses"] = tuple(fields.get("witnesses", ()))
        fields["deadlines"] = Deadlines(**fields["deadlines"])
        return cls(**fields)


def roster_weights(weights: list[float]) -> NDArray[np.float32]:
    """Normalise weights over the whole roster, each rounded once to float32.

    >>> roster_weights([1, 1, 2]).tolist()
    [0.25, 0.25, 0.5]
    """
    total = math.fsum(weights)
    return np.array([weight / total for weight in weights], dtype=np.float32)
