"""`eris compare --audit membership`: accuracy and leakage of the same training, side by side."""

from __future__ import annotations

import json
from functools import partial

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import combine_pvalues
from typer.testing import CliRunner

from eris.audit.comparison import MembershipComparison, joint_p_value, pareto_front
from eris.audit.membership_run import AuditPlan
from eris.audit.observer import Observer
from eris.cli import compare, run
from eris.config import load_config
from eris.errors import ConfigError
from eris.events import MemberTrained, RoundEnded
from eris.simulate import comparison
from eris.simulate.method_run import MethodRun

FEW = ["data.name=synthetic-clouds", "members=5", "workers=1", "data.samples=16", "local.lr=0.05", "rounds=3"]
FAST = [part for change in FEW for part in ("--set", change)]
AUDITED = [*FAST, "--audit", "membership"]


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    for verb in (compare, run):
        verb.register(app)

    def call(*arguments):
        return CliRunner(env={"COLUMNS": "150"}).invoke(app, list(arguments), catch_exceptions=False)

    return call


def test_the_attack_is_in_table_numbers_and_picture(invoke, tmp_path):
    done = invoke("compare", "fedavg", "eris", "gossip", *AUDITED, "--folds", "2", "--out", "a")
    for word in ("AUC", "chance", "★", "canaries"):
        assert word in done.output
    result = json.loads((tmp_path / "a" / "compare.json").read_text())
    audit = result["audit"]
    assert (audit["attack"], audit["observer"], audit["figure"]) == ("whitened", "aggregator", "auc")
    assert list(audit["methods"]) == ["fedavg", "eris", "gossip"]
    for entries in audit["methods"].values():
        assert [entry["attack"] for entry in entries] == ["whitened", "paper"]
        figure = entries[0]["figures"]["auc"]
        assert len(figure["values"]) == 2
        assert figure["chance"] == pytest.approx(0.5, abs=0.05)
        assert 0 < figure["p_value"] <= 1
    assert audit["front"]
    shares = {label: entries[0]["visible_share"] for label, entries in audit["methods"].items()}
    assert shares["fedavg"] == shares["gossip"] == 1.0 > shares["eris"]
    for name in ("compare.svg", "compare.png"):
        assert (tmp_path / "a" / name).stat().st_size > 1000
    assert (tmp_path / "a" / "audited" / "fold-1" / "eris" / "scores.npz").exists()


def test_the_attack_canaries_views_and_figure_are_chosen(invoke, tmp_path):
    options = ["--attack", "paper", "--canaries", "6", "--views", "2", "--figure", "accuracy", "--reading", "paper"]
    done = invoke("compare", "eris", *AUDITED, *options, "--out", "a")
    assert "guesses" in done.output
    audit = json.loads((tmp_path / "a" / "compare.json").read_text())["audit"]
    assert (audit["attack"], audit["figure"]) == ("paper", "accuracy")
    [entry] = audit["methods"]["eris"]  # nothing else listened
    assert (entry["canaries"], entry["views"]) == (30, 2)
    facts = json.loads((tmp_path / "a" / "audited" / "fold-0" / "eris" / "canaries.json").read_text())
    assert (facts["attacks"], facts["coins"], facts["losses_only"]) == (["paper"], "equal", True)


def test_what_is_shown_once_is_attacked_once(invoke, tmp_path):
    """Of a training by a party that keeps silent only the last model is known: the paper's attack has no best round."""
    invoke("compare", "min-leakage", "fedavg", *AUDITED, "--attack", "paper", "--out", "a")
    runs = tmp_path / "a" / "audited" / "fold-0"
    audit = json.loads((tmp_path / "a" / "compare.json").read_text())["audit"]
    [silent], [server] = audit["methods"]["min-leakage"], audit["methods"]["fedavg"]
    assert runs.exists()
    # chance of a best round is above one half, that of a single one is not
    assert silent["figures"]["paper_mean"]["chance"] < server["figures"]["paper_mean"]["chance"]


