"""What every peer holds alike: model, optimizer state, public transform state. This is the only place that changes it.

Vectors too long for memory lie in mapped files (the pool decides). They are therefore only ever processed a stretch at
a time, and each stretch is released when it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from blake3 import blake3

from eris.aggregate.fixed_point import RingScale
from eris.aggregate.staging import all_finite
from eris.errors import ConfigError, SpecError
from eris.local.spec import Vector, as_vector
from eris.protocol.best_round import BestRound, Choice
from eris.protocol.recipe import Recipe
from eris.protocol.round_mean import RoundMean
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.shards.plan import Coordinates
from eris.shards.policy import Layout
from eris.step.freeze import apply_except
from eris.step.optimizer import State
from eris.storage.buffer_pool import BufferPool
from eris.storage.mapped import release
from eris.storage.stretch import stretches

__all__ = ["BufferMean", "Replica", "copy_over", "initial_state", "joined"]

_NONE: Coordinates = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class BufferMean:
    """The mean change of the buffers, already normalised; zero where a shard was lost."""

    values: Vector


@dataclass
class Replica:
    """The state a server would have, held by every peer; equal bit for bit wherever the same verdicts were seen."""

    recipe: Recipe
    model: Vector  # trainable values, then buffers
    optimizer: State  # of the server's step
    public: State  # of the transforms, as far as all share it
    limit: Vector = field(default_factory=lambda: np.empty(0, np.float32))  # R of the next round, in fixed point
    best_round: Vector = field(default_factory=lambda: np.empty(0, np.float32))  # where members share figures
    best: Vector = field(default_factory=lambda: np.empty(0, np.float32))  # that round's model, if it is kept

    @classmethod
    def start(cls, recipe: Recipe, model: Vector | Iterable[Vector], *, pool: BufferPool | None = None) -> Replica:
        """Return the replica before the first round; a long model may come in blocks, and lies where `pool` puts it."""
        spec, pool = recipe.spec, pool or BufferPool()
        if isinstance(model, np.ndarray):
            model = [as_vector(model, spec.n, what="initial model")]
        return cls(
            recipe,
            joined(model, spec.n, pool, what="initial model"),
            initial_state(recipe.optimizer.init, spec.n_trainable, pool),
            initial_state(recipe.chain.public_state, spec.n_trainable, pool),
            np.array([] if recipe.first_limit is None else [recipe.first_limit], np.float32),
            *_nothing_judged(recipe, pool),
        )

    @property
    def scale(self) -> RingScale | None:
        """How the next round's values are written in fixed point; None for floats."""
        return RingScale(float(self.limit[0])) if self.limit.size else None

    @property
    def chosen(self) -> Vector:
        """The model that is the run's result: the last one or the best one."""
        return self.best if self.best.size and BestRound.of(self.best_round).round >= 0 else self.model

    @property
    def is_finite(self) -> bool:
        """Whether the model is finite: finite means may still overflow a step."""
        return all(all_finite(self.model[place]) for place in stretches(self.model.size))

    @property
    def is_done(self) -> bool:
        """Whether the run's patience is over: too many evaluations have passed without a better one."""
        figures = self.recipe.figures
        return figures is not None and 0 < figures.patience <= BestRound.of(self.best_round).since

    def choice(self) -> Choice | None:
        """Return what the members' shared figures decided; None where they share none."""
        figures = self.recipe.figures
        if figures is None:
            return None
        best = BestRound.of(self.best_round)
        return Choice(figures.names[0], best.round, best.score, self.is_done, self.chosen is self.best)

    def judge(self, verdict: Verdict) -> None:
        """Note how good the model at the start of a round was, before its step; keep it if it is the best."""
        figures = self.recipe.figures
        if figures is None:
            return
        before = BestRound.of(self.best_round)
        after = before.after(verdict.round, figures.score(verdict.figures))
        self.best_round[:] = after.vector
        if self.best.size and after.round != before.round:
            copy_over(self.model, self.best)

    def scale_in(self, plan: RoundPlan) -> RingScale | None:
        """Return the scale for a round whose plan is known: with noise, R leaves room for the tail of its sum."""
        if self.scale is None or self.recipe.noise is None:
            return self.scale
        weights = [float(plan.weights[member]) for member in plan.participants]
        least = self.recipe.noise.least_limit(weights, plan.least_masked, self.recipe.kept(plan.round))
        if self.recipe.encoding is not None and self.recipe.encoding.limit is not None and least > self.scale.limit:
            raise ConfigError(
                f"the tail of the noise does not fit beside values of up to ±{self.scale.limit:g}",
                fix=f"set server.limit = {least:g}, or 'auto'",
                key="server.limit",
            )
        return RingScale(max(self.scale.limit, least))

    def apply(self, mean: RoundMean, buffers: BufferMean, layout: Layout) -> None:
        """Take one step: correct the mean, run the server optimizer, average the buffers; freeze lost shards.

        `layout` is that of the mean's round.
        """
        trainable, rest = np.split(self.model, [self.recipe.spec.n_trainable])
        optimizer, places = self.recipe.optimizer_at(mean.round), stretches(trainable.size)
        values, direction = np.empty((2, places[0].stop if places else 0), np.float32)
        largest = 0.0
        for place in places:
            size = place.stop - place.start
            part, state = mean.stretch(place, values[:size]), (_on(place, self.public), _on(place, self.optimizer))
            moved = self.recipe.chain.incoming(part, state[0], out=direction[:size])
            frozen = _frozen(layout, mean.lost, place)
            if self.limit.size:  # a lost shard moves nothing and does not count
                kept = np.delete(moved, frozen) if frozen.size else moved
                farthest = max(float(kept.max(initial=0)), -float(kept.min(initial=0)))  # no copy, as abs() makes
                largest = max(largest, farthest / self.recipe.chain.direction_per_value)
            apply_except(optimizer, trainable[place], moved, state[1], frozen)
            for vector in (trainable[place], *state[0].values(), *state[1].values()):
                release(vector)
        rest -= buffers.values
        if len(mean.lost) < layout.shards:
            self._follow(largest, mean.contributors)

    def _follow(self, largest: float, members: int) -> None:
        """Choose R for the next round from what moved the model in this one; if nothing arrived, R stays."""
        if self.recipe.encoding is not None and self.recipe.first_limit is not None:
            self.limit[0] = self.recipe.encoding.next(largest, first=self.recipe.first_limit, members=members)

    def state(self) -> dict[str, Vector]:
        """Return every vector by name (views, for checkpoints and snapshots)."""
        named = {"model": self.model}
        named |= {f"optimizer.{name}": value for name, value in self.optimizer.items()}
        named |= {f"public.{name}": value for name, value in self.public.items()}
        rest = {"limit": self.limit, "best_round": self.best_round, "best": self.best}
        return named | {name: value for name, value in rest.items() if value.size}

    def load(self, state: Mapping[str, Vector]) -> None:
        """Take over every vector of a snapshot; if any of them does not fit, change nothing."""
        mine = self.state()
        for name, value in mine.items():
            as_vector(state[name], value.size, what=name)
        for name, value in mine.items():
            copy_over(state[name], value)

    def digest(self) -> str:
        """Return the BLAKE3 digest of the whole state."""
        hasher = blake3()
        for name, value in sorted(self.state().items()):
            hasher.update(name.encode())
            for place in stretches(value.size):
                hasher.update(value[place].view(np.uint8).data)
                release(value[place])
        return str(hasher.hexdigest())


