"""Fixed point in the simulator: the same bits however the work is spread, stopped, replayed; and nothing silent."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from eris.config import load_config
from eris.errors import RunStopped
from eris.events import MemberTrained, RoundEnded, Sent, ShardPublished
from eris.local.spec import ModelSpec, TensorSpec, Vector
from eris.local.task import LocalResult, Memory
from eris.seeds import Seed
from eris.simulate.run import resume, run
from eris.simulate.work import Job
from tests.simulate.setting import SMALL, play, settings

FIXED = "server.encoding=fixed"
DSC = [*SMALL, "method=eris+dsc", FIXED, "server.optimizer=fedadam", "server.optimizer_options={lr=0.05}"]


def digest(folder, *changes: str) -> str:
    return str(run(load_config(changes=[*DSC, *changes]), folder).summaries[0]["model_digest"])


def test_one_worker_or_two_any_number_of_aggregators(tmp_path):
    found = {
        digest(tmp_path / f"{workers}-{aggregators}", f"workers={workers}", f"aggregators={aggregators}")
        for workers, aggregators in ((1, 1), (2, 2), (2, 7))
    }
    assert len(found) == 1


def test_stopped_and_gone_on_with_it_ends_as_if_nothing_had_happened(tmp_path):
    asked, rounds = iter(range(10**9)), "rounds=8"
    config = load_config(changes=[*DSC, rounds])
    assert not run(config, tmp_path / "run", stopped=lambda: next(asked) > 20).finished
    assert resume(tmp_path / "run").summaries[0]["model_digest"] == digest(tmp_path / "whole", rounds)


def test_a_replay_ends_in_the_digest_of_the_run(tmp_path):
    first = digest(tmp_path / "first", "faults.link_failure=0.3", "faults.aggregator_dropout=0.3")
    verdicts = tmp_path / "first" / "verdicts.jsonl"
    again = run(load_config(changes=DSC), tmp_path / "again", replay=verdicts).summaries[0]
    assert again["model_digest"] == first
    with pytest.raises(RunStopped, match="computed different values"):
        run(load_config(changes=[*DSC, "server.limit=64.0"]), tmp_path / "other", replay=verdicts)


def test_it_is_close_to_floats_and_the_limit_follows(tmp_path):
    """The same federation with floats ends within a few steps of the grid; other bits, or it would test nothing."""
    (one, two) = (play(settings(*changes), tmp_path / name) for name, changes in (("a", ()), ("b", (FIXED,))))
    ours, theirs = one.simulation.replica.model, two.simulation.replica.model
    assert not np.array_equal(ours, theirs)
    assert np.allclose(ours, theirs, atol=1e-6)
    scale = two.simulation.replica.scale
    assert scale is not None
    largest = max(float(np.abs(event.values).max()) for event in two.of(ShardPublished)[-7:])  # c = 1, no shift
    assert scale.limit / 2 <= 16 * largest < scale.limit


def test_views_hold_what_the_aggregators_can_read(tmp_path):
    """What is told of a contribution is what its whole numbers mean, and the published means add up from them."""
    played = play(settings(FIXED, "aggregators=3", "rounds=1"), tmp_path)
    sent, plan = played.of(Sent), played.composition.recipe.layout(0).trainable
    total = sum(np.float64(event.weight) * event.values for event in sent)
    published = plan.reassemble([event.values for event in played.of(ShardPublished)])
    assert np.abs(total - published).max() < 1e-6
    assert all(event.values.dtype == np.float32 for event in sent)


class Spikes:
    """A task whose members send one large value each, and have one running statistic."""

    members = 4
    spec = ModelSpec(
        (TensorSpec("weight", (200,), "float32", "trainable"), TensorSpec("variance", (1,), "float32", "buffer"))
    )

    def __init__(self, spike: float, nan_of: int = -1, buffer: float = 5000.0) -> None:
        self.spike, self.nan_of, self.buffer = spike, nan_of, buffer

    def samples(self, member: int) -> int:
        return 1 + member

    def initial(self, seed: Seed) -> Vector:
        return np.zeros(201, np.float32)

    def memory(self, member: int) -> Memory:
        return {}

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        update = np.full(201, 0.01, np.float32)
        update[member] = math.nan if member == self.nan_of else self.spike
        update[200] = -self.buffer
        return LocalResult(update, 1 + member)

    def evaluate(self, model: Vector) -> dict[str, float]:
        return {}


def spiky(folder, task: Spikes, *changes: str):
    few = ["members=4", "rounds=2", "server.min_contributors=1", "data.name=synthetic-quadratic"]
    return play(settings(FIXED, *few, *changes), folder, task=task)


def test_what_the_limit_cuts_is_counted_and_shown(tmp_path):
    played = spiky(tmp_path, Spikes(3.0))
    first, second = (event.metrics.get("limited", 0) for event in played.of(RoundEnded))
    assert first == 4  # R = 1 in the first round
    assert second == 0  # the limit has followed: 16 × what was left of the largest
    assert [event.limited for event in played.of(MemberTrained)] == [1] * 4 + [0] * 4
    assert played.simulation.replica.model[200] == 10_000.0  # buffers lie far beyond R, and are not cut


def test_who_would_be_cut_too_often_by_a_configured_limit_sends_nothing(tmp_path, caplog):
    played = spiky(tmp_path, Spikes(0.01), "server.limit=0.0078125")
    assert "200 of 200 values lie outside ±0.0078125: set server.limit = 0.015625" in caplog.text
    assert [event.metrics["not_finite"] for event in played.of(RoundEnded)] == [4, 4]
    assert {event.lost for event in played.of(ShardPublished)} == {"too-few"}
    assert not played.simulation.replica.model.any()


def test_a_member_whose_values_are_no_numbers_sends_nothing(tmp_path):
    played = spiky(tmp_path, Spikes(0.5, nan_of=2))
    sent = {event.member: event for event in played.of(Sent) if event.round == 0}
    assert (sent[2].reached, sum(sent[2].bytes)) == ((), 0)
    assert sent[1].reached == (0, 1, 2, 3)
    assert played.of(ShardPublished)[0].contributors == (0, 1, 3)
    assert np.isfinite(played.simulation.replica.model).all()


def test_bytes_of_values_stay_and_buffers_take_eight(tmp_path):
    task = Spikes(0.5)
    one, two = (
        play(settings("members=4", "rounds=1", "data.name=synthetic-quadratic", *extra), tmp_path / name, task=task)
        for name, extra in (("a", ()), ("b", (FIXED,)))
    )
    away = [sum(sum(event.bytes) for event in played.of(Sent)) for played in (one, two)]
    assert away[1] - away[0] == 3 * 4  # one buffer, of three members that do not own its shard


def test_a_job_knows_its_scale_and_compares_by_it():
    job = Job(0, 1, limit=0.5, weight=0.25)
    assert replace(job, missing=(2,)) != job
    assert replace(job, limit=1.0) != job
