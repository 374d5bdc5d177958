"""Verdicts follow from results by rules: the same sentence holds, holds under something, falls, or stays open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eris.paper.catalogue import experiment_by_name
from eris.paper.claims import UNDECIDED, decide, write_claims
from eris.paper.experiment import AUC
from eris.paper.reading import READINGS
from eris.paper.run import CellStore

SWEEP = "figure-aggregators-compression"
DOCS = Path(__file__).parents[2] / "docs"


def fill(folder, name, figures_of):
    """Write cells of an experiment as if they had been run; `figures_of` makes a cell's figures, or None."""
    store = CellStore(folder)
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    for cell in experiment_by_name(name).cells("small"):
        store.path(cell).unlink(missing_ok=True)
        if (figures := figures_of(cell)) is not None:
            found = {"cell": cell.plain(), "figures": {"digest": "", **figures}, "seconds": 1.0, "when": "2026-01-01"}
            store.path(cell).write_text(json.dumps(found), encoding="utf-8")


def verdict(folder, words):
    [claim] = [claim for claim in decide(folder, "small") if words in claim.says]
    return claim


def leaks(server, last, *, paper=(0.8, 0.6), end=8):
    """Make a sweep: the strongest attack goes from one AUC to another, the paper's from one share to another."""

    def figures(cell):
        there, wobble = cell.point == end, 0.001 * cell.fold
        return {"auc": {"value": (last if there else server) + wobble, "chance": 0.5},
                "mia": {"value": (paper[1] if there else paper[0]) + wobble, "chance": 0.5}}  # fmt: skip

    return figures


@pytest.mark.parametrize(
    ("server", "last", "paper", "says"),
    [
        (0.95, 0.6, (0.8, 0.6), "holds"),
        (0.95, 0.6, (0.6, 0.6), "holds under the strongest attack"),
        (0.95, 0.95, (0.8, 0.6), "holds under the paper's attack alone"),
        (0.95, 0.96, (0.6, 0.6), "refuted"),
    ],
)
def test_leakage_along_an_axis(tmp_path, server, last, paper, says):
    fill(tmp_path, SWEEP, leaks(server, last, paper=paper))
    assert verdict(tmp_path, "falls with A").verdict == says
    fill(tmp_path, SWEEP, leaks(server, last, paper=paper, end=99))
    assert verdict(tmp_path, "falls with ω").verdict == says


def test_what_was_not_run_or_is_too_noisy_is_not_decided(tmp_path):
    assert {claim.verdict for claim in decide(tmp_path, "small")[:11]} == {UNDECIDED}
    for folds in (1, 2):
        fill(tmp_path, SWEEP, lambda cell, folds=folds: leaks(0.9, 0.6)(cell) if cell.fold < folds else None)
        assert verdict(tmp_path, "falls with A").verdict == UNDECIDED  # two folds have an interval as good as none
    noisy = {0: 0.3, 1: -0.3, 2: 0.0, 3: 0.1}
    fill(tmp_path, SWEEP, lambda cell: {"auc": {"value": 0.7 + noisy[cell.fold] * (cell.point == 8)}})
    assert verdict(tmp_path, "falls with A").verdict == UNDECIDED


def test_rows_are_compared_fold_by_fold(tmp_path):
    """Folds that differ by far more than the rows do decide nonetheless: each fold has both rows."""
    fill(tmp_path, SWEEP, lambda cell: leaks(0.9 - 0.1 * cell.fold, 0.8 - 0.1 * cell.fold)(cell))
    claim = verdict(tmp_path, "falls with A")
    assert claim.verdict == "holds"
    assert claim.attacker == "paper's, strongest"
    assert "-0.100 [-0.100, -0.100]" in claim.figure