def _nothing_judged(recipe: Recipe, pool: BufferPool) -> tuple[Vector, Vector]:
    """Return the best round and its model before there is one; empty where nothing is judged or kept."""
    figures = recipe.figures
    nothing = np.empty(0, np.float32)
    if figures is None:
        return nothing, nothing
    return BestRound().vector, pool.zeros(recipe.spec.n) if figures.keep_best else nothing


def joined(blocks: Iterable[Vector], n: int, pool: BufferPool, *, what: str) -> Vector:
    """Join blocks into one vector of `n` values, in memory or in a file, as `pool` decides; errors call it `what`."""
    vector, start = pool.zeros(n), 0
    for block in blocks:
        place, start = slice(start, start + block.size), start + block.size
        if start > n:
            break
        copy_over(as_vector(block, block.size, what=what), vector[place])
    if start != n:
        raise SpecError(f"the blocks of the {what} do not add up to {n} values", fix="give every value once")
    return vector


def initial_state(init: Callable[[int], State], n: int, pool: BufferPool) -> State:
    """Return the state `init(n)`; if `pool` puts it into files, build it by stretches: coordinates are independent."""
    if not pool.maps(4 * n):
        return init(n)
    state = {name: pool.zeros(n) for name in init(0)}
    for place in stretches(n):
        for name, values in init(place.stop - place.start).items():
            if values.any():  # a new file holds zeros already
                state[name][place] = values
                release(state[name][place])
    return state


def copy_over(source: Vector, target: Vector) -> None:
    """Copy a vector, which may lie in a file, over another one."""
    for place in stretches(target.size):
        np.copyto(target[place], source[place])
        release(source[place])
        release(target[place])


def _on(place: slice, state: State) -> State:
    return {name: vector[place] for name, vector in state.items()}


def _frozen(layout: Layout, lost: tuple[int, ...], place: slice) -> Coordinates:
    """Return which coordinates of a stretch lie in lost shards, ascending and relative to its start."""
    if not lost:
        return _NONE
    owners = layout.trainable.owners_of(np.arange(place.start, place.stop, dtype=np.int64))
    return np.flatnonzero(np.isin(owners, lost)).astype(np.int64, copy=False)
