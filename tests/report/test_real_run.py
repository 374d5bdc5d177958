"""The report of runs that really took place, on data that is called synthetic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eris.config import load_config
from eris.report import write_report
from eris.simulate.run import run as run_federation

from .test_page import SAME, Page

SMALL = ["data.name=synthetic-clouds", "local.batch=5", "local.lr=0.1", "rounds=3", "members=7", "workers=1"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "out"
    run_federation(load_config(changes=SMALL), out)
    return out


def test_the_figures_agree_with_the_summaries(finished: Path) -> None:
    page = Page(write_report(finished))
    assert [method["name"] for method in page.figures["methods"]] == ["fedavg", "eris", "eris+dsc", "eris+masked"]
    for figures in page.figures["methods"]:
        summary = json.loads((finished / figures["name"] / "summary.json").read_text())
        assert {key: figures[key] for key in SAME} == {key: summary[key] for key in SAME}
        assert figures["upload"] == summary["bytes"]["up_per_member_round"] > 0
        assert figures["download"] == summary["bytes"]["down_per_member_round"] > 0
        assert figures["largest_share"] == summary["exposure"]["largest_share_per_round"]
        assert figures["union_share"] == summary["exposure"]["union_over_rounds"]
        masked = figures["name"] == "eris+masked"  # nobody alone sees single values
        assert (figures["largest_share"] > 0, figures["union_share"] > 0) == (not masked, not masked)
        assert figures["finished"]


def test_the_bound_stands_beside_what_is_known_against_it(finished: Path) -> None:
    words = Page(write_report(finished)).words
    for name, label in (("fedavg", "FedAvg"), ("eris", "ERIS")):
        count = json.loads((finished / name / "exposure.json").read_text())["values_over_rounds"]
        assert f"{label} {count:,} · C_max" in words
    assert "as if they were independent" in words


def test_the_headline_claims_what_the_digests_show(finished: Path) -> None:
    page = Page(write_report(finished))
    assert page.inside("h1").startswith("ERIS reached the same model as FedAvg, bit for bit; ERIS+DSC ended")
    assert page.figures["same_model_as_baseline"] == ["eris"]
    assert not [note for note in page.words.split(".") if "cannot be read" in note]


def test_a_run_with_faults_shows_them(tmp_path: Path) -> None:
    faults = ["faults.aggregator_dropout=0.3", "faults.link_failure=0.1", "method=eris"]
    run_federation(load_config(changes=[*SMALL, *faults]), tmp_path)
    page = Page(write_report(tmp_path))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert len(page.figures["methods"][0]["faults"]["lost"]) == summary["lost_shards"] > 0
    assert "Faults" in page.inside("h2")


def test_a_run_that_was_stopped_says_so(tmp_path: Path) -> None:
    answers = iter([False] * 10)  # stop in the second round
    run_federation(load_config(changes=SMALL), tmp_path, stopped=lambda: next(answers, True))
    sentence = Page(write_report(tmp_path)).inside("h1")
    assert sentence.startswith("This run is not finished: FedAvg finished 1 of 3 rounds")
    assert sentence.endswith("ERIS, ERIS+DSC and ERIS+masked have not finished a round.")
