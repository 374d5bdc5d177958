"""Faults in simulation: what they change, and what they must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eris.config import Faults
from eris.errors import TaskError
from eris.events import RoundEnded, ShardPublished, VerdictWritten
from eris.local.numpy_task import QuadraticTask
from eris.seeds import public_root
from eris.simulate.faults import draw_outages, slow_members
from tests.simulate.setting import play, prepare, settings


def test_no_failures_are_no_faults(tmp_path):
    calm = play(settings(), tmp_path / "a")
    zero = play(settings("faults.link_failure=0.0", "faults.aggregator_dropout=0.0"), tmp_path / "b")
    assert calm.digest == zero.digest


def test_if_all_aggregators_are_away_the_model_stays(tmp_path):
    played = prepare(settings("faults.aggregator_dropout=1.0", method="eris+dsc"), tmp_path)
    before = played.simulation.replica.model.copy()
    played.simulation.play(4)
    assert np.array_equal(played.simulation.replica.model, before)
    assert all(event.lost_shards == 7 for event in played.of(RoundEnded))
    assert all(not played.simulation.states.read(member).any() for member in range(7))  # no reference moved


def test_a_drop_out_leaves_exactly_its_shards_unchanged(tmp_path):
    config = settings("faults.aggregator_dropout=0.3", "rounds=1", "data.name=synthetic-quadratic")
    played = prepare(config, tmp_path)
    before = played.simulation.replica.model.copy()
    played.simulation.play(1)
    lost = played.of(VerdictWritten)[0].verdict.lost_shards
    assert len(lost) == 2
    plan = played.composition.recipe.layout(0).trainable
    frozen = np.concatenate([plan.coordinates(shard) for shard in lost])
    moved = played.simulation.replica.model != before
    assert not moved[frozen].any()
    assert moved.sum() == plan.n - frozen.size
    assert {event.lost for event in played.of(ShardPublished) if event.shard in lost} == {"not published"}


@pytest.mark.parametrize(("share", "method"), [(0.04, "eris"), (0.4, "fedavg"), (0.25, "eris")])
def test_a_share_that_is_no_whole_number_of_aggregators_holds_on_average(share, method, tmp_path):
    shards = 1 if method == "fedavg" else 7
    played = prepare(settings(method=method), tmp_path)
    plan = played.simulation._script.plan()
    away = [
        len(draw_outages(Faults(aggregator_dropout=share), replace(plan, round=round), public_root(1)).away)
        for round in range(1000)
    ]
    assert set(away) == {int(share * shards), int(share * shards) + 1}
    assert np.mean(away) == pytest.approx(share * shards, abs=0.05)


@pytest.mark.parametrize(("normalisation", "factor"), [("none", 0.6), ("contributors", 1.0)])
def test_failing_links_shrink_the_step_unless_it_is_renormalised(normalisation, factor, tmp_path):
    """Members that all want the same step: u = (1 − q)·g on average without, exactly g with renormalisation."""
    task = QuadraticTask(np.full((7, 4000), 5.0))
    changes = [
        "rounds=1",
        "faults.link_failure=0.4",
        f"server.normalisation={normalisation}",
        "server.min_contributors=1",
    ]
    played = prepare(settings(*changes, "aggregators=7"), tmp_path, task=task)
    before = played.simulation.replica.model.copy()
    whole = before - 0.1 * (before - 5.0)
    played.simulation.play(1)
    ratio = (played.simulation.replica.model - before) / (whole - before)
    lost = {e.shard for e in played.of(VerdictWritten)[0].verdict.shards if not e.committed}
    assert not lost
    assert ratio.mean() == pytest.approx(factor, abs=0.12 if factor < 1 else 1e-5)


def test_a_shard_with_too_few_contributors_is_not_published(tmp_path):
    played = play(settings("faults.link_failure=0.6", "server.min_contributors=4"), tmp_path)
    published = played.of(ShardPublished)
    assert {event.lost for event in published} == {"", "too-few"}
    for event in published:
        assert (event.lost == "too-few") == (len(event.contributors) < 4)


def test_slow_members_come_too_late(tmp_path):
    slow = ["faults.slow_members=0.3", "faults.slow_factor=100.0", "network.compute=1.0", "network.deadline=20.0"]
    played = play(settings(*slow), tmp_path)
    who = slow_members(played.config.faults, 7, played.composition.recipe.public)
    assert len(who) == 2
    for event in played.of(ShardPublished):
        assert set(event.contributors) == set(range(7)) - who
    patient = play(settings(*slow[:3]), tmp_path / "patient")
    assert all(len(event.contributors) == 7 for event in patient.of(ShardPublished))
    assert patient.of(RoundEnded)[0].traffic.seconds > played.of(RoundEnded)[0].traffic.seconds


def test_a_link_to_oneself_does_not_fail(tmp_path):
    played = prepare(settings(), tmp_path)
    plan = played.simulation._script.plan()
    outages = draw_outages(Faults(link_failure=1.0), plan, public_root(1))
    for member in plan.participants:
        assert outages.unreached(member, 7) == tuple(shard for shard in range(7) if plan.assignment[shard] != member)


def test_faults_are_the_same_whatever_the_plan_of_shards(tmp_path):
    """Equal draws for equal seeds; other rounds, other draws."""
    played = prepare(settings(), tmp_path)
    plan = played.simulation._script.plan()
    faults = Faults(link_failure=0.4, aggregator_dropout=0.3)
    assert draw_outages(faults, plan, public_root(1)) == draw_outages(faults, plan, public_root(1))
    assert draw_outages(faults, plan, public_root(1)) != draw_outages(faults, plan, public_root(2))


class Converts(QuadraticTask):
    """Returns its update in another layout or precision."""

    how = staticmethod(lambda update: update)

    def train(self, member, model, memory, *, round, seed):
        result = super().train(member, model, memory, round=round, seed=seed)
        return replace(result, update=self.how(result.update))


def converting(how):
    task = Converts.synthetic(7, 10, public_root(1))
    task.how = how
    return task


@pytest.mark.parametrize("how", [lambda u: u.astype(np.float64), lambda u: np.repeat(u, 2)[::2]])
def test_an_update_that_can_be_converted_exactly_is_as_a_peer_would(how, tmp_path):
    plain = play(settings(method="eris+dsc"), tmp_path / "a", task=converting(lambda update: update))
    other = play(settings(method="eris+dsc"), tmp_path / "b", task=converting(how))
    assert plain.digest == other.digest


def test_an_update_that_would_be_rounded_is_refused(tmp_path):
    with pytest.raises(TaskError, match=r"are not exact in float32 \[peer=0, round=0\]"):
        play(settings(), tmp_path, task=converting(lambda update: update.astype(np.float64) / 3))
