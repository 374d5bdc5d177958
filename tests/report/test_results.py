import json
from pathlib import Path

import pytest

from eris.errors import InputError
from eris.report.figures import figures_of
from eris.report.results import read_run

from .conftest import write_method


def test_the_run_says_in_which_order_its_methods_stand(run: Path) -> None:
    assert [result.name for result in read_run(run)] == ["fedavg", "eris", "eris+dsc"]
    (run / "config.toml").write_text('method = ["eris+dsc", "fedavg", "eris"]\n')
    assert [result.name for result in read_run(run)] == ["eris+dsc", "fedavg", "eris"]


def test_a_method_that_has_not_begun_is_named(run: Path) -> None:
    (run / "config.toml").write_text('method = ["fedavg", "eris", "eris+dsc", "ako"]\nrounds = 30\n')
    waiting = figures_of(read_run(run)[-1])
    assert (waiting.label, waiting.rounds, waiting.rounds_planned, waiting.finished) == ("Ako", 0, 30, False)


def test_a_repeated_round_counts_once_and_the_last_time(tmp_path: Path) -> None:
    write_method(tmp_path, "eris", done=3)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"round": 2, "accuracy": 0.5}) + "\n")
    curve = figures_of(read_run(tmp_path)[0]).curve
    assert curve.round == [1, 2, 3]
    assert curve.accuracy[1] == 0.5


def test_of_other_commands_folders_it_is_said_what_to_open(tmp_path: Path) -> None:
    write_method(tmp_path / "compared" / "fold-0" / "eris", "eris")
    write_method(tmp_path / "up" / "peers" / "peer-0", "eris")
    for folder, instead in (("compared", "compared/fold-0"), ("up", "up/peers/peer-0"), ("none", "")):
        with pytest.raises(InputError, match="there are no results of a run here") as told:
            read_run(tmp_path / folder)
        assert str(told.value).endswith(str(tmp_path / instead) if instead else "`eris run --out` wrote")
        if instead:
            assert read_run(tmp_path / instead)[0].name == "eris"


def test_other_folders_of_a_run_are_not_methods(run: Path) -> None:
    (run / "checkpoint").mkdir()
    (run / "checkpoint" / "state.json").write_text("{}")
    assert len(read_run(run)) == 3
