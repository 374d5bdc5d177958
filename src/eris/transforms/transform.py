"""The transform: one class with two halves, what a member does to an update and what every peer does to the mean.

    member:      update ──outgoing──▶ … ──outgoing──▶ packed parts
    every peer:  direction ◀──incoming── … ◀──incoming── published mean

Most transforms need nothing else. The capabilities that a few have besides are in `eris.transforms.capabilities`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eris.local.spec import Vector
from eris.seeds import Seed
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms.packed import Packed

__all__ = ["Accepted", "MeanStretch", "Outgoing", "SendContext", "State", "Transform"]

State = dict[str, Vector]
ONE = np.float32(1.0)


@dataclass(frozen=True, slots=True)
class SendContext:
    """What a member knows when it prepares an update."""

    round: int
    member: int
    plan: ShardPlan  # over the trainable coordinates
    public: Seed  # of this round: shared masks
    private: Seed  # of this member and round: noise, rounding, secret masks
    tensor_sizes: tuple[int, ...] = ()
    steps: float = 1.0  # local steps τ_k (FedNova)
    private_state: State = field(default_factory=dict, repr=False, compare=False)  # the transform's own, to read only
    public_state: State = field(default_factory=dict, repr=False, compare=False)

    def with_states(self, private: State, public: State) -> SendContext:
        """Return the same context with a transform's states (spelled out: `replace` is slower than many transforms)."""
        fixed = (self.round, self.member, self.plan, self.public, self.private, self.tensor_sizes, self.steps)
        return SendContext(*fixed, private, public)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An update on its way out: the input of each transform (empty if nothing settles it), then the packed result."""

    stages: tuple[Vector | Packed, ...] = field(repr=False)
    packed: Packed


@dataclass(frozen=True, slots=True)
class Accepted:
    """Which shards of a member's update the verdict committed with this member among the contributors."""

    plan: ShardPlan
    missing: tuple[int, ...] = ()  # shards that were lost, or came without this member
    round: int = 0

    def selects(self, support: Coordinates | None) -> NDArray[np.bool_] | None:
        """Return which supported coordinates were accepted; None means all."""
        if not self.missing:
            return None
        if support is not None:
            accepted = np.ones(self.plan.shards, np.bool_)
            accepted[list(self.missing)] = False
            return accepted[self.plan.owners_of(support)]
        # One byte per coordinate: a table of owners would be eight times as long.
        chosen = np.ones(self.plan.n, np.bool_)
        for shard in self.missing:
            self.plan.scatter(np.zeros(int(self.plan.sizes[shard]), np.bool_), shard, chosen)
        return chosen


@dataclass(frozen=True, slots=True)
class MeanStretch:
    """The mean v̄ of a round's committed shards, and its scalars, on all coordinates or a stretch of them."""

    values: Vector  # v̄; zero where nothing was sent or the shard was lost
    c: np.float32 | Vector = ONE
    steps: np.float32 | Vector = ONE  # weighted mean of the members' local steps (FedNova)
    support: Coordinates | None = None  # where v̄ can be non-zero, if that is few
    lost: tuple[int, ...] = ()  # shards whose coordinates stay frozen
    round: int = 0
    whole: int | None = None  # length of the whole vector, where these values are only a stretch of it
    public_state: State = field(default_factory=dict, repr=False, compare=False)  # the transform's own, to be advanced

    def with_state(self, public: State) -> MeanStretch:
        """Return the same with a transform's state."""
        return MeanStretch(self.values, self.c, self.steps, self.support, self.lost, self.round, self.whole, public)


class Transform:
    """A neutral transform: subclasses override the half they need, or both."""

    needs_linear_rule: bool = False  # a median of what it sends would mean nothing
    needs_steps: bool = False  # the mean of members' local steps is part of the way back
    only_sums: bool = False  # the way back needs nothing of single members: it goes with fixed point
    direction_per_value: float = 1.0  # how much longer a direction is than what was sent for it, at least

    def outgoing(self, update: Vector, context: SendContext) -> Vector | Packed:
        """Return what the member sends instead of `update`. Must change neither the update nor a state."""
        del context
        return update

    def incoming(self, direction: Vector, mean: MeanStretch) -> None:
        """Correct the direction in place, after later transforms of the chain have. Lost shards are zero in the mean.

        Work coordinate by coordinate: both vectors may be the same stretch of the whole.
        """