def test_utility_is_a_matter_of_bits(tmp_path):
    fill(tmp_path, "table-mnist-few", lambda cell: {"accuracy": {"value": 0.8}, "digest": f"fold {cell.fold}"})
    claim = verdict(tmp_path, "FedAvg's utility")
    assert claim.verdict == "holds"
    assert "4 folds are the same bits" in claim.figure
    fill(tmp_path, "table-mnist-few", lambda cell: {"accuracy": {"value": 0.8}, "digest": cell.arm})
    assert verdict(tmp_path, "FedAvg's utility").verdict == "refuted"


def test_compression_holds_up_to_some_strength(tmp_path):
    accuracy = {0: 0.9, 20: 0.9, 85: 0.89, 340: 0.5}
    fill(tmp_path, "figure-compression-utility", lambda cell: {"accuracy": {"value": accuracy[cell.point]}})
    assert verdict(tmp_path, "DSC keeps").verdict == "holds under ω ≤ 85 (n = 8), ω ≤ 85 (n = 32)"
    fill(tmp_path, "figure-compression-utility", lambda cell: {"accuracy": {"value": 0.9 - 0.4 * (cell.point > 0)}})
    assert verdict(tmp_path, "DSC keeps").verdict == "refuted"


def test_failures_hold_up_to_some_rate_for_each_way_to_count(tmp_path):
    def figures(cell):
        limit = 30 if "not" in cell.arm else 50
        return {"accuracy": {"value": 0.9 if cell.point <= limit else 0.3}}

    fill(tmp_path, "figure-links", figures)
    says = verdict(tmp_path, "links").verdict
    assert says == "holds under rates up to 30 % (not made up for), rates up to 50 % (made up for)"
    fill(tmp_path, "figure-dropout", lambda cell: {"accuracy": {"value": 0.9 - 0.3 * (cell.point == 50)}})
    assert verdict(tmp_path, "drop out").verdict == "holds under rates up to 30 %"  # 90 % lies beyond a rate that harms
    fill(tmp_path, "figure-dropout", lambda cell: {"accuracy": {"value": 0.9 - 0.3 * (cell.point > 0)}})
    assert verdict(tmp_path, "drop out").verdict == "refuted"
    fill(tmp_path, "figure-links", lambda cell: {"accuracy": {"value": 0.9}} if cell.point == 0 else None)
    assert verdict(tmp_path, "links").verdict == UNDECIDED


@pytest.mark.parametrize(
    ("alone", "by_paper", "says"),
    [
        (0.99, 0.6, "refuted"),
        (0.99, 0.4, "holds under the paper's attack alone"),
        (0.6, 0.4, "holds"),
        (0.93, 0.6, "holds under the strongest attack"),
    ],
)
def test_collusion(tmp_path, alone, by_paper, says):
    def figures(cell):
        sizes = {1: (alone, by_paper), 3: (0.9, 0.6), 7: (0.99, 0.6)}
        return {
            f"coalition:{size}/{key}": {"value": value, "chance": 0.3, "chance_95": 0.35}
            for size, both in sizes.items()
            for key, value in zip(("auc", "mia"), both, strict=True)
        }

    fill(tmp_path, "figure-collusion", figures)
    assert verdict(tmp_path, "Collusion").verdict == says


@pytest.mark.parametrize(
    ("zero_filled", "aware", "says"),
    [
        (0.0, 1.0, "holds under the paper's zero-filled attack alone"),
        (1.0, 1.0, "refuted"),
        (0.0, 0.0, "holds"),
        (0.25, 0.25, UNDECIDED),
    ],
)
def test_reconstruction_by_who_fills_with_zeros_and_who_does_not(tmp_path, zero_filled, aware, says):
    fill(
        tmp_path, "figure-reconstruction",
        lambda cell: {"recovered": {"value": zero_filled}, "aware/recovered": {"value": aware}},
    )  # fmt: skip
    assert verdict(tmp_path, "Reconstruction").verdict == says


