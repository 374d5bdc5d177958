"""Accuracy and membership under label skew (Dirichlet, fewer clients): a table over all sample sizes and its figure."""

from __future__ import annotations

from typing import Any

from eris.paper.experiment import Treatment
from eris.paper.settings import (
    ERIS_DSC,
    FEDAVG,
    IMDB,
    SHATTER,
    SMALL,
    BySize,
    DataSet,
    ldp,
    priprune,
    soteria,
    summary_rows,
)

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 2

_DATA = ("MNIST", "CIFAR-10", "IMDB")
_SMALL = {name: {**SMALL[name], "samples": (8,), "folds": 3, "losses_only": True} for name in _DATA}
_PAPER = {name: {"samples": (4, 8, 16, 32, 64), "folds": 4 if name == "IMDB" else 5} for name in _DATA}
_BY_SIZE = BySize("noniid", _SMALL, _PAPER, ("data.partition=dirichlet", "data.alpha=0.5"))


def _of_table(data: DataSet) -> tuple[Treatment, ...]:
    return summary_rows(data, sharded=False)


def _of_figure(data: DataSet) -> tuple[Treatment, ...]:
    prune = priprune(0.3 if data is IMDB else 0.01)
    noisy, soterias = ldp(data.epsilons[0], "FedAvg (ε,δ)-LDP"), soteria(data.epsilons[0], "SoteriaFL")
    return (FEDAVG, noisy, soterias, prune, SHATTER, ERIS_DSC)


def _in_figure(data: DataSet) -> dict[str, Any]:
    return {"printed": "figure-noniid", "rows": f"{data.name}: {{row}}"}


EXPERIMENTS = (
    _BY_SIZE.table(
        "Label skew", "the same methods where clients' labels differ", _of_table,
        ("K = 25, 25 and 10 are not in the text; the labels of this table and the next are swapped in print.",),
    ),
    _BY_SIZE.figure("Label skew", _of_figure, _in_figure),
)  # fmt: skip
