"""What a peer does with its own training code: it may look at the model, and what it returns is its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eris.errors import ModelError
from eris.local.numpy_task import QuadraticTask
from eris.local.spec import Vector
from eris.local.task import LocalResult, Memory
from eris.peer.training import Training
from eris.protocol.member import Member
from eris.seeds import Seed, private_root
from tests.protocol.test_rounds import SPEC, recipe, world

CENTRES = np.zeros((5, SPEC.n))


class ReturnsTheModel(QuadraticTask):
    """Returns what it was given: an update that lies where the model does."""

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        del memory, round, seed
        return LocalResult(model[:], self.samples(member))


class ChangesTheModel(QuadraticTask):
    """Trains in place, which a task must not do."""

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        model -= np.float32(1)
        return super().train(member, model, memory, round=round, seed=seed)


def test_an_update_is_no_part_of_the_model_that_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = world(2), []
    plan, member = made.coordinator.plan(0.0), made.peers[1].member
    monkeypatch.setattr(member, "contribute", lambda result, scores: given.append(result))
    member.begin(plan)
    Training(ReturnsTheModel(CENTRES, spec=SPEC), member, private_root(1, 1)).train(plan)
    [result] = given
    assert np.array_equal(result.update, member.replica.model)
    assert not np.may_share_memory(result.update, member.replica.model)  # transforms may settle it after the step


def test_a_task_that_changes_the_model_loses_its_contribution_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = world(2)
    plan, member = made.coordinator.plan(0.0), made.peers[1].member
    member.begin(plan)
    before = member.replica.model.copy()
    assert Training(ChangesTheModel(CENTRES, spec=SPEC), member, private_root(1, 1)).train(plan) is None
    assert np.array_equal(member.replica.model, before)
    assert "read-only" in caplog.text


def test_a_model_that_cannot_be_trained_ends_the_peer_instead_of_losing_round_after_round() -> None:
    class Dead(QuadraticTask):
        def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
            raise ModelError("tensor B did not move in the first round")

    made = world(2)
    plan, member = made.coordinator.plan(0.0), made.peers[1].member
    member.begin(plan)
    with pytest.raises(ModelError, match="did not move"):
        Training(Dead(CENTRES, spec=SPEC), member, private_root(1, 1)).train(plan)


@pytest.mark.parametrize(("factor", "counts"), [(0.5, True), (1 / 3, False)])
def test_an_update_in_float64_counts_only_if_nothing_is_rounded(
    factor: float, counts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Wide(QuadraticTask):
        def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
            result = super().train(member, model, memory, round=round, seed=seed)
            return replace(result, update=result.update.astype(np.float64) * factor)  # type: ignore[arg-type]

    made = world(2)
    plan, member = made.coordinator.plan(0.0), made.peers[1].member
    member.begin(plan)
    centres = np.arange(5 * SPEC.n, dtype=np.float64).reshape(5, SPEC.n)
    trained = Training(Wide(centres, spec=SPEC), member, private_root(1, 1)).train(plan)
    assert (trained is not None) == counts
    assert ("not exact in float32" in caplog.text) != counts


class LosesItsReference(QuadraticTask):
    """Trains for so long that the coordinator has come back meanwhile and does not know our reference."""

    member: Member

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        self.member.forget_reference()
        return super().train(member, model, memory, round=round, seed=seed)


def test_a_reference_that_is_lost_while_it_trains_costs_a_member_its_contribution_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = world(2, made=recipe(2, dsc=True))
    plan, member = made.coordinator.plan(0.0), made.peers[1].member
    member.begin(plan)
    task = LosesItsReference(CENTRES, spec=SPEC)
    task.member = member
    assert Training(task, member, private_root(1, 1)).train(plan) is None
    assert "no valid reference" in caplog.text
