"""Crowds: members by the thousand, of whom few take part, against the same federation listed one by one."""

from __future__ import annotations

import json

import numpy as np
import pytest

import eris.compose
from eris.config import load_config
from eris.errors import InputError
from eris.events import RoundEnded, RoundStarted, Sent, ShardPublished, VerdictWritten
from eris.exposure import ExposureLedger
from eris.protocol.crowd import Crowd
from eris.simulate.run import resume, run
from tests.simulate.setting import play, settings

FEW = ["members=23", "participation=0.3", "aggregators=4"]


@pytest.fixture
def everybody_is_a_crowd(monkeypatch):
    monkeypatch.setattr(eris.compose, "_MOST_LISTED", 2)


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("eris", []),
        ("eris+dsc", ["local.keep_state=true"]),
        ("fedavg", []),
        ("eris", ["faults.link_failure=0.3", "faults.aggregator_dropout=0.2"]),
        ("eris+dsc", ["faults.slow_members=0.3", "network.deadline=0.0001", "server.min_contributors=1"]),
        ("eris", ["server.weights=uniform", "shards.schedule=redraw", "shards.replicas=2"]),
        ("eris", ["data.name=synthetic-quadratic", "server.encoding=fixed"]),
        ("eris", ["privacy.masking=pairs", "server.encoding=fixed"]),
    ],
)
def test_a_crowd_is_the_same_federation(method, changes, tmp_path, monkeypatch):
    config = settings(*FEW, *changes, method=method)
    listed = play(config, tmp_path / "a")
    monkeypatch.setattr(eris.compose, "_MOST_LISTED", 2)
    crowd = play(config, tmp_path / "b")
    assert isinstance(crowd.composition.roster, Crowd)
    assert crowd.digest == listed.digest
    for kind in (RoundStarted, ShardPublished):
        same = ["round", "participants", "assignment", "witnesses", "shard", "contributors", "bytes", "lost"]
        told = [[getattr(event, name, None) for name in same] for event in listed.of(kind)]
        assert told == [[getattr(event, name, None) for name in same] for event in crowd.of(kind)]
    assert [event.bytes for event in listed.of(Sent)] == [event.bytes for event in crowd.of(Sent)]
    if "privacy.masking=pairs" not in changes:  # whoever is on the list may unmask: another peer, as many bytes
        assert [event.traffic for event in listed.of(RoundEnded)] == [event.traffic for event in crowd.of(RoundEnded)]
    ledgers = [
        ExposureLedger(played.composition.recipe, 23, tmp_path / name, server=method == "fedavg")
        for name, played in (("c", listed), ("d", crowd))
    ]
    for ledger, played in zip(ledgers, (listed, crowd), strict=True):
        for event in played.events:
            ledger(event)
    assert ledgers[0].summary() == ledgers[1].summary()


def test_a_plan_lists_whom_it_concerns_and_the_others_in_one_line(tmp_path, everybody_is_a_crowd):
    played = play(settings(*FEW), tmp_path)
    for event in played.of(VerdictWritten):
        plan = event.plan
        concerned = sorted({*plan.participants, *plan.assignment})
        assert [entry.peer for entry in plan.roster] == [*concerned, 23]
        assert plan.roster[-1].name == f"{23 - len(concerned)} others"
        assert not event.verdict.late
        every = np.array([20.0] * 23)
        assert plan.weights[plan.participants[0]] == np.float32(every[0] / every.sum())


def test_a_member_without_weight_is_refused_in_a_crowd_as_anywhere(everybody_is_a_crowd):
    config, spec = settings("members=5", "participation=0.6"), eris.tasks.build_task(settings().model_dump()).spec
    with pytest.raises(InputError, match="weight is 0"):
        eris.compose.compose(config, spec, [3, 4, 0, 5, 6])


def test_a_hundred_thousand_members_leave_no_trace_but_of_those_who_took_part(tmp_path):
    changes = [
        "method=eris+dsc", "members=100_000", "participation=0.0002", "rounds=3", "data.name=synthetic-clouds",
        "data.samples=5", "local.batch=full", "workers=1", "evaluate_every=3", "faults.link_failure=0.1",
    ]  # fmt: skip
    config = load_config(changes=changes)
    assert config.aggregators == 50
    result = run(config, tmp_path / "run")
    assert "50 of 100,000 members aggregate, which is the default" in result.summaries[0]["notes"][0]
    lines = (tmp_path / "run" / "verdicts.jsonl").read_text().splitlines()
    assert all(len(json.loads(line)["plan"]["roster"]) <= 20 + 50 + 1 for line in lines)
    n = result.summaries[0]["parameters"]
    assert (tmp_path / "run" / "checkpoint" / "seen.bits").stat().st_size <= 60 * -(-n // 8)
    assert len(list((tmp_path / "run" / "checkpoint" / "states").iterdir())) <= 60
    again = run(config, tmp_path / "again", replay=tmp_path / "run" / "verdicts.jsonl")
    assert again.summaries[0]["model_digest"] == result.summaries[0]["model_digest"]


def test_a_crowd_goes_on_where_it_was_stopped(tmp_path, everybody_is_a_crowd):
    config = settings(*FEW, "rounds=6", method="eris+dsc")
    whole = run(config, tmp_path / "whole")
    rounds = []

    def count(event):
        if isinstance(event, RoundEnded):
            rounds.append(event.round)

    run(config, tmp_path / "run", listeners=[count], stopped=lambda: len(rounds) >= 3, checkpoint_seconds=0.0)
    resumed = resume(tmp_path / "run")
    assert resumed.summaries[0]["model_digest"] == whole.summaries[0]["model_digest"]
    exposures = [(tmp_path / name / "exposure.json").read_bytes() for name in ("whole", "run")]
    assert exposures[0] == exposures[1]
