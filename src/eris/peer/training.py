"""A peer's own training: the user's code, which may fail without costing the others anything."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from eris.aggregate.staging import all_finite
from eris.compose import initial_seed, training_seed
from eris.errors import ModelError, Refused, TaskError
from eris.local.correction import DRIFT
from eris.local.scores import Scores, scores_of
from eris.local.spec import Vector, as_vector
from eris.local.task import BlockResult, BlockTask, LocalResult, Memory, Task
from eris.local.update import as_update
from eris.protocol.member import Member
from eris.protocol.messages import Upload
from eris.protocol.replica import Replica
from eris.protocol.round_plan import RoundPlan
from eris.seeds import Seed
from eris.storage.buffer_pool import BufferPool

__all__ = ["Trained", "Training", "checked", "initial_model"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of training: how it went, and the parts to send."""

    samples: int
    steps: float  # local ones
    loss: float  # as the task states it
    seconds: float  # that it took
    uploads: list[Upload] = field(repr=False)
    metrics: Mapping[str, float] = field(default_factory=dict)  # what the task reports about it besides
    limited: int = 0  # values outside the limit of fixed point


def initial_model(task: Task, seed: int) -> Vector | Iterable[Vector]:
    """Return x⁰ as a task makes it; it is made again when needed, as it is as long as the model."""
    if isinstance(task, BlockTask):
        return task.initial_blocks(initial_seed(seed))
    return as_vector(task.initial(initial_seed(seed)), task.spec.n, what="initial model")


class Training:
    """Trains one member; what its code remembers is kept only if the round has a verdict.

    Args:
        private: this peer's private root of randomness.
        seed: the run's, for the initial model.
        pool: allocates the model if training begins anew.
    """

    def __init__(
        self, task: Task, member: Member, private: Seed, *, seed: int = 0, pool: BufferPool | None = None
    ) -> None:
        self.task, self._member, self._private = task, member, private
        self._seed, self._pool = seed, pool or BufferPool()  # of the run, for the initial model
        self._forget()

    def begin_anew(self) -> None:
        """Go back to the very beginning of the run, with no state."""
        start = Replica.start(self._member.recipe, initial_model(self.task, self._seed), pool=self._pool)
        self._member.begin_anew(start.state())
        self._forget()

    def _forget(self) -> None:
        self.memory: Memory = self.task.memory(self._member.peer)
        self._trained: Memory = {}

    def train(self, plan: RoundPlan) -> Trained | None:
        """Train if it is our turn; a failure of our own code costs our own contribution only, and is logged here.

        A model that cannot be trained at all ends this peer: otherwise the run would finish, having learned nothing.
        """
        member = self._member
        if member.peer not in plan.participants or member.lost_reference:
            return None
        self._trained = {name: value.copy() for name, value in self.memory.items()}
        began = time.perf_counter()
        try:
            scores = self._scores(plan)
            result = self._result(plan)
            if isinstance(result, BlockResult):  # made only while it is read: the task's code is still running
                return self._contribute(result, began, scores)
        except ModelError:
            raise
        except Exception:  # noqa: BLE001 - whatever the user's code raises
            _LOG.exception("round %d: local training failed; the round goes on without this member", plan.round)
            return None
        try:
            return self._contribute(result, began, scores)
        except Refused as refused:  # we were told during training that our reference is not valid
            _LOG.warning("round %d: this member sends nothing: %s", plan.round, refused)
            return None

    def rehearse_scores(self) -> None:
        """Score the initial model, where members share scores, so that a failure shows before anybody waits."""
        if (figures := self._member.recipe.figures) is not None:
            model, memory = self._member.replica.model, self.memory
            scores_of(self.task, self._member.peer, model, memory, figures.names)

    def _scores(self, plan: RoundPlan) -> Scores | None:
        """Score the model that the round begins with, where members share that."""
        member, recipe = self._member, self._member.recipe
        if recipe.figures is None or not recipe.figure_words(plan.round):
            return None
        return scores_of(self.task, member.peer, member.replica.model, self.memory, recipe.figures.names)

    def _contribute(self, result: LocalResult | BlockResult, began: float, scores: Scores | None) -> Trained:
        seconds = time.perf_counter() - began
        uploads = self._member.contribute(result, scores)
        if (cut := self._member.limited).values:
            _LOG.warning("the fixed-point limit cut %d values; a limit of %g would have cut none", *cut)
        return Trained(result.samples, result.steps, result.loss, seconds, uploads, result.metrics, cut.values)

    def _result(self, plan: RoundPlan) -> LocalResult | BlockResult:
        task, member, memory, round = self.task, self._member, self._trained, plan.round
        seed = training_seed(self._private.child("round", round))
        if (drift := member.drift()) is not None:
            memory = {**memory, DRIFT: drift}  # for this training only
        if isinstance(task, BlockTask):
            return task.train_blocks(member.peer, member.look(), memory, round=round, seed=seed)
        model = member.look()
        result = checked(task.train(member.peer, model, memory, round=round, seed=seed), model.size, member.peer, round)
        # A task may return the model itself, which moves on before the update is settled.
        return replace(result, update=result.update.copy()) if np.may_share_memory(result.update, model) else result

    def keep(self) -> None:
        """Keep what the last training left in memory: its round has a verdict."""
        self.memory = self._trained


def checked(result: LocalResult, n: int, peer: int, round: int) -> LocalResult:
    """Return a training result fit to be sent: convert what is exact in float32, refuse nonsense.

    `n` is how many values the update must have; `peer` and `round` are for the error.
    """
    update = as_update(result.update, n, peer=peer, round=round)
    if not all_finite(update):
        raise TaskError("the update is not finite", fix="look for a diverging loss", peer=peer, round=round)
    if result.samples <= 0:
        raise TaskError("training used no samples", fix="leave members without samples out", peer=peer, round=round)
    return LocalResult(update, result.samples, result.steps, result.loss, result.metrics)
