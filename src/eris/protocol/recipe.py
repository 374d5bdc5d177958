"""What all peers of a run agree on beforehand: how an update is made, cut, combined and applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.choose import check_rule
from eris.aggregate.encoding import FLOATS, RINGS, FixedPoint, Ring32, Words, check_fixed_point, check_masking
from eris.aggregate.figures import SHARD, Figures
from eris.aggregate.rule import Rule
from eris.errors import ConfigError
from eris.local.spec import ModelSpec
from eris.privacy.ring_noise import KeptValues, RingNoise
from eris.protocol.round_plan import RoundPlan
from eris.seeds import Seed
from eris.shards.plan import Coordinates, ShardPlan
from eris.shards.policy import Layout, ShardPolicy
from eris.step.optimizer import ServerOptimizer
from eris.step.schedule import Schedule, at_round
from eris.transforms import Chain, Compress, Compressor, Shift
from eris.transforms.compress import OneMask
from eris.transforms.packed import Code

__all__ = ["Recipe"]

T = TypeVar("T")


def _kept(make: Callable[[Recipe, int], T]) -> Callable[[Recipe, int], T]:
    """Keep the last two answers, on the recipe itself: peers that share a process must not push each other's out."""
    name = f"_kept{make.__name__}"

    @wraps(make)
    def answer(recipe: Recipe, number: int) -> T:
        kept: dict[int, T] = recipe.__dict__.get(name, {})
        if number not in kept:  # replaced as a whole: other threads may be reading
            recipe.__dict__[name] = kept = {**dict([*kept.items()][-1:]), number: make(recipe, number)}
        return kept[number]

    return answer


