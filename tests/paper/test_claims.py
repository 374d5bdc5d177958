"""Verdicts follow from results by rules: the same sentence holds, holds under something, falls, or stays open."""

from __future__ import annotations

import json

import pytest

from eris.paper.catalogue import experiment_by_name
from eris.paper.claims import UNDECIDED, decide
from eris.paper.reading import READINGS
from eris.paper.run import CellStore

SWEEP = "figure-aggregators-compression"


def fill(folder, name, figures_of):
    """Write cells of an experiment as if they had been run; `figures_of` makes a cell's figures, or None."""
    store = CellStore(folder)
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    for cell in experiment_by_name(name).cells("small"):
        if (figures := figures_of(cell)) is not None:
            found = {"cell": cell.plain(), "figures": figures, "seconds": 1.0, "when": "2026-01-01"}
            store.path(cell).write_text(json.dumps(found), encoding="utf-8")


def verdict(folder, words):
    [claim] = [claim for claim in decide(folder, "small") if words in claim.says]
    return claim


def leaks(server, last, *, paper=(0.8, 0.6)):
    """Make a sweep in which the adaptive attack goes from one AUC to another, the paper's from one share to another."""

    def figures(cell):
        end = cell.point == 16 or cell.point == 99
        wobble = 0.001 * cell.fold
        return {"auc": {"value": (last if end else server) + wobble, "chance": 0.5},
                "mia": {"value": (paper[1] if end else paper[0]) + wobble, "chance": 0.5}}  # fmt: skip

    return figures


@pytest.mark.parametrize(
    ("server", "last", "paper", "says"),
    [
        (0.95, 0.6, (0.8, 0.6), "holds"),
        (0.95, 0.6, (0.6, 0.6), "holds under the adaptive attack"),
        (0.95, 0.95, (0.8, 0.6), "holds under the paper's attack alone"),
        (0.95, 0.96, (0.6, 0.6), "refuted"),
    ],
)
def test_leakage_along_an_axis(tmp_path, server, last, paper, says):
    fill(tmp_path, SWEEP, leaks(server, last, paper=paper))
    assert verdict(tmp_path, "falls with A").verdict == says
    assert verdict(tmp_path, "falls with ω").verdict == says


def test_what_was_not_run_or_is_too_noisy_is_not_decided(tmp_path):
    assert {claim.verdict for claim in decide(tmp_path, "small")[:11]} == {UNDECIDED}
    fill(tmp_path, SWEEP, lambda cell: leaks(0.9, 0.85)(cell) if cell.fold == 0 else None)
    assert verdict(tmp_path, "falls with A").verdict == UNDECIDED  # one fold has no interval
    noisy = {0: 0.3, 1: -0.3, 2: 0.0}
    fill(tmp_path, SWEEP, lambda cell: {"auc": {"value": 0.7 + noisy[cell.fold] * (cell.point == 16)}})
    assert verdict(tmp_path, "falls with A").verdict == UNDECIDED


def test_utility_is_a_matter_of_bits(tmp_path):
    fill(tmp_path, "table-mnist-few", lambda cell: {"accuracy": {"value": 0.8}, "digest": f"fold {cell.fold}"})
    claim = verdict(tmp_path, "FedAvg's utility")
    assert claim.verdict == "holds"
    assert "3 folds are the same bits" in claim.figure
    fill(tmp_path, "table-mnist-few", lambda cell: {"accuracy": {"value": 0.8}, "digest": cell.arm})
    assert verdict(tmp_path, "FedAvg's utility").verdict == "refuted"


def test_compression_holds_up_to_some_strength(tmp_path):
    accuracy = {0: 0.9, 20: 0.9, 85: 0.89, 340: 0.5}
    fill(tmp_path, "figure-compression-utility", lambda cell: {"accuracy": {"value": accuracy[cell.point]}})
    assert verdict(tmp_path, "DSC keeps").verdict == "holds under ω ≤ 85"
    fill(tmp_path, "figure-compression-utility", lambda cell: {"accuracy": {"value": 0.9 - 0.4 * (cell.point > 0)}})
    assert verdict(tmp_path, "DSC keeps").verdict == "refuted"


def test_failures_hold_up_to_some_rate_for_each_way_to_count(tmp_path):
    def figures(cell):
        limit = 50 if "not" in cell.arm else 70
        return {"accuracy": {"value": 0.9 if cell.point <= limit else 0.3}}

    fill(tmp_path, "figure-dropout", figures)
    says = verdict(tmp_path, "drop out").verdict
    assert says == "holds under rates up to 50 % (not made up for), rates up to 70 % (made up for)"
    fill(tmp_path, "figure-dropout", lambda cell: {"accuracy": {"value": 0.9 - 0.3 * (cell.point > 0)}})
    assert verdict(tmp_path, "drop out").verdict == "refuted"
    fill(tmp_path, "figure-links", lambda cell: {"accuracy": {"value": 0.9}} if cell.point == 0 else None)
    assert verdict(tmp_path, "links").verdict == UNDECIDED


@pytest.mark.parametrize(("alone", "says"), [(0.99, "refuted"), (0.6, "holds")])
def test_collusion(tmp_path, alone, says):
    def figures(cell):
        sizes = {1: alone, 4: 0.9, 8: 0.95, 15: 0.99}
        return {
            f"coalition:{size}/auc": {"value": value, "chance": 0.5, "chance_95": 0.55} for size, value in sizes.items()
        }

    fill(tmp_path, "figure-collusion", figures)
    assert verdict(tmp_path, "Collusion").verdict == says


def test_reconstruction_by_who_fills_with_zeros_and_who_does_not(tmp_path):
    rate = {"value": 1.0, "low": 0.3, "high": 1.0}
    fill(tmp_path, "figure-reconstruction", lambda cell: {"recovered": {"value": 0.0}, "aware/recovered": rate})
    assert verdict(tmp_path, "Reconstruction").verdict == "holds under the paper's zero-filled attack alone"
    fill(tmp_path, "figure-reconstruction", lambda cell: {"recovered": rate, "aware/recovered": rate})
    assert verdict(tmp_path, "Reconstruction").verdict == "refuted"


def test_the_trade_off_needs_both_axes(tmp_path):
    def figures(cell, leak):
        ours = cell.arm.startswith("ERIS")
        return {"accuracy": {"value": (0.9 if ours else 0.5) + 0.001 * cell.fold},
                "auc": {"value": (leak if ours else 0.7) + 0.001 * cell.fold}, "digest": ""}  # fmt: skip

    fill(tmp_path, "table-mnist-few", lambda cell: figures(cell, 0.6))
    assert verdict(tmp_path, "trade-off").verdict == "holds"
    fill(tmp_path, "table-mnist-few", lambda cell: figures(cell, 0.95))
    assert verdict(tmp_path, "trade-off").verdict == "refuted"


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