@pytest.mark.parametrize(
    ("auc", "mia", "says"),
    [
        (0.6, 0.6, "holds"),
        (0.95, 0.6, "holds under the paper's attack alone"),
        (0.95, 0.9, "refuted"),
    ],
)
def test_the_trade_off_needs_both_axes(tmp_path, auc, mia, says):
    def figures(cell):
        ours, wobble = cell.arm.startswith("ERIS"), 0.001 * cell.fold
        return {"accuracy": {"value": (0.9 if ours else 0.5) + wobble}, "digest": "",
                "auc": {"value": (auc if ours else 0.7) + wobble},
                "mia": {"value": (mia if ours else 0.7) + wobble}}  # fmt: skip

    fill(tmp_path, "table-mnist-few", figures)
    assert verdict(tmp_path, "trade-off").verdict == says


@pytest.mark.parametrize(
    ("leak", "accuracy", "says"),
    [
        ((0.6, 0.6), 0.9, "holds"),
        ((0.8, 0.8), 0.9, "refuted"),
        ((0.6, 0.8), 0.9, "holds under σ = 0.1, C = 2"),
        ((0.6, 0.6), 0.5, UNDECIDED),
    ],
)
def test_noise_on_shards_and_on_whole_updates(tmp_path, leak, accuracy, says):
    strengths = ("σ = 0.1, C = 2", "σ = 0.6, C = 1")

    def figures(cell):
        family, strength = cell.arm.split(": ")
        if family not in ("ERIS+LDP", "FedAvg+LDP") or strength == "none":
            return None
        ours = family == "ERIS+LDP"
        value = leak[strengths.index(strength)] if ours else 0.8
        return {"accuracy": {"value": accuracy if ours else 0.9}, "auc": {"value": value}, "mia": {"value": value}}

    fill(tmp_path, "table-pareto", figures)
    assert verdict(tmp_path, "dominates").verdict == says


def test_calculations_and_theorems(tmp_path):
    fill(
        tmp_path, "figure-distribution-time", lambda cell: {"over_fedavg": {"value": 95.0}, "honest": {"value": 1020.0}}
    )
    assert verdict(tmp_path, "1000").verdict == "holds under shared masks, whose mean stays sparse"
    fill(tmp_path, "figure-distribution-time", lambda cell: {"over_fedavg": {"value": 95.0}, "honest": {"value": 99.0}})
    assert verdict(tmp_path, "1000").verdict == "refuted"
    assert verdict(tmp_path, "3.1").verdict.startswith("holds under Γ₂")
    assert verdict(tmp_path, "3.2").verdict == "holds under coordinates that are independent given the data"


def test_readings_differ_in_folds_noise_and_coins():
    cells = {name: experiment_by_name("table-mnist-few").cells("paper", reading) for name, reading in READINGS.items()}
    paper, eris = ([cell for cell in found if cell.arm == "LDP, ε = 10"] for found in cells.values())
    assert {setting for cell in paper for setting in cell.settings if setting.startswith("seed=")} == {"seed=1"}
    assert len({setting for cell in eris for setting in cell.settings if setting.startswith("seed=")}) == 5
    assert all("privacy.accounting=per-round" in cell.settings for cell in paper)
    assert not any("privacy.accounting=per-round" in cell.settings for cell in eris)
    assert {cell.options.get("coins") for cell in paper} == {"equal"}
    assert {cell.options.get("coins") for cell in eris} == {None}
    assert not {cell.key for cell in paper} & {cell.key for cell in eris}


def test_the_committed_page_follows_from_the_committed_cells(tmp_path):
    page = write_claims(decide(DOCS / "paper", "small"), tmp_path)
    assert page.read_text(encoding="utf-8") == (DOCS / "claims.md").read_text(encoding="utf-8")


def test_pages_name_no_attack_but_the_strongest_and_the_papers():
    tables, claims = ((DOCS / page).read_text(encoding="utf-8") for page in ("paper/tables.md", "claims.md"))
    assert f"| {AUC.label} |" in tables
    assert "adaptive" not in tables + claims
