"""What is done for one member in one round: train, transform, and advance its private state.

Every engine calls this, in whatever process. The result depends on the job, the model and the member's state alone, so
a job can be done anywhere and, if it must, twice.

In a simulation it is known beforehand which messages will be lost (the faults are drawn, not suffered). So the member's
reference is advanced at once, for the shards that will be accepted. Should the verdict come out otherwise after all
(somebody's values were not finite), the job is simply done again with what is known then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from eris.compose import training_seed
from eris.local.spec import Vector, as_vector
from eris.local.task import CohortTask, LocalResult, Memory, Task
from eris.local.update import as_update
from eris.protocol.recipe import Recipe
from eris.seeds import Seed, private_root
from eris.shards.plan import Coordinates, ShardPlan
from eris.shards.policy import Layout
from eris.simulate.own_code import own_code
from eris.transforms import Accepted, SendContext, State
from eris.transforms.packed import Packed

__all__ = ["Job", "StateLayout", "Work", "do_jobs", "in_cohorts", "payload_sizes", "shared_payload_sizes"]


@dataclass(frozen=True, slots=True)
class Job:
    """One member's part of a round."""

    round: int
    member: int
    missing: tuple[int, ...] = ()  # shards that will not accept this member, as far as is known
    reset: bool = False  # do not train: begin a reference epoch


@dataclass(frozen=True, slots=True)
class Work:
    """What came of a job."""

    job: Job
    values: Vector = field(repr=False)  # on `support`, as the receiver decodes them
    support: Coordinates | None = field(repr=False)  # only where members' supports differ
    buffers: Vector = field(repr=False)
    state: Vector = field(repr=False)  # the member's state after the round
    samples: int
    steps: float
    loss: float
    payload: tuple[int, ...] | None  # bytes of the values for each shard, only where members differ in them
    not_finite: tuple[int, ...]  # shards whose aggregator refuses the values
    seconds: float


@dataclass(frozen=True)
class StateLayout:
    """Where the parts of a member's state (optimizer memory, private transform state) lie in one vector."""

    memory: Memory = field(repr=False)  # initial values
    private: State = field(repr=False)

    @property
    def size(self) -> int:
        """Number of values in all."""
        return sum(part.size for part in (*self.memory.values(), *self.private.values()))

    def initial(self) -> Vector:
        """Return the state before the first round."""
        return np.concatenate([*self.memory.values(), *self.private.values(), np.empty(0, np.float32)])

    def views(self, state: Vector) -> tuple[Memory, State]:
        """Return memory and private state as views into one vector."""
        as_vector(state, self.size, what="a member's state")
        parts, start = [], 0
        for named in (self.memory, self.private):
            views = {}
            for name, value in named.items():
                views[name] = state[start : start + value.size]
                start += value.size
            parts.append(views)
        return parts[0], parts[1]


def do_jobs(
    jobs: Sequence[Job],
    task: Task,
    recipe: Recipe,
    seed: int,
    model: Vector,
    public: State,
    states: Sequence[Vector | None],
    *,
    cohort: int = 1,
) -> list[Work]:
    """Train members from `model` and return what they send; their states become their new states, in place.

    All train before the first one's update is packed: after a gradient the caches hold nothing of what packing needs,
    so that doing it for several members in a row takes half the time.
    """
    private = recipe.chain.private_state(recipe.spec.n_trainable)
    hands = [
        _prepare(job, StateLayout(task.memory(job.member), private), recipe, seed, model, state)
        for job, state in zip(jobs, states, strict=True)
    ]
    if jobs[0].reset:
        return [_begin_epoch(at_hand, recipe, public) for at_hand in hands]
    waiting, trained = iter(hands), list[tuple[LocalResult, float]]()
    for together in in_cohorts(jobs, cohort, task.samples):
        trained += _trained([next(waiting) for _ in together], task)
    return [_finish(at_hand, recipe, public, *done) for at_hand, done in zip(hands, trained, strict=True)]


def in_cohorts(jobs: Sequence[Job], size: int, samples: Callable[[int], int]) -> list[tuple[Job, ...]]:
    """Cut jobs into cohorts of neighbours with as many samples as each other; workers do not matter, so bits do not.

    >>> jobs = [Job(0, member) for member in range(7)]
    >>> [len(cohort) for cohort in in_cohorts(jobs, 4, [5, 5, 5, 5, 5, 8, 8].__getitem__)]
    [4, 1, 2]
    """
    cohorts: list[list[Job]] = []
    for job in jobs:
        last = cohorts[-1] if cohorts else []
        if last and len(last) < size and samples(last[0].member) == samples(job.member):
            last.append(job)
        else:
            cohorts.append([job])
    return [tuple(cohort) for cohort in cohorts]


@dataclass(frozen=True, slots=True)
class _AtHand:
    """What a member has in front of it when it begins to train."""

    job: Job
    state: Vector
    kept: Memory  # the optimizer's part of the state
    private: State  # the transforms' part
    memory: Memory  # handed to the task
    start: Vector
    seed: Seed  # the member's own, of this round


def _prepare(job: Job, layout: StateLayout, recipe: Recipe, seed: int, model: Vector, state: Vector | None) -> _AtHand:
    state = layout.initial() if state is None else state
    kept, private = layout.views(state)
    start = model[:]
    if recipe.chain.changes_start and not job.reset:
        start = model.copy()
        recipe.chain.start(start[: recipe.spec.n_trainable], private)
    start.flags.writeable = False  # as in a peer: all members of a round begin with the same memory
    own = private_root(seed, job.member).child("round", job.round)
    return _AtHand(job, state, kept, private, dict(kept), start, own)