@dataclass(frozen=True, eq=False)
class Recipe:
    """Transforms × shards × rule × server step: one method, for one model."""

    spec: ModelSpec
    policy: ShardPolicy  # how the vector is cut, and who gets which shard
    chain: Chain  # what is done to an update before it leaves
    rule: Rule  # how contributions are combined
    optimizer: ServerOptimizer  # how the model moves
    public: Seed  # the root that everybody knows
    schedule: Schedule | None = None  # λ_t/λ of the server's step
    encoding: FixedPoint | None = None  # None: floats
    unmaskers: int = 0  # per shard; 0: contributions are not masked
    figures: Figures | None = None  # which evaluation figures members share; None: nothing
    noise: RingNoise | None = None  # added to whole numbers; noise on floats is part of the chain
    steps: float = 0.0  # local steps every member takes in a round; 0: each may take its own number, and tells it

    def __post_init__(self) -> None:
        if self.public.private:
            raise ConfigError(
                "the recipe's seed is private", fix="use public_root(...): all peers draw plans and masks from it"
            )
        check_rule(self.rule, aggregators=self.policy.shards, chain=self.chain)
        if self.encoding is not None:
            check_fixed_point(self.rule, self.chain)
        if self.unmaskers:
            check_masking(self.rule, self.chain, steps=self.steps)
            if self.encoding is None:
                raise ConfigError("floats cannot be masked", fix="use server.encoding = 'fixed'")
        if self.noise is not None:
            if self.encoding is None:
                raise ConfigError(
                    "noise on sums needs fixed point", fix="put gaussian_noise into the chain, or use fixed point"
                )
            self.noise.check(self.chain)
        if self.adds_noise:
            self.spec.require_noise_is_possible()

    @property
    def adds_noise(self) -> bool:
        """Whether updates leave a member with noise added."""
        return self.noise is not None or self.chain.adds_noise

    def describe(self) -> str:
        """Describe in one line what happens to an update."""
        return self.chain.describe() if self.noise is None else f"{self.chain.describe()} → {self.noise!r}"

    def kept(self, round: int) -> KeptValues:
        """Return the values that noise is added to in a round, in fixed point."""
        mask, n = self.shared_mask(round), self.spec.n_trainable
        factor = 1 + (self.compressor.omega(n) or 0.0)
        return KeptValues(n if mask is None else mask.size, factor, isinstance(self.chain.transforms[-1], Shift))

    def __getstate__(self) -> dict[str, Any]:
        """Leave caches out when pickling; they are rebuilt."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def compressor(self) -> Compressor:
        """The compressor at the end of the chain."""
        last = self.chain.transforms[-1]
        if not isinstance(last, Compress | Shift):
            raise ConfigError(f"{last!r} ends the chain but packs nothing", fix="build chains with chain(...)")
        return last.compressor

    @property
    def words(self) -> Words:
        """The number types that values and buffers are written as."""
        return FLOATS if self.encoding is None else RINGS

    @property
    def code(self) -> Code:
        """How an upload's values are written; in fixed point every member has its own scale besides."""
        return self.compressor.code(self.spec.trainable_sizes) if self.encoding is None else Ring32()

    def published_sizes(self, round: int, shard: int) -> tuple[int, int]:
        """Return how many values and buffers a published shard has."""
        layout, support = self.layout(round), self.published_support(round, shard)
        return int(layout.trainable.sizes[shard]) if support is None else support.size, int(layout.buffers.sizes[shard])

    def figure_words(self, round: int, shard: int = SHARD) -> int:
        """Return how many words of a contribution hold its member's scores: none for most shards and most runs."""
        if self.figures is None or shard != SHARD or not self.figures.due(round):
            return 0
        return self.figures.words

    @property
    def first_limit(self) -> float | None:
        """R of the first round, in fixed point."""
        omega = self.compressor.omega(self.spec.n_trainable) or 0.0
        return None if self.encoding is None else self.encoding.first(omega)

    @property
    def keeps_references(self) -> bool:
        """Whether members hold private references, so that leaving or returning needs a reference epoch."""
        return any(isinstance(t, Shift) and not t.shared_reference for t in self.chain.transforms)

    def scale(self, plan: RoundPlan, contributors: tuple[int, ...]) -> np.float32:
        """Return the scalar c of a shard; for a median it is 1."""
        return plan.scale(contributors) if self.rule.linear else np.float32(1.0)

    def optimizer_at(self, round: int) -> ServerOptimizer:
        """Return the server optimizer with the step λ_t of a round."""
        return self.optimizer if self.schedule is None else at_round(self.optimizer, self.schedule, round)

    def layout(self, round: int) -> Layout:
        """Return how a round's shards are laid out."""
        return self._layout(self.policy.draw(round))

    def drawn(self, draw: int) -> Layout:
        """Return how the shards of one draw of the plan are laid out."""
        return self._layout(draw)

    @_kept
    def _layout(self, draw: int) -> Layout:
        return self.policy.drawn(draw)

    def published_support(self, round: int, shard: int) -> Coordinates | None:
        """Return which coordinates a published shard carries: the round's shared support, or None for all."""
        return self._supports(round)[shard]

    def shared_mask(self, round: int) -> Coordinates | None:
        """Return all coordinates that the round's published shards carry, ascending; None for all."""
        return self._cut_mask(round)[0]

    def on_shared_mask(self, round: int, shards: Mapping[int, NDArray[Any]]) -> tuple[Coordinates, NDArray[Any]] | None:
        """Return the round's shared mask with all published shards' values in its order, zero where a shard is missing.

        None where there is no mask.
        """
        mask, places = self._cut_mask(round)
        if mask is None:
            return None
        values = np.zeros(mask.size, self.words.values)
        for shard, published in shards.items():
            values[places[shard]] = published
        return mask, values

    @_kept
    def _supports(self, round: int) -> tuple[Coordinates | None, ...]:
        mask, places = self._cut_mask(round)
        return (None,) * self.policy.shards if mask is None else tuple(mask[kept] for kept in places)

    @_kept
    def _cut_mask(self, round: int) -> tuple[Coordinates | None, list[Coordinates]]:
        """Return the round's shared mask, ascending, and which places in it belong to each shard."""
        plan = self.layout(round).trainable
        mask = self._mask(plan, self.round_seed(round)) if self.compressor.shared_support else None
        return mask, [] if mask is None else plan.grouped(mask)

    def _mask(self, plan: ShardPlan, seed: Seed) -> Coordinates | None:
        """Draw the mask of the whole vector, or join the masks drawn for each shard; None without a mask."""
        if self.compressor.plan_invariant and isinstance(self.compressor, OneMask):
            return self.compressor.mask(plan.n, seed)
        drawn = [self.compressor.support(shard, plan, seed, b"") for shard in range(plan.shards)]
        supports = [support for support in drawn if support is not None]
        if not supports:
            return None
        mask = np.sort(np.concatenate(supports), kind="stable")  # fast on a few ascending runs in a row
        mask.flags.writeable = False
        return mask

    @_kept
    def round_seed(self, round: int) -> Seed:
        """Return the public seed of a round, from which shared masks are drawn."""
        return self.public.child("round", round)
