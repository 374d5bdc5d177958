"""Do one member's work in one round: train, contribute, and advance its private state.

Every engine calls this, in whatever process. The result depends only on the job, the model and the member's state, so a
job can be done anywhere and, if necessary, twice. The steps themselves are the protocol's; this module only decides for
whom, in which order and with what memory they are taken.

One thing is guessed. A simulation knows beforehand which messages will be lost (its faults are drawn), so a member's
state is settled at once, for the shards that will be accepted. If the verdict turns out differently (somebody's values
were not finite), the job is simply done again with what is then known.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.encoding import Ring32
from eris.aggregate.figures import signed
from eris.aggregate.staging import all_finite
from eris.compose import training_seed
from eris.errors import Refused
from eris.local.correction import DRIFT
from eris.local.scores import scores_of
from eris.local.spec import Vector, as_vector
from eris.local.task import CohortTask, LocalResult, Memory, Task
from eris.protocol import steps
from eris.protocol.recipe import Recipe
from eris.seeds import Seed, private_root
from eris.shards.plan import Coordinates
from eris.shards.policy import Layout
from eris.simulate.traffic import payload_sizes
from eris.simulate.user_code import user_code
from eris.transforms import State
from eris.transforms.packed import Packed

__all__ = ["Job", "StateLayout", "Work", "code_of", "do_jobs", "in_cohorts"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """One member's part of a round."""

    round: int
    member: int
    missing: tuple[int, ...] = ()  # shards that will not accept this member, as far as is known
    reset: bool = False  # do not train: begin a reference epoch
    limit: float = 0.0  # R of the round in fixed point, 0 for floats
    weight: float = 1.0  # w_k, which a member needs itself in fixed point
    among: int = 1  # members on the roster
    noise: float = 0.0  # deviation of what it adds there, in grid steps
    draw: int = 0  # of that noise


@dataclass(frozen=True, slots=True)
class Work:
    """The result of a job."""

    job: Job
    values: NDArray[Any] = field(repr=False)  # on `support`, as they are decoded; or the ring values to add up
    support: Coordinates | None = field(repr=False)  # only where members' supports differ
    buffers: Vector = field(repr=False)
    state: Vector = field(repr=False)  # the member's state after the round
    samples: int
    steps: float  # local steps taken
    loss: float
    payload: tuple[int, ...] | None  # bytes of the values for each shard, only where members differ in them
    not_finite: tuple[int, ...]  # shards whose aggregator refuses the values
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)  # what the task says of its training besides
    limited: int = 0  # values that lay outside the limit of fixed point
    figures: tuple[int, ...] = ()  # what the member scored before the round, as signed integers
    added: bool = False  # its values are in the sum of whoever did the job, not here


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

    All train before the first update is packed: after a gradient the caches hold nothing that packing needs, so packing
    for several members in a row takes half the time.

    Args:
        jobs: one for each member.
        task: what they train.
        recipe: what all peers agree on.
        seed: the run's.
        model: what they start from.
        public: the public state.
        states: one for each job, changed in place; None before a member's first round.
        cohort: members trained in one call.
    """
    private = recipe.chain.private_state(recipe.spec.n_trainable)
    hands = [
        _at_hand(job, StateLayout(task.memory(job.member), private), seed, state)
        for job, state in zip(jobs, states, strict=True)
    ]
    if jobs[0].reset:
        return [_begin_epoch(at_hand, recipe, public) for at_hand in hands]
    scored = [_scored(at_hand, task, recipe, model) for at_hand in hands]
    waiting, trained = iter(hands), list[tuple[LocalResult, float]]()
    for together in in_cohorts(jobs, cohort, task.samples):
        trained += _trained([next(waiting) for _ in together], task, recipe, model, public)
    works = [_contributed(at_hand, recipe, public, *done) for at_hand, done in zip(hands, trained, strict=True)]
    return [replace(work, figures=figures) if figures else work for work, figures in zip(works, scored, strict=True)]


def in_cohorts(jobs: Sequence[Job], size: int, samples: Callable[[int], int]) -> list[tuple[Job, ...]]:
    """Cut jobs into cohorts of up to `size` neighbours with equally many samples.

    How many workers there are changes neither the cut nor the bits. `samples` returns the number of a member.

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
    """What a member needs when it begins to train."""

    job: Job
    state: Vector
    kept: Memory  # the optimizer's part of the state
    private: State  # the transforms' part
    memory: Memory  # handed to the task
    own: Seed  # the member's private seed of this round


def _at_hand(job: Job, layout: StateLayout, seed: int, state: Vector | None) -> _AtHand:
    state = layout.initial() if state is None else state
    kept, private = layout.views(state)
    return _AtHand(job, state, kept, private, dict(kept), private_root(seed, job.member).child("round", job.round))


