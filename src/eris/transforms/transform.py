"""A transform has two halves in one place: what a member does before an update leaves, what every peer does after.

    member:      update ──outgoing──▶ … ──outgoing──▶ packed parts
    every peer:  direction ◀──incoming── … ◀──incoming── published mean

State comes in two kinds and is passed, never hidden. **Private** state belongs to one member (its reference s_k, what
it withheld). **Public** state is the same at every peer, because it follows from what was published (the reference s).
Nothing moves before the round's verdict: `settle` advances private state, `incoming` public state.

>>> from eris.transforms import chain, clip_by_norm, rand_k, shift
>>> chain(clip_by_norm(1.0), shift(rand_k(0.5))).describe()
'clip_by_norm(1.0) → shift(rand_k(0.5), gamma=paper)'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eris.errors import ConfigError
from eris.local.spec import Vector
from eris.seeds import Seed
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms.kept import Blocks
from eris.transforms.packed import Packed

if TYPE_CHECKING:
    from eris.transforms.compress import Compressor

__all__ = ["Accepted", "Chain", "Mean", "SendContext", "State", "Transform", "chain"]

State = dict[str, Vector]
ONE = np.float32(1.0)
_RELEASED: Vector = np.empty(0, np.float32)  # stands for a stage nobody looks at any more


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
        # One byte a coordinate: a table of owners would be eight times as long.
        chosen = np.ones(self.plan.n, np.bool_)
        for shard in self.missing:
            self.plan.scatter(np.zeros(int(self.plan.sizes[shard]), np.bool_), shard, chosen)
        return chosen


@dataclass(frozen=True, slots=True)
class Mean:
    """What all committed shards of a round say together, before it is corrected: v̄ with the scalar c of each shard."""

    values: Vector  # v̄ on all trainable coordinates; zero where nothing was sent or the shard was lost
    c: np.float32 | Vector = ONE
    steps: np.float32 | Vector = ONE  # weighted mean of the members' local steps (FedNova)
    support: Coordinates | None = None  # where v̄ can be non-zero, if that is few
    lost: tuple[int, ...] = ()  # shards whose coordinates stay frozen
    round: int = 0
    whole: int | None = None  # length of the whole vector, where these values are only a stretch of it


class Transform:
    """A neutral transform: subclasses override the halves they need.

    States are dictionaries of vectors that are changed in place, never replaced: whoever stores them (in memory, in a
    mapped file) keeps the same arrays.
    """

    needs_linear_rule: bool = False  # a median of what it sends would mean nothing
    adds_noise: bool = False
    packs: bool = False  # ends the chain: returns a Packed, and has a `compressor`
    packs_blocks: bool = False  # may be given the update in blocks, by `outgoing_blocks`
    remembers_update: bool = False  # `settle` looks at the update that went in, so it is kept until the verdict

    def check(self, before: Sequence[Transform]) -> None:
        """Refuse a chain in which this transform cannot stand behind those `before` it."""

    def check_length(self, n: int) -> None:
        """Refuse settings that cannot work for vectors of n values."""

    def norm_bound(self, before: float | None) -> float | None:
        """Return the largest ℓ2 norm of what comes out if that of what goes in is `before` (None: unbounded)."""
        del before
        return None

    def private_state(self, n: int) -> State:
        """Return a member's initial private state."""
        del n
        return {}

    def public_state(self, n: int) -> State:
        """Return the initial state that all peers share."""
        del n
        return {}

    def start(self, model: Vector, private: State) -> None:
        """Change, in place, the model this member trains from; its update is then measured from the changed one."""

    def outgoing(self, update: Vector, private: State, public: State, context: SendContext) -> Vector | Packed:
        """Return what the member sends instead of `update`. Must not change update or states."""
        del private, public, context
        return update

    def outgoing_blocks(self, blocks: Blocks, n: int, private: State, public: State, context: SendContext) -> Packed:
        """Do as `outgoing` with an update of n values that comes in blocks; for transforms that say `packs_blocks`."""
        raise NotImplementedError

    def settle(self, update: Vector, sent: Vector | Packed, private: State, accepted: Accepted) -> None:
        """Advance the member's state after the verdict; `update` went in, `sent` came out of `outgoing`.

        Vectors are empty here unless the transform says `remembers_update` (a `Packed` is always there): members wait
        for verdicts with as little in their hands as possible.
        """

    def incoming(self, direction: Vector, public: State, mean: Mean) -> None:
        """Correct the direction in place, then advance the public state. Lost shards are zero in mean.values.

        Coordinate by coordinate: the vectors may be one stretch of the whole, as long as each other.
        """

    def new_epoch(self, private: State, public: State) -> None:
        """Begin a reference epoch: forget what only held for the old members and weights."""


