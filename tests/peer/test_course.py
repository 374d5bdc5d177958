"""Whether a run trains, waits or only seems to: what all hear of it, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.cli.exit_code import ExitCode, code_of_end
from eris.errors import CheckpointError
from eris.events import RoundEnded, RunCourseChanged, RunEnded
from eris.local.spec import ModelSpec
from eris.peer.peer_folder import PeerFolder
from eris.report.page import _named
from eris.report.results import MethodResult
from tests.peer.town import noting, settings, town


class Changed:
    """A task of which some calls are replaced."""

    def __init__(self, task: Any, **calls: Any) -> None:
        self._task = task
        for name, call in calls.items():
            setattr(self, name, call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)


def fail(*given: object, **named: object) -> Any:
    raise ZeroDivisionError("a mistake in somebody's own code")


def test_evaluate_that_raises_costs_its_figures_and_nothing_else(tmp_path: Path) -> None:
    found: list[Any] = []
    with town(tmp_path, settings("members=3", "rounds=3")) as place:
        amber = place.session("amber", task=Changed(place.task(), evaluate=fail), listeners=noting(found, RoundEnded))
        place.start("amber", amber.run)
        for name in place.names[1:]:
            place.start(name, place.session(name).run)
        place.wait()
        digests = [json.loads((tmp_path / "peers" / n / "summary.json").read_text()) for n in place.names]
    assert len({summary["model_digest"] for summary in digests}) == 1
    assert digests[0]["notes"] == [
        "evaluate failed, first after 1 rounds: ZeroDivisionError: a mistake in somebody's own code"
    ]
    assert (digests[0]["state"], digests[0]["final_loss"]) == ("finished", None)
    assert len(found) == 3
    assert digests[1]["final_loss"] is not None


def test_rounds_that_commit_nothing_are_seen_and_end_the_run(tmp_path: Path) -> None:
    """All are here, and one of the three that are needed fails in every round."""
    found: list[Any] = []
    config = settings("members=3", "rounds=1000", "server.min_contributors=3")
    with town(tmp_path, config) as place:
        sessions = [place.session("amber", listeners=noting(found, RunCourseChanged, RunEnded)), place.session("birch")]
        sessions.append(place.session("cedar", task=Changed(place.task(), train=fail)))
        for session in sessions:
            place.start(session.name, session.run)
        place.wait()
        status = place.coordinator.overview()
        summary = json.loads((tmp_path / "peers" / "amber" / "summary.json").read_text())
    assert status.ended == "the run makes no progress: the last 10 rounds committed nothing (too-few)"
    assert (status.state, status.round) == ("failed", 10)
    assert (summary["state"], summary["ended"], summary["finished"]) == ("failed", status.ended, False)
    assert any(event.state == "degraded" and "committed nothing" in event.why for event in found[:-1])
    assert code_of_end(status.ended) is ExitCode.NO_PROGRESS


def test_a_model_that_is_not_finite_is_no_result(tmp_path: Path) -> None:
    with town(tmp_path, settings("members=3", "rounds=2")) as place:
        nodes = [place.node(name) for name in place.names]
        for node in nodes:
            end = node._play_to_the_end
            node._play_to_the_end = lambda node=node, end=end: _spoiled(node, end)  # type: ignore[method-assign]
        found: dict[str, str] = {}
        for node in nodes:
            place.start(node.settings.name, lambda node=node: found.update({node.settings.name: node.run()}))
        place.wait()
    assert set(found.values()) == {"the run makes no progress: the model is not finite"}
    assert nodes[0].events.notes == [
        "the model is not finite: look for a diverging loss, a smaller learning rate helps"
    ]


def _spoiled(node: Any, end: Any) -> str:
    ended = end()
    node.member.replica.model[3] = np.nan
    return str(ended)


def test_a_try_that_failed_in_its_first_round_leaves_nothing_that_blocks_the_next(tmp_path: Path) -> None:
    out = tmp_path / "amber"
    with town(tmp_path / "town", settings("members=3", "rounds=2")) as place:
        first, second = place.federation(), place.federation(config=settings("members=3", "rounds=3"))
        node = place.node("amber")
        folder = PeerFolder(out, first, "amber")
        folder.open()
        folder.save(node.member, node.training)  # as a peer does that ends before its first verdict
        again = PeerFolder(out, second, "amber")
        again.open()
        assert again.rounds() == []
        assert "rounds = 3" in (out / "config.toml").read_text()
        node.member.round = 1
        again.save(node.member, node.training)
        with pytest.raises(CheckpointError, match="belongs to another run"):
            PeerFolder(out, first, "amber").open()


def test_the_first_round_may_be_planned_anew_for_another_model(tmp_path: Path) -> None:
    from tests.coordinate.test_run import MEMBERS, Resumed

    run = Resumed(tmp_path, 0)
    run.run.spec = ModelSpec.flat(12)
    for number in range(MEMBERS):
        run.enter(number)
    plan = run.begin()
    assert (plan.when, plan.spec) == ((1, 0), ModelSpec.flat(12).digest)
    run = Resumed(tmp_path / "later", 2)
    run.run.spec = ModelSpec.flat(12)
    for number in range(MEMBERS):
        run.enter(number)
    run.run._begin()
    assert "2 rounds were played with another model" in run.run.ended


def test_a_report_names_the_model_and_the_data_that_the_peer_had(tmp_path: Path) -> None:
    with town(tmp_path, settings("members=3", "rounds=1")) as place:
        for name in place.names:
            session = place.session(name)
            session._own_task = "clinic:Scans" if name == "amber" else ""
            place.start(name, session.run)
        place.wait()
        summaries = [json.loads((tmp_path / "peers" / n / "summary.json").read_text()) for n in place.names]
    config = {"model": {"name": "lenet5"}, "data": {"name": "mnist-sample"}}
    named = [
        tuple(_named(MethodResult("eris", "", config, (), summary, {}, ()), table) for table in ("model", "data"))
        for summary in summaries[:2]
    ]
    assert named[0][0] == "clinic:Scans"
    assert named[0][1].startswith("its own data (")
    assert named[1] == ("synthetic-quadratic", "synthetic-quadratic")
