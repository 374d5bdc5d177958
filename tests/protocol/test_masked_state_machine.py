"""Four roles under any schedule of faults: masked shards end every round, with the bits of plain fixed point.

The same state machine as for plain shards plays the network and the fate of every process, cuts and pads included. A
reference that knows no pads sums the contributors' whole numbers of every committed shard, and makes the same steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from eris.aggregate.encoding import FixedPoint
from eris.aggregate.figures import Figures, signed
from eris.aggregate.fixed_point import encode_buffers
from eris.errors import Reason
from eris.local.spec import Vector
from eris.protocol import steps
from eris.protocol.aggregator import Aggregator
from eris.protocol.best_round import BestRound
from eris.protocol.false_manifest import lie_of
from eris.protocol.messages import Manifest, Published, Receipt, UploadHeader
from eris.protocol.recipe import Recipe
from eris.protocol.replica import Replica
from eris.protocol.round_plan import Deadlines, RoundPlan
from eris.protocol.verdict import Verdict
from tests.protocol.test_faults_state_machine import MEMBERS, Federation
from tests.protocol.test_rounds import recipe, world
from tests.protocol.world import pretend_to_score, pretend_to_train

FIGURES = Figures(("loss",), keep_best=True)

GIVEN: list[Receipt] = []  # of the federation that is played


@pytest.fixture(autouse=True)
def noted_receipts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every receipt that any aggregator gives, before a crash or after."""
    honest = Aggregator._receipt

    def noted(self: Aggregator, header: UploadHeader) -> Receipt:
        GIVEN.append(receipt := honest(self, header))
        return receipt

    monkeypatch.setattr(Aggregator, "_receipt", noted)


class PlainFixed:
    """A federation in one loop, without shards' owners, pads or messages."""

    def __init__(self, made: Recipe, model: Vector) -> None:
        self.recipe, self.round = made, 0
        self.replica = Replica.start(made, model)

    def step(self, plan: RoundPlan, verdict: Verdict) -> None:
        """Sum what the contributors of each committed shard have there, and step."""
        scale, layout, n = self.replica.scale, self.recipe.layout(plan.round), self.recipe.spec.n_trainable
        assert scale is not None
        rings = {}
        for member in plan.participants:
            update, weight = pretend_to_train(self.replica.model, member, plan.round).update, plan.weights[member]
            rings[member] = scale.encode(update[:n], weight).values, encode_buffers(update[n:], weight)
        assert verdict.figures == self._scored(plan, verdict), "a sum of exactly what the contributors scored"
        published = {}
        for entry in verdict.shards:
            if entry.committed:
                given = [rings[member] for member in entry.contributors]
                values = np.sum([ring for ring, _ in given], axis=0, dtype=np.uint32)
                rest = np.sum([ring for _, ring in given], axis=0, dtype=np.uint64)
                place = layout.trainable.coordinates(entry.shard), layout.buffers.coordinates(entry.shard)
                c = float(self.recipe.scale(plan, entry.contributors))
                said = Manifest(plan.digest, plan.round, entry.shard, 0, entry.contributors, c, 1.0, entry.hash)
                published[entry.shard] = Published(said, values[place[0]], rest[place[1]])
        steps.apply(self.replica, plan, published, verdict)
        self.round += 1

    def _scored(self, plan: RoundPlan, verdict: Verdict) -> tuple[int, ...]:
        entry, among = verdict.shards[0], len(plan.roster)
        if not entry.committed:
            return ()
        given = [FIGURES.encode(pretend_to_score(self.replica.model, k), among) for k in entry.contributors]
        return signed(np.sum(given, axis=0, dtype=np.uint64))


class MaskedFederation(Federation):
    """Masked shards among members that die, come back with other keys, and are cut off."""

    @initialize(
        shards=st.sampled_from([1, 2, 3, 5]),
        participation=st.sampled_from([1.0, 1.0, 0.6]),
        schedule=st.sampled_from(["fixed", "redraw", "rotate"]),
        unmaskers=st.sampled_from([1, 1, 2]),
    )
    def start(self, shards: int, participation: float, schedule: str, unmaskers: int) -> None:
        made = replace(recipe(shards, schedule=schedule, figures=FIGURES), encoding=FixedPoint())
        deadlines = Deadlines(contribute=50.0, report=90.0)
        rules = {"participation": participation, "deadlines": deadlines, "max_share": 0.7}
        self.world = world(shards, MEMBERS, made=replace(made, unmaskers=unmaskers), **rules)
        self.plain = PlainFixed(made, self.world.model)
        self.best = BestRound()
        GIVEN.clear()
        self.dead: set[int] = set()

    def _judge(self, verdict: Verdict) -> None:
        self.best = self.best.after(verdict.round, FIGURES.score(verdict.figures))

    @invariant()
    def live_members_hold_the_reference(self) -> None:
        if not hasattr(self, "world"):
            return
        for process in self.world.peers.values():
            if process.member.round == self.plain.round:
                assert process.member.replica.digest() == self.plain.replica.digest()

    @invariant()
    def nobody_honest_breaks_a_receipt(self) -> None:
        """Whatever crashed or came twice, no manifest leaves out a member that its author gave a receipt."""
        coordinator = self.world.coordinator if hasattr(self, "world") else None
        if coordinator is None or (current := coordinator._open) is None:
            return
        for manifest in current.manifests.values():
            assert not any(lie_of(current.plan, manifest, receipt) for receipt in GIVEN)

    @invariant()
    def nobody_unmasks_two_sets(self) -> None:
        """Of one plan and shard no unmasker has answered cuts over two sets, whatever was lost or came twice."""
        if not hasattr(self, "world"):
            return
        for process in self.world.peers.values():
            for shard in process.unmasker._answers:
                sets = {cut.contributors for cut in process.unmasker._cuts[shard].values()}
                assert len(sets) == 1
                assert len(sets.pop()) >= process.unmasker.plan.least_contributors


MaskedFederation.TestCase.settings = settings(
    max_examples=30, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
TestMaskedFederation = MaskedFederation.TestCase


def test_every_contribution_had_its_receipt() -> None:
    GIVEN.clear()
    world(3, MEMBERS, made=replace(recipe(3), encoding=FixedPoint(), unmaskers=1)).settle(rounds=2)
    assert len({(receipt.plan, receipt.member, receipt.shard) for receipt in GIVEN}) >= 2 * 3 * MEMBERS


def test_in_calm_weather_every_shard_is_unmasked() -> None:
    made = replace(recipe(3), encoding=FixedPoint(), unmaskers=1)
    calm = world(3, MEMBERS, made=made)
    calm.settle(rounds=4)
    assert not [entry.lost for _, verdict in calm.verdicts for entry in verdict.shards if entry.lost]


def test_without_its_unmasker_a_shard_is_lost_by_name_and_moves_on() -> None:
    made = replace(recipe(3), encoding=FixedPoint(), unmaskers=1)
    stormy = world(3, MEMBERS, made=made)
    stormy.clock()
    [silent] = stormy.coordinator.in_flight.unmaskers_of(2)
    stormy.peers[silent].unmasker.unmask = lambda cut, now: None
    stormy.settle(rounds=3)
    first = stormy.verdicts[0]
    assert [entry.lost for entry in first[1].shards] == ["", "", Reason.UNMASK.value]
    pairs = [(plan.assignment[2], plan.unmaskers_of(2)) for plan, _ in stormy.verdicts]
    assert pairs[1] != pairs[0]
    assert silent not in pairs[1][1]