def _trained(hands: Sequence[_AtHand], task: Task) -> list[tuple[LocalResult, float]]:
    """Train the members of one cohort, all in one call if they are several; return how long each took."""
    began, job = time.perf_counter(), hands[0].job
    with own_code("local training", peer=job.member, round=job.round):
        results = _together(hands, task) if len(hands) > 1 else [_alone(hands[0], task)]
    each = (time.perf_counter() - began) / len(hands)
    return [(result, each) for result in results]


def _alone(at_hand: _AtHand, task: Task) -> LocalResult:
    job = at_hand.job
    return task.train(job.member, at_hand.start, at_hand.memory, round=job.round, seed=training_seed(at_hand.seed))


def _together(hands: Sequence[_AtHand], task: Task) -> list[LocalResult]:
    assert isinstance(task, CohortTask)
    return task.train_cohort(
        [at_hand.job.member for at_hand in hands],
        [at_hand.start for at_hand in hands],
        [at_hand.memory for at_hand in hands],
        round=hands[0].job.round,
        seeds=[training_seed(at_hand.seed) for at_hand in hands],
    )


def _finish(at_hand: _AtHand, recipe: Recipe, public: State, result: LocalResult, seconds: float) -> Work:
    """Transform what training gave and advance the member's state."""
    began = time.perf_counter()
    job, private = at_hand.job, at_hand.private
    _keep(at_hand.kept, at_hand.memory)
    update = as_update(result.update, recipe.spec.n, peer=job.member, round=job.round)
    trainable, buffers = update[: recipe.spec.n_trainable], update[recipe.spec.n_trainable :]
    shards = recipe.layout(job.round)
    context = _context(job, recipe, shards, at_hand.seed, result)
    outgoing = recipe.chain.outgoing(trainable, private, public, context)
    recipe.chain.settle(outgoing, private, Accepted(shards.trainable, job.missing, job.round))
    packed = outgoing.packed
    values = packed.values()
    shared = recipe.compressor.shared_support
    return Work(
        job=job,
        values=values,
        support=None if shared else packed.support,
        buffers=buffers,
        state=at_hand.state,
        samples=result.samples,
        steps=result.steps,
        loss=result.loss,
        payload=None if shared else payload_sizes(packed, shards.trainable),
        not_finite=_not_finite(packed, values, buffers, result.steps, shards),
        seconds=seconds + time.perf_counter() - began,
    )


def _begin_epoch(at_hand: _AtHand, recipe: Recipe, public: State) -> Work:
    recipe.chain.new_epoch(at_hand.private, public)
    nothing = np.empty(0, np.float32)
    return Work(at_hand.job, nothing, None, nothing, at_hand.state, 0, 1.0, math.nan, None, (), 0.0)


def _keep(kept: Memory, memory: Mapping[str, Vector]) -> None:
    """Copy what a task put into its memory as a new array instead of changing it in place."""
    for name, view in kept.items():
        if memory[name] is not view:
            np.copyto(view, memory[name])


def _context(job: Job, recipe: Recipe, shards: Layout, own: Seed, result: LocalResult) -> SendContext:
    return SendContext(
        round=job.round,
        member=job.member,
        plan=shards.trainable,
        public=recipe.round_seed(job.round),
        private=own,
        tensor_sizes=recipe.spec.trainable_sizes,
        steps=result.steps,
    )


def payload_sizes(packed: Packed, plan: ShardPlan) -> tuple[int, ...]:
    """Return the bytes of each shard's part, without cutting it: what `Part.payload_bytes` says."""
    return _sizes(packed.support, plan, packed.code.bits, packed.scales.size, explicit=packed.explicit)


def shared_payload_sizes(recipe: Recipe, round: int) -> tuple[int, ...]:
    """Return what `payload_sizes` says for every member of a round, where all keep the same coordinates."""
    code = recipe.compressor.code(recipe.spec.trainable_sizes)
    plan, mask = recipe.layout(round).trainable, recipe.shared_mask(round)
    return _sizes(mask, plan, code.bits, code.scale_count, explicit=False)


def _sizes(support: Coordinates | None, plan: ShardPlan, bits: int, scales: int, *, explicit: bool) -> tuple[int, ...]:
    counts = plan.sizes if support is None else np.bincount(plan.owners_of(support), minlength=plan.shards)
    symbols = -(-counts * bits // 8)
    indices = np.minimum(4 * counts, -(-plan.sizes // 8)) if explicit else 0
    return tuple((symbols + indices + 4 * scales).tolist())


def _not_finite(packed: Packed, values: Vector, buffers: Vector, steps: float, shards: Layout) -> tuple[int, ...]:
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(np.dot(values, values) + np.dot(buffers, buffers)) and 0 < steps < math.inf:
            return ()
    if not 0 < steps < math.inf:
        return tuple(range(shards.shards))
    bad = np.flatnonzero(~np.isfinite(values))
    coordinates = bad if packed.support is None else packed.support[bad]
    owners = [shards.trainable.owners_of(coordinates), shards.buffers.owners_of(np.flatnonzero(~np.isfinite(buffers)))]
    return tuple(np.unique(np.concatenate(owners)).tolist())
