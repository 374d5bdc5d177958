"""Accuracy and membership of all methods, one local step, over sample sizes: Table 1, its figure, seven tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eris.paper.experiment import Experiment, Panel, Size
from eris.paper.settings import (
    CIFAR10,
    CNN,
    IMDB,
    MNIST,
    SMALL,
    DataSet,
    panels_of,
    rows_of,
    smoke_panel,
    summary_rows,
)

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 1

_SMALL = {
    name: {**size, "samples": {"MNIST": (8, 32), "CIFAR-10": (8,), "IMDB": (8,), "CNN/DailyMail": (16,)}[name]}
    for name, size in SMALL.items()
}
_PAPER: dict[str, dict[str, Any]] = {name: {} for name in SMALL}


def _of_all(data: DataSet) -> dict[str, Any]:
    return {"printed": data.key}


def _of_summary(data: DataSet) -> dict[str, Any]:
    return {"printed": "utility-privacy", "column": data.name}


_LOSSES = {"losses_only": True}
_LIGHT = ("LDP, ε = 1", "SoteriaFL, ε = 1", "PriPrune, p = 0.05", "PriPrune, p = 0.1", "Shatter")


def _small(panels: tuple[Panel, ...]) -> tuple[Panel, ...]:
    """Limit the strongest attack to the smallest sample size, and to rows that a claim needs.

    It takes ten times as long as the training, for Shatter fifty times, as every member has its own model there.
    """
    return tuple(
        replace(
            panel,
            arms=tuple(replace(arm, options=_LOSSES) if arm.label in _LIGHT else arm for arm in panel.arms),
            points=(panel.points[0], *(replace(each, options=_LOSSES) for each in panel.points[1:])),
        )
        for panel in panels
    )


_PANELS: dict[Size, tuple[Panel, ...]] = {
    "small": _small(panels_of("unbiased", rows_of, _SMALL, _of_all)),
    "paper": panels_of("unbiased", rows_of, _PAPER, _of_all),
}
_SUMMARIES: dict[Size, tuple[Panel, ...]] = {
    "small": tuple(
        replace(panel, points=panel.points[:1])  # a mean over one size
        for panel in _small(panels_of("unbiased", summary_rows, _SMALL, _of_summary))
    ),
    "paper": panels_of("unbiased", summary_rows, _PAPER, _of_summary),
}


def _by_samples(data: DataSet, part: str, samples: tuple[int, ...]) -> Experiment:
    [paper], [small] = ([each for each in _PANELS[size] if each.label == data.name] for size in ("paper", "small"))
    chosen = replace(paper, points=tuple(point for point in paper.points if point.value in samples))
    near = tuple(point for point in small.points if point.value in samples)
    return Experiment(
        f"table-{data.key}{part}",
        f"{data.name} by samples of a client" + (f", n = {samples[0]} to {samples[-1]}" if part else ""),
        "accuracy and membership of thirteen rows, by sample size",
        {
            "smoke": (smoke_panel(rows_of(MNIST)),),
            "small": (replace(small, points=near),) if near else (replace(small, points=small.points[-1:]),),
            "paper": (chosen,),
        },
        axis="n",
    )


EXPERIMENTS = (
    Experiment(
        "table-utility-privacy",
        "Utility and membership, means over sample sizes (Table 1)",
        "FedAvg-level utility with less leakage than every baseline",
        {
            "smoke": (smoke_panel(summary_rows(MNIST)),),
            **_SUMMARIES,
        },
        axis="n",
        averaged=True,
    ),
    Experiment(
        "figure-unbiased",
        "The trade-off by sample size",
        "the same trainings as curves over n",
        {
            "smoke": (smoke_panel(rows_of(MNIST)),),
            **_PANELS,
        },
        axis="n",
        shape="lines",
    ),
    *(
        _by_samples(data, part, samples)
        for data in (MNIST, CIFAR10, IMDB)
        for part, samples in (("-few", (4, 8, 16)), ("-many", (32, 64, 128)))
    ),
    _by_samples(CNN, "", (16, 32, 64, 128)),
)
