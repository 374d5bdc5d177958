"""Members of a real federation score the model together: figures, best model and end are those of the simulation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eris.config import Config
from eris.errors import FloorError, TaskError
from eris.events import Sent
from eris.local.numpy_task import LogisticTask
from eris.protocol.floor import Floor
from eris.simulate.run import resume, run
from tests.peer.town import Town, noting, settings, town

ALLOWED = Floor(min_contributors=1, share_figures=True)
CLOUDS = ["data.name=synthetic-clouds", "local.epochs=3", "local.lr=0.9", "members=4", "rounds=12"]
SHARED = [*CLOUDS, "stop=patience:2", "keep=best", 'figures=["accuracy", "loss"]', "server.min_contributors=3"]
MASKED = ["server.encoding=fixed", "privacy.masking=pairs"]


def play(place: Town, *names: str, **options: Any) -> dict[str, dict[str, Any]]:
    """Let sessions of these peers play to the end, and return their summaries."""
    summaries: dict[str, dict[str, Any]] = {}

    def keep(name: str) -> None:
        summaries[name] = place.session(name, floor=ALLOWED, **options).run()

    for name in names or place.names:
        place.start(name, lambda name=name: keep(name))
    place.wait()
    return summaries


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def figures(folder: Path) -> list[list[int]]:
    return [line["verdict"]["figures"] for line in lines(folder / "verdicts.jsonl")]


@pytest.mark.parametrize("more", [[], MASKED], ids=["plain", "masked"])
def test_figures_end_and_model_are_the_simulations(more: list[str], tmp_path: Path) -> None:
    config = settings(*SHARED, *more)
    sent: list[Sent] = []
    with town(tmp_path / "town", config) as place:
        summaries = play(place, listeners=noting(sent, Sent))
    wanted = run(config, tmp_path / "run")["eris"]
    assert wanted["rounds"] < 12, "the run ended before its last round"
    assert wanted["choice"]["stopped"]
    assert wanted["choice"]["kept"]
    for name, summary in summaries.items():
        for key in ("rounds", "finished", "choice", "model_digest"):
            assert summary[key] == wanted[key], key
        folder = tmp_path / "town" / "peers" / name
        assert figures(folder) == figures(tmp_path / "run")
        assert (folder / "model.safetensors").read_bytes() == (tmp_path / "run" / "model.safetensors").read_bytes()
        theirs, ours = (lines(each / "metrics.jsonl") for each in (folder, tmp_path / "run"))
        for key in ("members_accuracy", "members_loss"):
            assert [line[key] for line in theirs] == [line[key] for line in ours]
    replayed = run(config, tmp_path / "again", replay=tmp_path / "town" / "peers" / "amber" / "verdicts.jsonl")
    assert replayed["eris"]["model_digest"] == wanted["model_digest"]


def test_what_is_counted_is_what_is_sent(tmp_path: Path) -> None:
    config = settings(*SHARED, "rounds=2", *MASKED)
    theirs, ours = list[Sent](), list[Sent]()
    with town(tmp_path / "town", config) as place:
        play(place, listeners=noting(theirs, Sent))
    run(config, tmp_path / "run", listeners=noting(ours, Sent))
    counted = {(event.round, event.member): event.bytes for event in ours if isinstance(event, Sent)}
    assert {(event.round, event.member): event.bytes for event in theirs} == counted


class _Away(Exception):
    """This peer's process dies."""


def dies_in(session: Any, round: int) -> Callable[[], None]:
    def listener(point: str, facts: dict[str, Any]) -> None:
        if point == "reported" and facts["round"] == round:
            raise _Away

    session.node.fault_points.listener = listener

    def run_and_die() -> None:
        with pytest.raises(_Away):
            session.run()

    return run_and_die


def test_who_dies_and_comes_back_and_a_coordinator_that_does_end_with_the_same(tmp_path: Path) -> None:
    config = settings(*SHARED)
    with town(tmp_path / "town", config, checkpoint_every=1) as place:
        place.start("amber", dies_in(place.session("amber", floor=ALLOWED), 2))
        summaries: dict[str, Any] = {}
        for name in place.names[1:]:
            session = place.session(name, floor=ALLOWED)
            place.start(name, lambda name=name, session=session: summaries.update({name: session.run()}))
        place.wait("amber")
        place.start("amber", lambda: summaries.update(amber=place.session("amber", floor=ALLOWED).run()))
        place.wait()
        folders = [tmp_path / "town" / "peers" / name for name in place.names]
        assert len({summary["model_digest"] for summary in summaries.values()}) == 1
        assert {summary["ended"] for summary in summaries.values()} == {"finished"}
        assert len({json.dumps(summary["choice"]) for summary in summaries.values()}) == 1
        assert summaries["amber"]["choice"]["stopped"]
        replayed = run(config, tmp_path / "again", replay=folders[1] / "verdicts.jsonl")
        assert replayed["eris"]["model_digest"] == summaries["amber"]["model_digest"]
        place.coordinator.close()
        place.coordinator = place.open_coordinator()  # which learns from its journal that the run is over
        again = play(place)
        assert {name: summary["model_digest"] for name, summary in again.items()} == {
            name: summary["model_digest"] for name, summary in summaries.items()
        }
        assert {summary["ended"] for summary in again.values()} == {"finished"}


def test_nothing_leaves_a_member_that_has_not_allowed_it(tmp_path: Path) -> None:
    config = settings(*SHARED)
    with town(tmp_path, config) as place:
        with pytest.raises(FloorError, match="allow it with --share-figures"):
            place.session("amber", floor=Floor(min_contributors=1))
        assert not (tmp_path / "peers").exists(), "nothing was begun"


class _Unsure(LogisticTask):
    """Says means, or nothing at all."""

    said: Any = None
    score = None

    def evaluate(self, model: Any) -> Any:
        del model
        return self.said


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"loss": 0.5}, "loss is a mean, and means cannot be added up over members"),
        ({}, "this member has no held-out data to score on"),
        ({"mae": (1.0, 2.0)}, "figures names 'loss', but this task only has mae"),
        ({"loss": (0.0, 0)}, "loss was scored on 0 samples"),
    ],
)
def test_what_cannot_be_added_up_is_refused_before_anybody_waits(said: Any, words: str, tmp_path: Path) -> None:
    config = settings(*CLOUDS, "keep=best")
    with town(tmp_path, config) as place:
        task = place.task()
        task.__class__ = type("Unsure", (_Unsure,), {"said": said})
        with pytest.raises(TaskError, match=words):
            place.session("amber", floor=ALLOWED, task=task)
        with pytest.raises(TaskError, match=words):
            run(config, tmp_path / "run", task=task)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_simulation_that_was_stopped_goes_on_to_the_same_end(workers: int, tmp_path: Path) -> None:
    config: Config = settings(*SHARED, f"workers={workers}")
    whole = run(config, tmp_path / "whole")["eris"]
    asked = iter([False] * 20 + [True] * 99)
    run(config, tmp_path / "halves", stopped=lambda: next(asked))
    assert not (summary := json.loads((tmp_path / "halves" / "summary.json").read_text()))["finished"]
    assert 0 < summary["rounds"] < whole["rounds"]
    gone_on = resume(tmp_path / "halves")["eris"]
    for key in ("rounds", "finished", "choice", "model_digest"):
        assert gone_on[key] == whole[key]
    assert figures(tmp_path / "halves") == figures(tmp_path / "whole")
