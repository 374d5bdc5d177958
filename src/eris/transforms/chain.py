"""A chain of transforms: applied in order on the way out, in reverse on the way back.

>>> from eris.privacy import clip_by_norm
>>> from eris.transforms import chain, rand_k, shift
>>> chain(clip_by_norm(1.0), shift(rand_k(0.5))).describe()
'clip_by_norm(1.0) → shift(rand_k(0.5), gamma=paper)'
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eris.errors import ConfigError
from eris.local.spec import Vector
from eris.transforms.capabilities import (
    AddsNoise,
    BeginsEpochs,
    ChangesStart,
    ChecksChain,
    ChecksLength,
    Drifts,
    KeepsPrivateState,
    KeepsPublicState,
    Packs,
    PacksBlocks,
    Settles,
    SettlesUpdate,
)
from eris.transforms.compress import Compress, CompressesBlocks, Compressor
from eris.transforms.exact import identity
from eris.transforms.kept import Blocks
from eris.transforms.packed import Packed
from eris.transforms.transform import Accepted, MeanStretch, Outgoing, SendContext, State, Transform

__all__ = ["Chain", "chain"]

_RELEASED: Vector = np.empty(0, np.float32)  # stands for a stage that is no longer needed


@dataclass(frozen=True)
class Chain:
    """Transforms in the order of the way out; the last one packs.

    It has every capability, and passes each call on to the transforms that have it.
    """

    transforms: tuple[Transform, ...]

    def __post_init__(self) -> None:
        *others, last = self.transforms or (Transform(),)
        for transform in others:
            if isinstance(transform, Packs):
                raise ConfigError(
                    f"{transform!r} must be the last transform of a chain",
                    fix="move it to the end; only one transform can pack",
                )
        if not isinstance(last, Packs):
            raise ConfigError("the last transform of a chain does not pack", fix="build it with chain(...)")
        for number, transform in enumerate(self.transforms):
            if isinstance(transform, ChecksChain):
                transform.check(self.transforms[:number])

    def check_length(self, n: int) -> None:
        """Refuse settings that cannot work for vectors of n values."""
        for transform in self.transforms:
            if isinstance(transform, ChecksLength):
                transform.check_length(n)

    def describe(self) -> str:
        """Return the chain in one line."""
        return " → ".join(repr(transform) for transform in self.transforms)

    @property
    def needs_linear_rule(self) -> bool:
        """Whether aggregation must be a (weighted) mean."""
        return any(transform.needs_linear_rule for transform in self.transforms)

    @property
    def needs_steps(self) -> bool:
        """Whether the way back asks for the members' mean number of local steps."""
        return any(transform.needs_steps for transform in self.transforms)

    @property
    def direction_per_value(self) -> float:
        """The least factor by which directions are longer than the values sent for them."""
        return math.prod(transform.direction_per_value for transform in self.transforms)

    @property
    def adds_noise(self) -> bool:
        """Whether a privacy claim rests on this chain (so buffers must not bypass it)."""
        return any(isinstance(transform, AddsNoise) for transform in self.transforms)

    @property
    def compressor(self) -> Compressor:
        """The compressor that packs: what a receiver needs to unpack."""
        last = self.transforms[-1]
        assert isinstance(last, Packs)
        return last.compressor

    @property
    def packs_blocks(self) -> bool:
        """Whether an update may come in blocks: there is only one transform, and it takes them."""
        only = self.transforms[0]
        takes_blocks = isinstance(only, PacksBlocks) and isinstance(only.compressor, CompressesBlocks)
        return takes_blocks and len(self.transforms) == 1

    @property
    def changes_start(self) -> bool:
        """Whether a member starts its local training from another model than the common one."""
        return bool(self._starting)

    def private_state(self, n: int) -> State:
        """Return a member's initial private state."""
        return _merged({number: keeping.private_state(n) for number, keeping in self._keeping_private.items()})

    def public_state(self, n: int) -> State:
        """Return the initial state that all peers share."""
        return _merged({number: keeping.public_state(n) for number, keeping in self._keeping_public.items()})

    def start(self, model: Vector, private: State) -> None:
        """Change, in place, the model this member begins its local training with."""
        for number, starting in self._starting.items():
            starting.start(model, _of(number, private))

    def drift(self, private: State, public: State) -> Vector | None:
        """Return what to add to each of a member's local gradients, or None."""
        for number, drifting in self._drifting.items():
            return drifting.drift(_of(number, private), _of(number, public))
        return None

    def outgoing(self, update: Vector, private: State, public: State, context: SendContext) -> Outgoing:
        """Run the way out; keep the stages that `settle` will need.

        `private` is the member's state, `public` everybody's; `context` says who sends what in which round.
        """
        stages: list[Vector | Packed] = []
        value: Vector | Packed = update
        for number, transform in enumerate(self.transforms):
            assert isinstance(value, np.ndarray)
            stages.append(value if number in self._settled_stages else _RELEASED)
            value = transform.outgoing(value, self._with_states(number, private, public, context))
        assert isinstance(value, Packed)
        return Outgoing((*stages, value), value)

    def outgoing_blocks(self, blocks: Blocks, n: int, private: State, public: State, context: SendContext) -> Outgoing:
        """Run the way out for an update of n values that comes in blocks, where that is possible.

        The other arguments are those of `outgoing`.
        """
        only = self.transforms[0]
        assert isinstance(only, PacksBlocks)
        packed = only.outgoing_blocks(blocks, n, self._with_states(0, private, public, context))
        return Outgoing((_RELEASED, packed), packed)

    @property
    def settles(self) -> bool:
        """Whether a member's own state advances with what was accepted of its update."""
        return bool(self._settling or self._settling_updates)

    def settle(self, outgoing: Outgoing, private: State, accepted: Accepted) -> None:
        """Advance a member's private state, on the verdict only.

        `outgoing` is what `outgoing` returned; `accepted` says which coordinates the verdict committed with it.
        """
        for number, settling in self._settling.items():
            settling.settle(outgoing.stages[number + 1], _of(number, private), accepted)
        for number, remembering in self._settling_updates.items():
            update, sent = outgoing.stages[number : number + 2]
            assert isinstance(update, np.ndarray)
            remembering.settle_update(update, sent, _of(number, private), accepted)

    def incoming(self, mean: MeanStretch, public: State, *, out: Vector | None = None) -> Vector:
        """Return the direction u; the way back runs through the chain in reverse.

        `public` is everybody's state; `out` may be given to write the direction into.
        """
        direction = np.multiply(mean.values, mean.c, out=out)
        for number, transform in reversed(list(enumerate(self.transforms))):
            known = mean.with_state(_of(number, public)) if number in self._keeping_public else mean
            transform.incoming(direction, known)
        return direction

    def new_epoch(self, private: State, public: State) -> None:
        """Begin a reference epoch for one member."""
        for number, beginning in self._beginning_epochs.items():
            beginning.new_epoch(_of(number, private), _of(number, public))

    # Which transforms have which capability, looked up once: checking a protocol takes longer than many transforms do.

    @cached_property
    def _keeping_private(self) -> dict[int, KeepsPrivateState]:
        return {number: t for number, t in enumerate(self.transforms) if isinstance(t, KeepsPrivateState)}

    @cached_property
    def _keeping_public(self) -> dict[int, KeepsPublicState]:
        return {number: t for number, t in enumerate(self.transforms) if isinstance(t, KeepsPublicState)}

    @cached_property
    def _starting(self) -> dict[int, ChangesStart]:
        return {number: t for number, t in enumerate(self.transforms) if isinstance(t, ChangesStart)}

    @cached_property
    def _drifting(self) -> dict[int, Drifts]:
        found: dict[int, Drifts] = {number: t for number, t in enumerate(self.transforms) if isinstance(t, Drifts)}
        if len(found) > 1:
            raise ConfigError("two transforms of a chain correct local gradients", fix="use only one of them")
        return found

    @cached_property
    def _settling(self) -> dict[int, Settles]:
        return {number: t for number, t in enumerate(self.transforms) if isinstance(t, Settles)}

    @cached_property
    def _settling_updates(self) -> dict[int, SettlesUpdate]:
        return {number: t for number, t in enumerate(self.transforms) if isinstance(t, SettlesUpdate)}

    @cached_property
    def _beginning_epochs(self) -> dict[int, BeginsEpochs]:
        return {number: t for number, t in enumerate(self.transforms) if isinstance(t, BeginsEpochs)}

    @cached_property
    def _settled_stages(self) -> frozenset[int]:
        """Return the stages to keep until the verdict: outputs of transforms that settle, and inputs if needed."""
        came_out = {number + 1 for number in (*self._settling, *self._settling_updates)}
        return frozenset(came_out.union(self._settling_updates))

    def _with_states(self, number: int, private: State, public: State, context: SendContext) -> SendContext:
        if number not in self._keeping_private and number not in self._keeping_public:
            return context
        return context.with_states(_of(number, private), _of(number, public))


def _merged(states: dict[int, State]) -> State:
    return {f"{number}.{name}": value for number, state in states.items() for name, value in state.items()}


def _of(number: int, state: State) -> State:
    prefix = f"{number}."
    return {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}


def chain(*transforms: Transform | Compressor) -> Chain:
    """Compose transforms; the last may pack (a compressor, or `shift` around one), otherwise values go as they are."""
    steps: Sequence[Transform] = [step if isinstance(step, Transform) else Compress(step) for step in transforms]
    if not steps or not isinstance(steps[-1], Packs):
        steps = [*steps, Compress(identity())]
    return Chain(tuple(steps))
