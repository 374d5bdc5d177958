"""The same under label skew: Dirichlet parts, fewer clients; a table over all sample sizes, and its figure."""

from __future__ import annotations

from typing import Any

from eris.paper.experiment import Experiment, Panel, Treatment
from eris.paper.settings import (
    CIFAR10,
    ERIS_DSC,
    FEDAVG,
    IMDB,
    MNIST,
    SHATTER,
    DataSet,
    ldp,
    panel_of,
    priprune,
    smoke_panel,
    soteria,
    summary_rows,
)

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 2

_SMALL: dict[str, dict[str, Any]] = {
    "MNIST": {"members": 8, "rounds": 40, "samples": (16,), "folds": 3, "test_samples": 1000, "evaluate_every": 5,
              "views": 2, "extra": ("local.lr=0.05",)},
    "CIFAR-10": {"members": 5, "rounds": 20, "samples": (8,), "folds": 1, "test_samples": 300, "evaluate_every": 5,
                 "views": 1, "losses_only": True},
    "IMDB": {"members": 4, "rounds": 4, "samples": (8,), "folds": 1, "test_samples": 100, "evaluate_every": 2,
             "views": 1, "losses_only": True, "offline": True},
}  # fmt: skip
_DATA = (MNIST, CIFAR10, IMDB)
_SKEWED = ("data.partition=dirichlet", "data.alpha=0.5")


def _of_figure(data: DataSet) -> tuple[Treatment, ...]:
    prune = priprune(0.3 if data is IMDB else 0.01)
    noisy, soterias = ldp(data.epsilons[0], "FedAvg (ε,δ)-LDP"), soteria(data.epsilons[0], "SoteriaFL")
    return (FEDAVG, noisy, soterias, prune, SHATTER, ERIS_DSC)


def _panels(kind: str, *, small: bool) -> tuple[Panel, ...]:
    panels = []
    for data in _DATA:
        size = dict(_SMALL[data.name]) if small else {"samples": (4, 8, 16, 32, 64), "folds": 4 if data is IMDB else 5}
        if kind == "table":
            size |= {"printed": "noniid", "column": data.name}
            arms = summary_rows(data, sharded=False)
        else:
            size |= {"printed": "figure-noniid", "rows": f"{data.name}: {{row}}"}
            arms = _of_figure(data)
        panels.append(panel_of(data, "noniid", arms, **size))
    return tuple(panels)


EXPERIMENTS = (
    Experiment(
        "table-noniid", "Label skew, means over sample sizes", "the same methods where clients' labels differ",
        {
            "smoke": (smoke_panel((FEDAVG, ERIS_DSC), extra=_SKEWED),),
            "small": _panels("table", small=True),
            "paper": _panels("table", small=False),
        },
        axis="n", averaged=True,
        notes=("K = 25, 25 and 10 are not in the text; the labels of this table and the next are swapped in print.",),
    ),
    Experiment(
        "figure-noniid", "Label skew by sample size", "the same trainings as curves over n",
        {
            "smoke": (smoke_panel((FEDAVG, ERIS_DSC), extra=_SKEWED),),
            "small": _panels("figure", small=True),
            "paper": _panels("figure", small=False),
        },
        axis="n", shape="lines",
    ),
)  # fmt: skip
