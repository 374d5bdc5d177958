"""A method that fails is a row among the others, with the reason; alone, it leaves nothing in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from eris.cli import run as run_command
from eris.config import Config, load_config
from eris.errors import TaskError
from eris.local.numpy_task import QuadraticTask
from eris.seeds import public_root
from eris.simulate.comparison import Comparison, arm
from eris.simulate.run import resume, run

SMALL = ["members=4", "rounds=3", "workers=1", "data.name=synthetic-quadratic"]


class Stubborn(QuadraticTask):
    """Trains only the models that the first method came to from the same start: compressed ones are others."""

    def train(self, member: int, model: Any, memory: Any, *, round: int, seed: Any) -> Any:
        seen = self.__dict__.setdefault("seen", {})
        if round == 0:  # a fold of its own has a start of its own
            self.start = model.tobytes()
        if seen.setdefault((self.start, round), model.tobytes()) != model.tobytes():
            raise ValueError("what model is this?")
        return super().train(member, model, memory, round=round, seed=seed)


class Broken(QuadraticTask):
    """Fails at once, or in a later round."""

    fails = 0

    def train(self, member: int, model: Any, memory: Any, *, round: int, seed: Any) -> Any:
        if round == self.fails:
            raise ValueError("no")
        return super().train(member, model, memory, round=round, seed=seed)


def settings(*changes: str) -> Config:
    return load_config(changes=[*SMALL, *changes])


def made(kind: type[QuadraticTask]) -> Any:
    return kind.synthetic(4, 24, public_root(3))


def task(config: Config, peer: int) -> Any:
    """Give `eris run --task` one that fails in the second round of what is compressed."""
    del config, peer
    return made(Stubborn)


def broken(config: Config, peer: int) -> Any:
    del config, peer
    return made(Broken)


METHODS = 'method=["fedavg", "eris+dsc", "eris"]'


def test_the_others_go_on(tmp_path: Path) -> None:
    result = run(settings(METHODS), tmp_path / "run", task=made(Stubborn))
    assert [summary["method"] for summary in result.summaries] == ["fedavg", "eris+dsc", "eris"]
    assert [summary["finished"] for summary in result.summaries] == [True, False, True]
    assert result["fedavg"]["model_digest"] == result["eris"]["model_digest"]
    failed = result["eris+dsc"]
    why = "local training failed with ValueError: what model is this? [peer=0, round=1]"
    assert (failed["failed"], failed["rounds"], failed["model_digest"]) == (why, 1, "")
    assert failed["notes"][0] == f"eris+dsc failed after 1 rounds: {why}"
    assert isinstance(result.failures[0], TaskError)
    assert not result.finished
    assert json.loads((tmp_path / "run" / "eris+dsc" / "summary.json").read_text())["failed"] == why


def test_what_failed_can_be_tried_again(tmp_path: Path) -> None:
    plain = run(settings(METHODS), tmp_path / "plain", task=made(QuadraticTask))
    run(settings(METHODS), tmp_path / "run", task=made(Stubborn))
    again = resume(tmp_path / "run", task=made(QuadraticTask))
    assert again.finished
    assert [each["model_digest"] for each in again.summaries] == [each["model_digest"] for each in plain.summaries]


def test_the_command_shows_the_row_and_its_exit_code_says_that_something_failed(tmp_path: Path) -> None:
    words = ["run", "--task", "tests.simulate.test_failing_methods:task", "--out", str(tmp_path / "run")]
    for change in ("members=4", "rounds=3", "workers=1", METHODS):
        words += ["--set", change]
    app = typer.Typer()
    app.callback()(lambda: None)
    run_command.register(app)
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 15, ended.output
    assert "ERIS+DSC (failed)" in ended.output
    assert "eris+dsc failed after 1 rounds: local training failed with ValueError: what model is this?" in ended.output
    page = (tmp_path / "run" / "report.html").read_text()
    assert "ERIS+DSC failed: local training failed with ValueError: what model is this?" in page
    assert "FedAvg finished all 3 rounds" in page


def test_one_that_fails_alone_in_its_first_round_leaves_nothing(tmp_path: Path) -> None:
    for methods in ("method=eris", METHODS):
        with pytest.raises(TaskError, match="local training failed with ValueError: no"):
            run(settings(methods), tmp_path / "run", task=made(Broken))
        assert not (tmp_path / "run").exists()
    assert run(settings("method=eris"), tmp_path / "run", task=made(QuadraticTask)).finished


def test_what_was_in_the_folder_before_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TaskError):
        run(settings("method=eris"), tmp_path, task=made(Broken))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_one_that_fails_later_can_be_gone_on_with(tmp_path: Path) -> None:
    late = made(Broken)
    late.fails = 2
    with pytest.raises(TaskError):
        run(settings("method=eris"), tmp_path / "run", task=late, checkpoint_seconds=0)
    whole = run(settings("method=eris"), tmp_path / "whole", task=made(QuadraticTask))
    gone_on = resume(tmp_path / "run", task=made(QuadraticTask))
    assert gone_on["eris"]["model_digest"] == whole["eris"]["model_digest"]


def test_a_comparison_has_a_row_for_it_too(tmp_path: Path) -> None:
    arms = [arm("fedavg"), arm("eris+dsc"), arm("eris")]
    comparison = Comparison(settings(), arms, tmp_path / "compare", folds=2, task=made(Stubborn))
    result = comparison.run()
    assert list(comparison.failures) == ["eris+dsc"]
    lines = {line["label"]: line for line in result["methods"]}
    assert lines["eris+dsc"]["failed"] == str(comparison.failures["eris+dsc"])
    assert lines["eris+dsc"]["table"]["loss"]["mean"] is None
    assert lines["eris"]["table"]["loss"] == lines["fedavg"]["table"]["loss"]
    assert len(lines["eris"]["folds"]) == 2
