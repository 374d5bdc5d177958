import re
from pathlib import Path

import pytest

from eris.report.figures import MethodFigures, figures_of
from eris.report.headline import headline, same_model
from eris.report.results import read_run

from .conftest import write_method


def methods_of(directory: Path) -> list[MethodFigures]:
    return [figures_of(result) for result in read_run(directory)]


def test_equal_digests_are_called_bit_for_bit(run: Path) -> None:
    sentence = headline(methods_of(run))
    assert sentence.startswith("ERIS reached the same model as FedAvg, bit for bit; ERIS+DSC ended 0.6 points below")
    assert sentence.endswith("and uploaded 34× less.")


@pytest.mark.parametrize("digest", ["", "ab12cd" + "0" * 57 + "1"])
def test_equal_accuracy_is_not_an_equal_model(run: Path, digest: str) -> None:
    write_method(run / "eris", "eris", model_digest=digest)
    sentence = headline(methods_of(run))
    assert "bit for bit" not in sentence
    assert "ERIS ended level with FedAvg (96.4 % against 96.4 % accuracy)" in sentence


def test_two_missing_digests_are_not_equal(run: Path) -> None:
    write_method(run / "fedavg", "fedavg", model_digest="")
    write_method(run / "eris", "eris", model_digest="")
    assert "bit for bit" not in headline(methods_of(run))


def test_equal_digests_after_different_rounds_are_no_claim(run: Path) -> None:
    write_method(run / "eris", "eris", rounds=20)
    fedavg, eris, _ = methods_of(run)
    assert fedavg.model_digest == eris.model_digest
    assert not same_model(fedavg, eris)


def test_more_upload_is_said_as_well(run: Path) -> None:
    write_method(run / "eris+dsc", "eris+dsc", bytes={"up_per_member_round": 2_468_720})
    assert headline(methods_of(run)).endswith("and uploaded 10× more.")


def test_many_methods_are_summed_up(tmp_path: Path) -> None:
    for place, name in enumerate(("fedavg", "eris", "ako", "shatter", "priprune")):
        write_method(tmp_path / name, name, final_accuracy=0.9 + place / 100, model_digest=str(place) * 64)
    sentence = headline(methods_of(tmp_path))
    assert "PriPrune ended 4.0 points above FedAvg (94.0 % against 90.0 % accuracy), the best of 4" in sentence
    assert sentence.endswith("ERIS ended 1.0 points above FedAvg (91.0 % against 90.0 % accuracy), the weakest.")


def test_without_accuracy_only_the_rounds_are_claimed(tmp_path: Path) -> None:
    write_method(tmp_path, "eris", final_accuracy=None)
    (tmp_path / "metrics.jsonl").write_text("".join(f'{{"round": {number}}}\n' for number in range(30)))
    assert headline(methods_of(tmp_path)).startswith("ERIS finished 30 rounds with 10 members")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "ERIS reached 30.2 % accuracy in 1 round with 1 member;"),
        ({"final_accuracy": None}, "ERIS reached"),
        ({"finished": False}, "This run is not finished: ERIS finished 1 of 1 round "),
    ],
)
def test_one_round_is_not_in_the_plural(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    write_method(tmp_path, "eris", rounds=1, members=1, **changes)
    sentence = headline(methods_of(tmp_path))
    assert sentence.startswith(says)
    assert not re.search(r"\b1 (rounds|members)", sentence)


def test_all_of_one_round_is_that_round(tmp_path: Path) -> None:
    write_method(tmp_path / "fedavg", "fedavg", rounds=1)
    write_method(tmp_path / "eris", "eris", rounds=2, done=1)
    sentence = headline(methods_of(tmp_path))
    assert "FedAvg finished its one round (" in sentence
    assert "ERIS finished 1 of 2 rounds (" in sentence
