"""The tables of membership audits and of sweeps, and the notes below them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eris.cli.auditing.answer import ResultsTable

__all__ = ["gaussianity_table", "membership_footnotes", "membership_table", "reconstruction_table", "runs_footnote"]

_ENOUGH = 10  # seeds for a statement


def membership_table(entries: Sequence[dict[str, Any]], key: str, title: str) -> ResultsTable:
    """Return a row for each entry, observer and attack; the file has the rest.

    Args:
        entries: what was found.
        key: what distinguishes them.
        title: of the column that shows it.
    """
    several = len({result["observer"] for entry in entries for result in entry["results"]}) > 1
    observer = ("observer",) if several else ()
    columns = (title, *observer, "sees", "attack", "AUC", "95 %", "chance", "p", "ε ≥")
    table = ResultsTable(columns, names=(title, "observer", "attack"))
    for entry in entries:
        for result in entry["results"]:
            table.add(str(entry[key]), *(result[name] for name in observer), *_cells(result))
    return table


def _cells(result: dict[str, Any]) -> list[str]:
    auc = result["figures"]["auc"]
    return [
        f"{result['visible_share']:.1%}",
        result["attack"],
        f"{auc['value']:.2f}",
        f"{auc['low']:.2f}–{auc['high']:.2f}",
        f"{auc['chance']:.2f}",
        f"{auc['p_value']:.3f}" if "p_value" in auc else "–",
        f"{result['epsilon']['lower_bound']:.2f}",
    ]


def membership_footnotes(entries: Sequence[dict[str, Any]], path: Path, picture: str) -> str:
    """Say who looked, what the columns mean and where the rest is."""
    observers = {result["observer"] for entry in entries for result in entry["results"]}
    who = f"Observer: {observers.pop()}. " if len(observers) == 1 else ""
    return (
        f"{who}Sees: the share of an update that others see in a round, mean over rounds, members and views; a\n"
        "member that aggregates keeps its own shard to itself (`eris plan` counts one that aggregates nothing).\n"
        "AUC: area under the ROC curve. Chance: the same on coins tossed again. ε: what the guesses at the\n"
        "last round from one view refute at 95 %, for one sample more or less (δ in the file); no guarantee.\n"
        f"results: {path}\npicture: {picture}"
    )


def runs_footnote(trials: Sequence[Mapping[str, Any]], together: Sequence[Mapping[str, Any]]) -> str:
    """Say how many runs the figures rest on, and what can be said at few false positives."""
    found = [result for entry in together or trials for result in entry["results"]]
    lines = [_true_positives(found, rate) for rate in found[0]["true_positives"]]
    if not together:
        seed = trials[0]["seed"]
        return "\n".join(
            [f"One run (seed {seed}), intervals within it; --seeds {_ENOUGH} gives them over seeds.", *lines]
        )
    seeds = together[0]["seeds"]
    few = "" if len(seeds) >= _ENOUGH else f" (a claim needs {_ENOUGH})"
    return "\n".join(
        [
            f"Mean over {len(seeds)} seeds{few}, {seeds[0]} to {seeds[-1]}; nothing was tuned on them.",
            "95 %: Student's t over the seeds. ε: mean of the runs' own bounds.",
            *lines,
        ]
    )


def _true_positives(found: Sequence[Mapping[str, Any]], rate: str) -> str:
    attack = found[0]["attack"]
    parts = [result["true_positives"][rate] for result in found if result["attack"] == attack]
    if any(part["value"] is None for part in parts):
        fewest, needed = min(part["non_members"] for part in parts), parts[0]["needed"]
        return f"True positives at {rate} false positives: not measurable ({fewest} of {needed} non-members)."
    shares = ", ".join(f"{part['value']:.1%}" for part in parts)
    return f"True positives at {rate} false positives, {attack}: {shares}."


def gaussianity_table(points: Sequence[Mapping[str, Any]]) -> ResultsTable:
    """Return a line for each round that was looked at."""
    columns = ("round", "not Gaussian\nat 5 %", "chance", "C_max\n(nats)", "of those that\nmove: largest", "mean",
               "weights:\ndeviation", "excess\nkurtosis")  # fmt: skip
    table = ResultsTable(columns)
    for point in points:
        weights, moving = point["weights"], point["capacity_of_moving"]
        table.add(
            str(point["label"]),
            _percent(point["not_normal"]),
            _percent(point["chance"]),
            _nats(point["capacity"]["largest"]),
            _nats(moving and moving["largest"]),
            _nats(moving and moving["mean"]),
            f"{weights['deviation']:.3f}",
            f"{weights['excess_kurtosis']:.1f}",
        )
    return table


def reconstruction_table(points: Sequence[Mapping[str, Any]]) -> ResultsTable:
    """Return a line for each defence, attack and mode."""
    several = len({point["attack"] for point in points}) > 1  # a column only where there are
    named = ("defence", "attack") if several else ("defence",)
    table = ResultsTable((*named, "sees", "mode", "MSE", "recovered", "identified"), names=(*named, "mode"))
    for point in points:
        table.add(
            *(point[name] for name in named),
            _percent(point["share"]),
            point["mode"],
            f"{point['mse']['median']:.1e}",
            f"{point['recovered']['rate']:.0%}",
            f"{point['identified']['rate']:.0%}",
        )
    return table


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _nats(value: float | None) -> str:
    if value is None:
        return "–"
    return "∞" if math.isinf(value) else f"{value:.2f}"
