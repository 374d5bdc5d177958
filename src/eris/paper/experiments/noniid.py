"""Accuracy and membership under label skew (Dirichlet, fewer clients): a table over all sample sizes and its figure."""

from __future__ import annotations

from typing import Any

from eris.paper.experiment import Experiment, Treatment
from eris.paper.settings import (
    ERIS_DSC,
    FEDAVG,
    IMDB,
    SHATTER,
    SMALL,
    DataSet,
    ldp,
    priprune,
    soteria,
    summary_rows,
    table_sizes,
)

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 2

_DATA = ("MNIST", "CIFAR-10", "IMDB")
_SMALL = {name: {**SMALL[name], "samples": (8,), "folds": 3, "losses_only": True} for name in _DATA}
_PAPER = {name: {"samples": (4, 8, 16, 32, 64), "folds": 4 if name == "IMDB" else 5} for name in _DATA}
_SKEWED = ("data.partition=dirichlet", "data.alpha=0.5")


def _of_table(data: DataSet) -> tuple[Treatment, ...]:
    return summary_rows(data, sharded=False)


def _of_figure(data: DataSet) -> tuple[Treatment, ...]:
    prune = priprune(0.3 if data is IMDB else 0.01)
    noisy, soterias = ldp(data.epsilons[0], "FedAvg (ε,δ)-LDP"), soteria(data.epsilons[0], "SoteriaFL")
    return (FEDAVG, noisy, soterias, prune, SHATTER, ERIS_DSC)


def _in_table(data: DataSet) -> dict[str, Any]:
    return {"printed": "noniid", "column": data.name}


def _in_figure(data: DataSet) -> dict[str, Any]:
    return {"printed": "figure-noniid", "rows": f"{data.name}: {{row}}"}


EXPERIMENTS = (
    Experiment(
        "table-noniid", "Label skew, means over sample sizes", "the same methods where clients' labels differ",
        table_sizes("noniid", _of_table, _in_table, small=_SMALL, paper=_PAPER, extra=_SKEWED),
        axis="n", averaged=True,
        notes=("K = 25, 25 and 10 are not in the text; the labels of this table and the next are swapped in print.",),
    ),
    Experiment(
        "figure-noniid", "Label skew by sample size", "the same trainings as curves over n",
        table_sizes("noniid", _of_figure, _in_figure, small=_SMALL, paper=_PAPER, extra=_SKEWED),
        axis="n", shape="lines",
    ),
)  # fmt: skip