@dataclass(frozen=True)
class Chain:
    """Transforms in the order of the way out; the last one packs."""

    transforms: tuple[Transform, ...]

    def __post_init__(self) -> None:
        *others, last = self.transforms or (Transform(),)
        for transform in others:
            if transform.packs:
                raise ConfigError(
                    f"{transform!r} must be the last of a chain", fix="move it to the end; one packs, no more"
                )
        if not last.packs:
            raise ConfigError("the last of a chain does not pack", fix="build it with chain(...)")
        for number, transform in enumerate(self.transforms):
            transform.check(self.transforms[:number])

    def check_length(self, n: int) -> None:
        """Refuse settings that cannot work for vectors of n values; for whoever knows the model."""
        for transform in self.transforms:
            transform.check_length(n)

    def describe(self) -> str:
        """Return the chain in one line."""
        return " → ".join(repr(transform) for transform in self.transforms)

    @property
    def needs_linear_rule(self) -> bool:
        """Whether aggregation must be a (weighted) mean."""
        return any(t.needs_linear_rule for t in self.transforms)

    @property
    def adds_noise(self) -> bool:
        """Whether a privacy claim rests on this chain (so buffers must not slip past it)."""
        return any(t.adds_noise for t in self.transforms)

    @property
    def compressor(self) -> Compressor:
        """The compressor that packs: what a receiver needs to unpack."""
        compressor: Compressor = self.transforms[-1].compressor  # type: ignore[attr-defined]
        return compressor

    def private_state(self, n: int) -> State:
        """Return a member's initial private state."""
        return self._merged([t.private_state(n) for t in self.transforms])

    def public_state(self, n: int) -> State:
        """Return the initial state that all peers share."""
        return self._merged([t.public_state(n) for t in self.transforms])

    def start(self, model: Vector, private: State) -> None:
        """Change, in place, the model this member begins its local training with."""
        for number, transform in enumerate(self.transforms):
            transform.start(model, self._of(number, private))

    def outgoing(self, update: Vector, private: State, public: State, context: SendContext) -> Outgoing:
        """Run the way out; keep the stages that `settle` will need."""
        stages: list[Vector | Packed] = []
        value: Vector | Packed = update
        needed = False
        for number, transform in enumerate(self.transforms):
            assert isinstance(value, np.ndarray)
            stages.append(value if needed or transform.remembers_update else _RELEASED)
            needed = transform.remembers_update
            value = transform.outgoing(value, self._of(number, private), self._of(number, public), context)
        assert isinstance(value, Packed)
        return Outgoing((*stages, value), value)

    @property
    def packs_blocks(self) -> bool:
        """Whether an update may come in blocks: nothing stands before a transform that can take it so."""
        return len(self.transforms) == 1 and self.transforms[0].packs_blocks

    @property
    def changes_start(self) -> bool:
        """Whether a member begins its local training elsewhere than at the common model."""
        return any(type(transform).start is not Transform.start for transform in self.transforms)

    def outgoing_blocks(self, blocks: Blocks, n: int, private: State, public: State, context: SendContext) -> Outgoing:
        """Run the way out for an update of n values that comes in blocks, where that is possible."""
        packed = self.transforms[0].outgoing_blocks(blocks, n, self._of(0, private), self._of(0, public), context)
        return Outgoing((_RELEASED, packed), packed)

    def settle(self, outgoing: Outgoing, private: State, accepted: Accepted) -> None:
        """Advance a member's private state, on the verdict only."""
        for number, transform in enumerate(self.transforms):
            value, sent = outgoing.stages[number], outgoing.stages[number + 1]
            assert isinstance(value, np.ndarray)
            transform.settle(value, sent, self._of(number, private), accepted)

    def incoming(self, mean: Mean, public: State, *, out: Vector | None = None) -> Vector:
        """Return the direction u; the way back runs through the chain in reverse."""
        direction = np.multiply(mean.values, mean.c, out=out)
        for number, transform in reversed(list(enumerate(self.transforms))):
            transform.incoming(direction, self._of(number, public), mean)
        return direction

    def new_epoch(self, private: State, public: State) -> None:
        """Begin a reference epoch for one member."""
        for number, transform in enumerate(self.transforms):
            transform.new_epoch(self._of(number, private), self._of(number, public))

    @staticmethod
    def _merged(states: Sequence[State]) -> State:
        return {f"{number}.{name}": value for number, state in enumerate(states) for name, value in state.items()}

    @staticmethod
    def _of(number: int, state: State) -> State:
        prefix = f"{number}."
        return {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An update on its way out: what each transform was given (empty if it does not remember), then the packed end."""

    stages: tuple[Vector | Packed, ...] = field(repr=False)
    packed: Packed


def chain(*transforms: Transform | Compressor) -> Chain:
    """Compose transforms; the last may pack (a compressor, or `shift` around one), otherwise values go as they are."""
    from eris.transforms.compress import Compress
    from eris.transforms.exact import identity

    steps = [step if isinstance(step, Transform) else Compress(step) for step in transforms]
    if not steps or not steps[-1].packs:
        steps.append(Compress(identity()))
    return Chain(tuple(steps))
