"""A peer's own training: somebody else's code, which may fail without costing the others anything."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

import numpy as np

from eris.aggregate.staging import all_finite
from eris.compose import training_seed
from eris.errors import Refused, TaskError
from eris.local.task import BlockResult, BlockTask, LocalResult, Memory, Task
from eris.local.update import as_update
from eris.protocol.member import Member
from eris.protocol.messages import Upload
from eris.protocol.round_plan import RoundPlan
from eris.seeds import Seed

__all__ = ["Trained", "Training", "checked"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of it: the loss, and the parts to be sent."""

    loss: float
    uploads: list[Upload] = field(repr=False)


class Training:
    """Trains one member; what its code remembers counts only when the round does."""

    def __init__(self, task: Task, member: Member, private: Seed) -> None:
        self._task, self._member, self._private = task, member, private
        self.forget()

    def forget(self) -> None:
        """Remember nothing, as before the first round."""
        self.memory: Memory = self._task.memory(self._member.peer)
        self._trained: Memory = {}

    def train(self, plan: RoundPlan) -> Trained | None:
        """Train if it is our turn; our own code failing costs our own contribution and is shown here."""
        member = self._member
        if member.peer not in plan.participants or member.lost_reference:
            return None
        self._trained = {name: value.copy() for name, value in self.memory.items()}
        try:
            result = self._result(plan)
            if isinstance(result, BlockResult):  # made only while it is read: the task's code is still running
                return Trained(result.loss, member.contribute(result))
        except Exception:  # noqa: BLE001 - whatever the user's code raises
            _LOG.exception("round %d: local training failed; the round goes on without this member", plan.round)
            return None
        try:
            return Trained(result.loss, member.contribute(result))
        except Refused as refused:  # we were told while we trained that our reference does not hold
            _LOG.warning("round %d: this member sends nothing: %s", plan.round, refused)
            return None

    def _result(self, plan: RoundPlan) -> LocalResult | BlockResult:
        task, member, memory, round = self._task, self._member, self._trained, plan.round
        seed = training_seed(self._private.child("round", round))
        if isinstance(task, BlockTask):
            return task.train_blocks(member.peer, member.look(), memory, round=round, seed=seed)
        model = member.look()
        result = checked(task.train(member.peer, model, memory, round=round, seed=seed), model.size, member.peer, round)
        # A task may return the very model; that moves on before the update is settled.
        return replace(result, update=result.update.copy()) if np.may_share_memory(result.update, model) else result

    def keep(self) -> None:
        """Remember what the last training left: its round has a verdict."""
        self.memory = self._trained


def checked(result: LocalResult, n: int, peer: int, round: int) -> LocalResult:
    """Return a training result fit to be sent: what is exact in float32 is converted, nonsense is refused."""
    update = as_update(result.update, n, peer=peer, round=round)
    if not all_finite(update):
        raise TaskError("the update is not finite", fix="look for a diverging loss", peer=peer, round=round)
    if result.samples <= 0:
        raise TaskError("training used no samples", fix="leave members without samples out", peer=peer, round=round)
    return LocalResult(update, result.samples, result.steps, result.loss, result.metrics)
