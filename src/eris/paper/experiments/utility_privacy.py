"""Accuracy and membership of all methods, one local step, over sample sizes: Table 1, its figure, seven tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eris.paper.experiment import Experiment, Panel
from eris.paper.settings import CIFAR10, CNN, IMDB, MNIST, DataSet, panel_of, rows_of, smoke_panel, summary_rows

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 1

_SMALL: dict[str, dict[str, Any]] = {
    "MNIST": {"members": 8, "rounds": 40, "samples": (8, 32), "folds": 3, "test_samples": 1000, "evaluate_every": 5,
              "views": 2, "extra": ("local.lr=0.05",)},
    "CIFAR-10": {"members": 10, "rounds": 40, "samples": (8,), "folds": 2, "test_samples": 500, "evaluate_every": 5,
                 "views": 2, "losses_only": True},
    "IMDB": {"members": 5, "rounds": 6, "samples": (8,), "folds": 2, "test_samples": 200, "evaluate_every": 2,
             "views": 1, "losses_only": True, "offline": True},
    "CNN/DailyMail": {"members": 4, "rounds": 1, "samples": (16,), "folds": 1, "test_samples": 4, "views": 1,
                      "losses_only": True, "offline": True, "extra": ("local.micro_batch=2",)},
}  # fmt: skip


def _panels(rows: str, data_sets: tuple[DataSet, ...], *, small: bool) -> tuple[Panel, ...]:
    panels = []
    for data in data_sets:
        arms = rows_of(data) if rows == "all" else summary_rows(data)
        where: dict[str, Any] = (
            {"printed": data.key} if rows == "all" else {"printed": "utility-privacy", "column": data.name}
        )
        panel = panel_of(data, "unbiased", arms, **(_SMALL[data.name] if small else {}), **where)
        alone = small and rows == "summary"  # a mean over one size then
        panels.append(replace(panel, points=panel.points[:1]) if alone else panel)
    return tuple(panels)


def _by_samples(data: DataSet, part: str, samples: tuple[int, ...]) -> Experiment:
    [paper] = _panels("all", (data,), small=False)
    [small] = _panels("all", (data,), small=True)
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


_ALL = (MNIST, CIFAR10, IMDB, CNN)

EXPERIMENTS = (
    Experiment(
        "table-utility-privacy",
        "Utility and membership, means over sample sizes (Table 1)",
        "FedAvg-level utility with less leakage than every baseline",
        {
            "smoke": (smoke_panel(summary_rows(MNIST)),),
            "small": _panels("summary", _ALL, small=True),
            "paper": _panels("summary", _ALL, small=False),
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
            "small": _panels("all", _ALL, small=True),
            "paper": _panels("all", _ALL, small=False),
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
