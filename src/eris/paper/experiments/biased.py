"""Several local steps: two epochs of small batches; the table, its figure, and CIFAR-10 with more data a client."""

from __future__ import annotations

from typing import Any

from eris.paper.experiment import Experiment, Panel
from eris.paper.settings import (
    CIFAR10,
    ERIS_DSC,
    FEDAVG,
    IMDB,
    MIN_LEAKAGE,
    MNIST,
    ldp,
    panel_of,
    priprune,
    smoke_panel,
    summary_rows,
)

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 3

_SMALL: dict[str, dict[str, Any]] = {
    "MNIST": {"members": 8, "rounds": 30, "samples": (16,), "folds": 3, "test_samples": 1000, "evaluate_every": 5,
              "views": 2, "extra": ("local.lr=0.05",)},
    "CIFAR-10": {"members": 5, "rounds": 15, "samples": (8,), "folds": 1, "test_samples": 300, "evaluate_every": 5,
                 "views": 1, "losses_only": True},
    "IMDB": {"members": 4, "rounds": 3, "samples": (8,), "folds": 1, "test_samples": 100, "evaluate_every": 1,
             "views": 1, "losses_only": True, "offline": True},
}  # fmt: skip


def _panels(*, small: bool, figure: bool = False) -> tuple[Panel, ...]:
    panels = []
    for data in (MNIST, CIFAR10, IMDB):
        size: dict[str, Any] = dict(_SMALL[data.name]) if small else {"samples": (4, 8, 16, 32, 64, 128)}
        size |= {} if figure else {"printed": "biased", "column": data.name}
        panels.append(panel_of(data, "biased", summary_rows(data, both=True, sharded=False), **size))
    return tuple(panels)


_LARGE = (FEDAVG, ldp(10, "FedAvg+LDP"), priprune(0.01, "PriPrune"), ERIS_DSC, MIN_LEAKAGE)
_STEPS = ("local.batch=4", "local.epochs=2")


def _large(*, small: bool) -> Panel:
    if small:
        return panel_of(CIFAR10, "biased", _LARGE, samples=(64,), members=4, rounds=8, folds=1, test_samples=300,
                        evaluate_every=4, views=1, losses_only=True, printed="cifar-large")  # fmt: skip
    return panel_of(CIFAR10, "biased", _LARGE, samples=(64, 128, 256, 415), rounds=100, printed="cifar-large",
                    losses_only=True)  # fmt: skip


EXPERIMENTS = (
    Experiment(
        "table-biased", "Two local epochs, means over sample sizes", "the same methods with several local steps",
        {
            "smoke": (smoke_panel((FEDAVG, ERIS_DSC), extra=_STEPS),),
            "small": _panels(small=True),
            "paper": _panels(small=False),
        },
        axis="n", averaged=True,
        notes=("DSC keeps 1/(2 log₂ T), of IMDB 1/log₂ T: not in the text.",),
    ),
    Experiment(
        "figure-biased", "Two local epochs by sample size", "the same trainings as curves over n",
        {
            "smoke": (smoke_panel((FEDAVG, ERIS_DSC), extra=_STEPS),),
            "small": _panels(small=True, figure=True),
            "paper": _panels(small=False, figure=True),
        },
        axis="n", shape="lines",
    ),
    Experiment(
        "table-cifar-large", "CIFAR-10 with more data a client", "whether the picture changes with more data",
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
