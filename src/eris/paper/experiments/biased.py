"""Several local steps (two epochs of small batches): the table, its figure, and CIFAR-10 with more data per client."""

from __future__ import annotations

from eris.paper.experiment import Experiment, Panel, Treatment
from eris.paper.settings import (
    CIFAR10,
    ERIS_DSC,
    FEDAVG,
    MIN_LEAKAGE,
    SMALL,
    BySize,
    DataSet,
    ldp,
    panel_of,
    priprune,
    smoke_panel,
    summary_rows,
)

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 3

_DATA = ("MNIST", "CIFAR-10", "IMDB")
_ROUNDS = {"MNIST": 35, "CIFAR-10": 40, "IMDB": 2}  # two steps or more in each
_SMALL = {name: {**SMALL[name], "rounds": _ROUNDS[name], "samples": (8,), "folds": 3, "losses_only": True}
          for name in _DATA}  # fmt: skip
_PAPER = {name: {"samples": (4, 8, 16, 32, 64, 128)} for name in _DATA}


def _arms(data: DataSet) -> tuple[Treatment, ...]:
    return summary_rows(data, both=True, sharded=False)


_LARGE = (FEDAVG, ldp(10, "FedAvg+LDP"), priprune(0.01, "PriPrune"), ERIS_DSC, MIN_LEAKAGE)
_STEPS = ("local.batch=4", "local.epochs=2")
_BY_SIZE = BySize("biased", _SMALL, _PAPER, _STEPS)


def _large(*, small: bool) -> Panel:
    if small:
        size = {**SMALL["CIFAR-10"], "rounds": 20, "samples": (64,)}
        return panel_of(CIFAR10, "biased", _LARGE, printed="cifar-large", **size)
    return panel_of(CIFAR10, "biased", _LARGE, samples=(64, 128, 256, 415), rounds=100, printed="cifar-large",
                    losses_only=True)  # fmt: skip


EXPERIMENTS = (
    _BY_SIZE.table(
        "Two local epochs", "the same methods with several local steps", _arms,
        ("DSC keeps 1/(2 log₂ T), of IMDB 1/log₂ T: not in the text.",),
    ),
    _BY_SIZE.figure("Two local epochs", _arms),
    Experiment(
        "table-cifar-large", "CIFAR-10 with more data per client", "whether the picture changes with more data",
        {
            "smoke": (smoke_panel((FEDAVG, ERIS_DSC), name="CIFAR-10", extra=_STEPS),),
            "small": (_large(small=True),),
            "paper": (_large(small=False),),
        },
        axis="n",
        notes=("Two local epochs, which the text does not say; n = 415 means 830 of a client's 1,000 samples.",
               "PriPrune's share is not printed; 0.01 is taken."),
    ),
)  # fmt: skip
