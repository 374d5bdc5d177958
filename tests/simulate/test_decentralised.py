"""Runs in which members have models of their own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eris.errors import ConfigError
from eris.events import RoundEnded, RunEnded, Sent
from eris.simulate.method_run import MethodRun
from eris.simulate.peer_exposure import view_among
from eris.simulate.run import open_engine, run
from eris.simulate.script import read_verdicts
from tests.simulate.setting import settings

METHODS = ("gossip", "shatter", "ako", "qdpsgd")


def played(folder, method, *changes, resume=False, **options):
    config = settings(*changes, method=method)
    engine, events = open_engine(config), []
    try:
        made = MethodRun(engine.facts.compose(config), folder, engine, listeners=[events.append], **options)
        summary = made.run(resume=resume)
    finally:
        engine.close()
    return made, summary, events


@pytest.mark.parametrize("method", METHODS)
def test_workers_change_nothing(method, tmp_path):
    keeps = ["local.keep_state=true", "rounds=3"]
    _, one, _ = played(tmp_path / "one", method, *keeps)
    _, two, _ = played(tmp_path / "two", method, *keeps, "workers=2")
    assert one["model_digest"] == two["model_digest"]
    assert one["final_accuracy"] == two["final_accuracy"]


@pytest.mark.parametrize("method", METHODS)
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(method, tmp_path):
    keeps = ["local.keep_state=true", "rounds=6"]
    _, whole, _ = played(tmp_path / "whole", method, *keeps)
    asked = iter(range(1000))
    _, part, _ = played(
        tmp_path / "part", method, *keeps, stopped=lambda: next(asked) > 3 * 7 + 2, checkpoint_seconds=0.0
    )
    assert (part["finished"], part["rounds"]) == (False, 3)
    _, again, _ = played(tmp_path / "part", method, *keeps, resume=True)
    assert again["model_digest"] == whole["model_digest"]
    assert again["exposure"] == whole["exposure"]
    lines = [(tmp_path / name / "metrics.jsonl").read_text(encoding="utf-8") for name in ("whole", "part")]
    plain = [[{**json.loads(line), "seconds": 0} for line in text.splitlines()] for text in lines]
    assert plain[0] == plain[1]


def test_mean_worst_and_distance_are_reported(tmp_path):
    made, _, events = played(tmp_path, "gossip", "baselines.degree=2", "evaluate_every=2", "rounds=5")
    ended = [event.metrics for event in events if isinstance(event, RoundEnded)]
    assert [("accuracy" in metrics) for metrics in ended] == [False, True, False, True, True]
    for metrics in ended[1::2]:
        assert metrics["worst_accuracy"] <= metrics["accuracy"]
        assert metrics["worst_loss"] >= metrics["loss"]
    crowd = made.simulation.replica
    mean = crowd.models.mean(axis=0)
    distance = np.sqrt(((crowd.models - mean) ** 2).sum(axis=1).mean())
    assert ended[-1]["consensus_distance"] == pytest.approx(distance, rel=1e-4)
    assert distance > 0


def test_gossip_with_everybody_is_fedavg(tmp_path):
    """Equal weights and one model after every round: the same training, averaged in another form."""
    same = ["server.weights=uniform", "rounds=5"]
    gossip, own, events = played(tmp_path / "a", "gossip", *same)
    central, server, _ = played(tmp_path / "b", "fedavg", *same)
    np.testing.assert_allclose(gossip.simulation.replica.model, central.simulation.replica.model, atol=1e-5)
    assert own["final_accuracy"] == pytest.approx(server["final_accuracy"], abs=0.02)
    ended = [event for event in events if isinstance(event, RoundEnded)]
    assert all(event.metrics["consensus_distance"] == 0 for event in ended)


@pytest.mark.parametrize(
    ("method", "of_round", "union"),
    [("gossip", 1.0, 1.0), ("ako", 6 / 27, 1.0), ("qdpsgd", 1.0, 1.0)],
)
def test_exposure_is_what_others_were_sent(method, of_round, union, tmp_path):
    _, summary, events = played(tmp_path, method, "rounds=5")
    assert summary["exposure"]["largest_share_per_round"] == pytest.approx(of_round)
    assert summary["exposure"]["union_over_rounds"] == pytest.approx(union)
    lines = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["largest_share"] == pytest.approx(of_round)
    assert any(isinstance(event, RunEnded) for event in events)


def test_what_is_sent_is_what_events_say(tmp_path):
    _, summary, events = played(tmp_path, "shatter", "rounds=3")
    sent = sum(sum(event.bytes) for event in events if isinstance(event, Sent))
    assert sent == summary["bytes"]["total"]
    shares = {
        (event.round, event.member, receiver): 0.0
        for event in events if isinstance(event, Sent) for receiver in event.reached
    }  # fmt: skip
    for event in (event for event in events if isinstance(event, Sent)):
        for receiver in event.reached:
            shares[event.round, event.member, receiver] += event.support.size / 27
    assert summary["exposure"]["largest_share_per_round"] == pytest.approx(max(shares.values()))


def test_a_view_is_what_reached_the_observers(tmp_path):
    made, _, events = played(tmp_path, "shatter", "rounds=1")
    sent = [event for event in events if isinstance(event, Sent)]
    for observers in ({0}, {2, 5}, set(range(7))):
        seen = [view_among(event, observers, 27) for event in sent]
        assert [bool(view.size) for view in seen] == [bool(observers & set(event.reached)) for event in sent]
        for view, event in zip(seen, sent, strict=True):
            assert view.size in (0, event.support.size)
    whole = {view.member: 0 for view in seen}
    for view in seen:
        whole[view.member] += view.size
    assert set(whole.values()) == {27}  # all members together were sent everything
    chunks = made.simulation.replica.exchange.chunks
    assert sorted({event.support.size for event in sent}) == sorted(set(chunks.sizes.tolist()))


def test_noise_goes_with_shatter(tmp_path):
    noisy = ["privacy.noise_multiplier=1.0", "privacy.clip=0.5", "rounds=2"]
    _, summary, _ = played(tmp_path / "a", "shatter", *noisy)
    _, still, _ = played(tmp_path / "b", "shatter", "rounds=2")
    assert summary["transforms"].startswith("own_model() → clip_by_norm(0.5) → gaussian_noise(1.0")
    assert "for one member (replacement), 2 rounds" in summary["privacy"]["text"]
    assert summary["model_digest"] != still["model_digest"]


def test_there_are_no_verdicts_to_replay(tmp_path):
    run(settings(method="eris"), tmp_path / "a")
    assert read_verdicts(tmp_path / "a" / "verdicts.jsonl")
    with pytest.raises(ConfigError, match="no verdicts to replay"):
        run(settings(method="ako"), tmp_path / "b", replay=tmp_path / "a" / "verdicts.jsonl")


def test_a_task_of_ones_own_gets_no_noise_inside(tmp_path):
    from eris.tasks import build_task

    config = settings(method="fedavg-dpsgd")
    task = build_task(settings().model_dump(mode="json", exclude_none=True))
    with pytest.raises(ConfigError, match="DP-SGD cannot be added to it"):
        run(config, tmp_path, task=task)


def test_members_may_begin_with_models_of_their_own(tmp_path):
    """Then they are far apart at first; averaging brings them together, and a stopped run still goes on."""
    digits = ["data.name=mnist-sample", "data.samples=4", "data.test_samples=20", "members=5", "local.batch=full"]
    own = [*digits, "baselines.start=own", "baselines.degree=2", "rounds=3", "local.lr=0.01"]
    made, whole, events = played(tmp_path / "own", "gossip", *own)
    _, _, same = played(tmp_path / "same", "gossip", *own, "baselines.start=same")
    apart, together = (distances(found) for found in (events, same))
    assert apart[0] > 10 * together[0]
    assert apart[0] > apart[1] > apart[2]
    engine = open_engine(settings(*own, method="gossip"))
    starts = type(made.simulation)(made.composition, engine, None, None).replica.models
    assert len({start.tobytes() for start in starts}) == 5
    asked = iter(range(1000))
    played(tmp_path / "part", "gossip", *own, stopped=lambda: next(asked) > 7, checkpoint_seconds=0.0)
    _, again, _ = played(tmp_path / "part", "gossip", *own, resume=True)
    assert again["model_digest"] == whole["model_digest"]


def distances(events):
    return [event.metrics["consensus_distance"] for event in events if isinstance(event, RoundEnded)]
