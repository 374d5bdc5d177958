"""The driver of the real roles in one process, and the example that shows it."""

from __future__ import annotations

import runpy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from eris.compose import Composition, compose, initial_seed, training_seed
from eris.config import load_config
from eris.errors import FloorError
from eris.local.numpy_task import QuadraticTask
from eris.local.task import LocalResult
from eris.protocol.floor import Floor
from eris.protocol.in_process import InProcess
from eris.protocol.member import Member
from eris.protocol.messages import Published
from eris.protocol.round_plan import RoundPlan
from eris.protocol.rules import Rules
from eris.seeds import private_root, public_root
from tests.simulate.setting import play, settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "one_round.py"
TASK = QuadraticTask.synthetic(7, 40, public_root(3))
SEED = 1
root = partial(private_root, SEED)


def composed(*changes: str, method: str = "eris+dsc") -> Composition:
    config = load_config(changes=[f"seed={SEED}", "members=7", "aggregators=4", f"method={method}", *changes])
    return compose(config, TASK.spec, [TASK.samples(k) for k in range(7)])


def roles_of(made: Composition, **options: object) -> InProcess:
    rules = Rules(made.run, made.aggregators, made.config.participation)
    return InProcess(made.recipe, rules, made.roster, TASK.initial(initial_seed(SEED)), root, **options)


def train(member: Member, plan: RoundPlan) -> LocalResult:
    seed = training_seed(root(member.peer).child("round", plan.round))
    return TASK.train(member.peer, member.look(), {}, round=plan.round, seed=seed)


@pytest.mark.parametrize("changes", [(), ("participation=0.6",), ("shards.schedule=redraw", "compression.keep=0.3")])
def test_played_rounds_end_with_the_simulators_bits(changes: tuple[str, ...], tmp_path: Path) -> None:
    roles = roles_of(composed(*changes))
    verdicts = [roles.play(train) for _ in range(4)]
    simulated = play(settings(f"seed={SEED}", "aggregators=4", *changes, method="eris+dsc"), tmp_path, task=TASK)
    assert {member.replica.digest() for member in roles.members.values()} == {simulated.simulation.replica.digest()}
    assert [verdict.round for verdict in verdicts] == [0, 1, 2, 3]
    assert not any(verdict.lost_shards for verdict in verdicts)


def test_who_lacks_a_committed_shard_fetches_it() -> None:
    roles, plain = roles_of(composed()), roles_of(composed())
    plain.play(train)
    plan = roles.plan()
    roles.begin(plan)
    roles.upload(plan, roles.contribute(plan, train))
    first, *rest = roles.cut(plan)
    roles.publish(plan, [first], to=[roles.members[k] for k in (0, 2, 4, 6)])
    roles.publish(plan, rest)
    verdict = roles.decide()
    assert not verdict.lost_shards
    roles.conclude(verdict)
    digests = {member.replica.digest() for member in roles.members.values()}
    assert digests == {plain.members[0].replica.digest()}


def test_a_contribution_that_never_came_is_left_out_at_the_deadline() -> None:
    roles = roles_of(composed(method="eris"))
    plan = roles.plan()
    roles.begin(plan)
    uploads = roles.contribute(plan, train)
    roles.upload(plan, [upload for upload in uploads if (upload.member, upload.shard) != (5, 2)])
    outcomes = {o.manifest.shard: o.manifest.contributors for o in roles.cut(plan) if isinstance(o, Published)}
    assert outcomes == {0: tuple(range(7)), 1: tuple(range(7)), 2: (0, 1, 2, 3, 4, 6), 3: tuple(range(7))}
    assert roles.now == plan.deadlines.contribute


def test_two_aggregators_of_a_shard_are_compared() -> None:
    roles = roles_of(composed("shards.replicas=2", method="eris"))
    assert not roles.play(train).lost_shards
    plan = roles.plan()
    roles.begin(plan)
    roles.upload(plan, roles.contribute(plan, train))
    outcomes = roles.cut(plan)
    wrong = next(o for o in outcomes if isinstance(o, Published) and o.manifest.aggregator == plan.witnesses[1])
    lied = replace(wrong, manifest=replace(wrong.manifest, hash="0" * 64))
    roles.publish(plan, [lied if outcome is wrong else outcome for outcome in outcomes])
    verdict = roles.decide()
    assert verdict.lost_shards == (wrong.manifest.shard,)
    roles.conclude(verdict)


def test_a_plan_below_a_floor_is_refused() -> None:
    roles = roles_of(composed(), floor=Floor(min_aggregators=5))
    with pytest.raises(FloorError, match="4 aggregators"):
        roles.play(train)


def test_the_example_shows_what_each_role_sees(capsys: pytest.CaptureFixture[str]) -> None:
    before = np.get_printoptions()
    try:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    finally:
        np.set_printoptions(**before)
    lines = capsys.readouterr().out.splitlines()
    assert sum("sends" in line for line in lines) == sum("has shard" in line for line in lines) == 12
    assert sum("publishes" in line for line in lines) == 3
    assert len({line.split()[-1] for line in lines if "moves by" in line}) == 1, "all members end with one digest"
    assert lines[0].startswith("coordinator")
    assert any("has seen no values" in line for line in lines)
