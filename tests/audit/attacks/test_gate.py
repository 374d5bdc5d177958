"""The gate that holds the default attack to the reference: its settings are frozen, its seeds are nobody's choice."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from eris.audit.attacks.by_name import TUNING
from eris.audit.intervals import t_quantile

GATE = Path(__file__).parents[3] / "benchmarks" / "attackers.py"


@pytest.fixture(scope="module")
def attackers():
    """The benchmark as a module; it stands beside the package, not in it."""
    found = importlib.util.spec_from_file_location("attackers_of_the_gate", GATE)
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    yield module
    del sys.modules[found.name]


def test_the_small_preset_is_the_frozen_one(attackers, monkeypatch, tmp_path):
    assert attackers.digest() == attackers.FROZEN == "ff26c31ed1d79095"
    monkeypatch.setattr(attackers, "SMALL", (*attackers.SMALL, "rounds=11"))
    assert attackers.digest() != attackers.FROZEN
    with pytest.raises(SystemExit, match="not the frozen ones"):
        attackers.gate(tmp_path, "any", 1, ["shards"], 1)


def test_the_seeds_follow_from_a_hash_and_are_none_that_anything_was_chosen_on(attackers):
    seeds = attackers.seeds_from("a commit", 10)
    assert seeds == attackers.seeds_from("a commit", 10)
    assert len({*seeds, *attackers.seeds_from("another", 10)}) == 20
    assert not {*seeds} & {*TUNING.seeds, *TUNING.chosen_on, *attackers.TUNING_SEEDS, *attackers.CHOSEN_ON}


def test_the_gate_is_a_paired_difference_with_its_interval(attackers, monkeypatch, tmp_path):
    """Figures are made up here: what is asked for is a mean of at least 0 and a lower limit of at least −0.02."""
    leads = {"strong": [0.02, 0.01, 0.03, 0.02], "even": [0.01, -0.01, 0.02, -0.01], "weak": [0.1, -0.1, 0.1, -0.09]}
    for name, lead in leads.items():
        pairs = iter(lead)
        (tmp_path / name).mkdir()

        def seen(name, seed, pairs=pairs):
            ours = {"auc": 0.8 + next(pairs), "epsilon": 1.0}
            both = {attackers.STRONGEST: ours, "reference": {"auc": 0.8, "epsilon": 1.0}}
            return {"seed": seed, "training": name, "accuracy": 0.5, "views": {"1 of 8": both}, "seconds": 0.0}

        monkeypatch.setattr(attackers, "gated", seen)
        found = attackers.gate(tmp_path / name, "a commit", 4, ["shards"], 1)
        difference = found["views"]["1 of 8"]["difference"]
        assert difference["mean"] == pytest.approx(sum(lead) / 4)
        reach = t_quantile(0.975, 3) * (sum((one - sum(lead) / 4) ** 2 for one in lead) / 3) ** 0.5 / 2
        assert difference["low"] == pytest.approx(sum(lead) / 4 - reach)
        assert found["passed"] == (lead is leads["strong"])


def test_what_the_gate_printed_follows_from_its_seeds(attackers):
    """Figures are of the frozen settings, seeds of the commit that froze them, and the verdict is that of the rule."""
    printed = json.loads((GATE.parent / "gate.json").read_text())
    assert printed["settings"] == attackers.FROZEN
    assert printed["attack"] == attackers.STRONGEST
    assert printed["seeds"] == attackers.seeds_from(printed["hash"], len(printed["seeds"]))
    assert set(printed["views"]) == {"server", "1 of 8", "1/50", "1/200", "dsc", "one step"}
    for view in printed["views"].values():
        pairs = list(zip(view["auc"]["default"], view["auc"]["reference"], strict=True))
        assert len(pairs) == len(printed["seeds"])
        difference = attackers.over_seeds([ours - reference for ours, reference in pairs])
        assert difference == view["difference"]
        assert view["passed"] == (difference["mean"] >= 0 and difference["low"] >= attackers.LEAST)
    assert printed["passed"] == all(view["passed"] for view in printed["views"].values())
    assert printed["passed"] or len(printed["seeds"]) < 10  # fewer seeds are a beginning, and no verdict


def test_a_hash_that_is_no_commit_of_this_history_is_refused(attackers):
    with pytest.raises(SystemExit, match="not the full hash"):
        attackers.require_commit("47835870e91c8e442ff838d34c48b0c9e8ad6514")
    with pytest.raises(SystemExit, match="not the full hash"):
        attackers.require_commit("HEAD")
    printed = json.loads((GATE.parent / "gate.json").read_text())
    if not (GATE.parents[1] / ".git").exists():
        pytest.skip("there is no history here")
    attackers.require_commit(printed["hash"])


def test_what_is_kept_of_one_comparison_leaves_the_others(attackers, monkeypatch, tmp_path):
    path = tmp_path / "tuning.json"
    monkeypatch.setattr(attackers, "TUNING_FILE", path)
    path.write_text(json.dumps({"seeds": [2], "auc": {"server": {"a": 0.9}}, "texts": {"auc": 1}}))
    attackers.keep({"seeds": [3], "auc": {"server": {"b": 0.95}}}, "tune", ["b"])
    assert json.loads(path.read_text()) == {
        "seeds": [2], "auc": {"server": {"b": 0.95, "a": 0.9}}, "texts": {"auc": 1},
    }  # fmt: skip
    attackers.keep({"seeds": [3], "auc": {"server": {"a": 0.8}}}, "tune", [])
    attackers.keep({"auc": 2}, "texts", [])
    assert json.loads(path.read_text()) == {
        "seeds": [3], "auc": {"server": {"a": 0.8}}, "texts": {"auc": 2},
    }  # fmt: skip


def test_small_texts_are_those_of_their_seed_and_only_gaps_are_filled(attackers):
    pytest.importorskip("transformers")
    one, again, other = (attackers.planted_texts(attackers.of_texts(seed)) for seed in (2, 2, 3))
    assert one.texts
    assert one.task.pool.split.summaries == again.task.pool.split.summaries != other.task.pool.split.summaries
    copies = one.copies.pool.split.summaries
    assert copies == again.copies.pool.split.summaries
    texts = [one.probe.pool.split.summaries[place] for member in range(8) for place in one.probe.places(member)]
    for number, text in enumerate(texts):
        for copy in copies[4 * number : 4 * number + 4]:
            pairs = list(zip(text.split(), copy.split(), strict=True))
            assert 8 <= sum(a == b for a, b in pairs) <= 12  # about 30 % of twelve words were hidden


def test_points_of_several_sweeps_with_the_same_settings_are_trained_once(attackers):
    views = [view for part in attackers.SWEPT.values() for view in part.observers]
    assert len(views) == len(set(views))
    assert {view.split(":")[0] for view in views} == set(attackers.SWEEPS)
    (eight,) = [part for part in attackers.SWEPT.values() if "aggregators: 8" in part.observers]
    assert {"collusion: 4", "blocks: 1", "rotation: fixed", "aggregators: server"} <= set(eight.observers)
    assert len({attackers.settings(name, 1).digest for name in attackers.SWEPT}) == len(attackers.SWEPT)


def test_what_is_kept_is_not_measured_again_and_time_ends_it(attackers, monkeypatch, tmp_path):
    calls = []

    def measured(name, seed):
        calls.append((name, seed))
        return {"seed": seed, "training": name, "seconds": 0.0}

    for _ in range(2):
        attackers.everywhere(tmp_path, measured, ["shards"], [1, 2], 1)
    assert calls == [("shards", 1), ("shards", 2)]
    monkeypatch.setattr(attackers, "ENDS", 0.0)
    with pytest.raises(SystemExit) as ended:
        attackers.everywhere(tmp_path, measured, ["shards"], [1, 2, 3], 1)
    assert ended.value.code == attackers.TIME_IS_UP