def _trained(
    hands: Sequence[_AtHand], task: Task, recipe: Recipe, model: Vector, public: State
) -> list[tuple[LocalResult, float]]:
    """Train the members of one cohort, all in one call if they are several; return results, and how long each took."""
    began, first = time.perf_counter(), hands[0].job
    starts = [steps.starting_model(recipe, model, at_hand.private) for at_hand in hands]
    seeds = [training_seed(at_hand.own) for at_hand in hands]
    for at_hand in hands:
        if (drift := recipe.chain.drift(at_hand.private, public)) is not None:
            at_hand.memory[DRIFT] = drift  # for this training alone: it is not among what is kept
    with user_code("local training", peer=first.member, round=first.round):
        if len(hands) == 1:
            results = [task.train(first.member, starts[0], hands[0].memory, round=first.round, seed=seeds[0])]
        else:
            assert isinstance(task, CohortTask)
            members, memories = [hand.job.member for hand in hands], [hand.memory for hand in hands]
            results = task.train_cohort(members, starts, memories, round=first.round, seeds=seeds)
    each = (time.perf_counter() - began) / len(hands)
    return [(result, each) for result in results]


def _scored(at_hand: _AtHand, task: Task, recipe: Recipe, model: Vector) -> tuple[int, ...]:
    """Let a member score the `model` at the start of the round, if members share figures; empty if not."""
    job = at_hand.job
    if recipe.figures is None or not recipe.figure_words(job.round):
        return ()
    with user_code("evaluation", peer=job.member, round=job.round):
        scores = scores_of(task, job.member, model, at_hand.kept, recipe.figures.names)
    return signed(recipe.figures.encode(scores, job.among))


def _contributed(at_hand: _AtHand, recipe: Recipe, public: State, result: LocalResult, seconds: float) -> Work:
    """Let a member contribute its update, and settle its state as if the guess were the verdict.

    `result` is its training, which took `seconds`.
    """
    began = time.perf_counter()
    job, private = at_hand.job, at_hand.private
    _keep(at_hand.kept, at_hand.memory)
    shards, limited, refused = recipe.layout(job.round), steps.Limited(), tuple[int, ...]()
    outgoing, buffers = steps.contribute(recipe, job.round, job.member, result, private, public, at_hand.own)
    if job.limit:
        try:
            outgoing, _, limited = steps.in_fixed_point(
                recipe, outgoing, buffers, code_of(job), noise=job.noise, draw=job.draw, own=at_hand.own
            )
        except Refused as refusal:  # a real member would send nothing, and say why
            _LOG.warning("round %d: member %d sends nothing: %s", job.round, job.member, refusal)
            refused = tuple(range(shards.shards))
    steps.settle(recipe, job.round, outgoing, private, refused or job.missing)
    packed, shared = outgoing.packed, recipe.compressor.shared_support
    values = packed.symbols if job.limit else packed.values()
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
        not_finite=refused or _refused(packed, values, buffers, result.steps, shards),
        seconds=seconds + time.perf_counter() - began,
        metrics={name: float(value) for name, value in result.metrics.items()},
        limited=limited.values,
    )


def code_of(job: Job) -> Ring32:
    """Return how a member writes its values in fixed point."""
    return Ring32(job.limit, np.float32(job.weight))


def _begin_epoch(at_hand: _AtHand, recipe: Recipe, public: State) -> Work:
    recipe.chain.new_epoch(at_hand.private, public)
    nothing = np.empty(0, np.float32)
    return Work(
        job=at_hand.job,
        values=nothing,
        support=None,
        buffers=nothing,
        state=at_hand.state,
        samples=0,
        steps=1.0,
        loss=math.nan,
        payload=None,
        not_finite=(),
        seconds=0.0,
    )


def _keep(kept: Memory, memory: Mapping[str, Vector]) -> None:
    """Copy what a task put into its memory as a new array instead of changing it in place."""
    for name, view in kept.items():
        if memory[name] is not view:
            np.copyto(view, memory[name])


def _refused(packed: Packed, values: NDArray[Any], buffers: Vector, count: float, shards: Layout) -> tuple[int, ...]:
    """Return the `shards` whose aggregator would refuse the contribution, without cutting it; it took `count` steps."""
    if not steps.counts_as_steps(count):
        return tuple(range(shards.shards))
    if values.dtype == np.uint32 or (all_finite(values) and (not buffers.size or all_finite(buffers))):
        return ()
    bad = np.flatnonzero(~np.isfinite(values))
    coordinates = bad if packed.support is None else packed.support[bad]
    owners = [shards.trainable.owners_of(coordinates), shards.buffers.owners_of(np.flatnonzero(~np.isfinite(buffers)))]
    return tuple(np.unique(np.concatenate(owners)).tolist())