def test_the_front_is_where_accuracy_and_privacy_are_not_beaten(invoke, tmp_path):
    invoke("compare", "fedavg", "eris", "min-leakage", *AUDITED, "--out", "a")
    result = json.loads((tmp_path / "a" / "compare.json").read_text())
    points = result["audit"]["points"]
    # The same model for all three: what is left is who could tell least from its making.
    assert len({point["accuracy"] for point in points.values()}) == 1
    best = max(point["one_minus_leak"] for point in points.values())
    assert result["audit"]["front"] == [label for label, point in points.items() if point["one_minus_leak"] == best]
    assert all(point["one_minus_leak"] <= 0.51 for point in points.values())


def test_the_same_again_goes_on_and_changes_nothing(invoke, tmp_path):
    first = json.loads(invoke("compare", "eris", *AUDITED, "--out", "a", "--json").output)
    marked = tmp_path / "a" / "audited" / "fold-0" / "eris" / "scores.npz"
    before = marked.stat().st_mtime_ns
    more = json.loads(invoke("compare", "eris", "fedavg", *AUDITED, "--out", "a", "--json").output)
    assert marked.stat().st_mtime_ns == before
    assert more["methods"][0] == first["methods"][0]
    plain = json.loads(invoke("compare", "eris", *FAST, "--out", "a", "--json").output)
    assert "audit" not in plain
    assert plain["methods"][0]["folds"][0]["path"] == "fold-0/eris"  # another training, without canaries


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["a checkpoint a round", "no checkpoint yet"])
def test_a_comparison_that_broke_off_goes_on_and_comes_to_the_same(tmp_path, monkeypatch, seconds):
    monkeypatch.setattr(comparison, "MethodRun", partial(MethodRun, checkpoint_seconds=seconds))

    def compared(out, *listeners):
        witness = MembershipComparison(AuditPlan((Observer("aggregator"),), ("adaptive",), tosses=19))
        arms = [comparison.arm(name) for name in ("eris+dsc", "gossip")]
        config = load_config(changes=FEW)
        return comparison.Comparison(config, arms, out, audit=witness).run(lambda label, fold: listeners)

    def break_off(event):
        if isinstance(event, MemberTrained) and event.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compared(tmp_path / "part", break_off)
    rounds = []
    found = compared(tmp_path / "part", lambda event: rounds.append(event) if isinstance(event, RoundEnded) else None)
    assert len(rounds) == 3 + (1 if seconds == 0 else 3)  # of gossip all, of eris what was left
    assert found == compared(tmp_path / "whole")


def test_where_fedavg_stops_early_its_attack_ends_there_too(invoke):
    options = [
        "--rounds",
        "fedavg-best",
        "--set",
        "rounds=12",
        "--set",
        "local.lr=2.0",
        "--set",
        "data.samples=8",
        "--set",
        "seed=2",
    ]
    done = invoke("compare", "eris", "fedavg", *AUDITED, *options, "--out", "a", "--json")
    result = json.loads(done.output)
    (rounds,) = result["rounds"]
    assert rounds < 12
    for line in result["methods"]:
        assert {entry["rounds"] for entry in line["witnessed"][0]["results"]} == {rounds}


def test_other_audits_are_refused(invoke):
    with pytest.raises(ConfigError, match="use membership"):
        invoke("compare", "eris", *FAST, "--audit", "everything")


@given(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=6))
def test_p_values_are_joined_as_fisher_does(values):
    assert joint_p_value(values) == pytest.approx(combine_pvalues(values).pvalue)


@given(st.dictionaries(st.text(max_size=2), st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1))
def test_a_front_is_never_empty_and_never_beaten(points):
    front = pareto_front(points)
    assert front
    for name, (x, y) in points.items():
        beaten = any(a >= x and b >= y and (a, b) != (x, y) for a, b in points.values())
        assert (name in front) is not beaten
