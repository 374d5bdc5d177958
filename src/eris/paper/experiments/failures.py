"""Aggregators that drop out and links that fail: accuracy and the best round against the rate.

Losses can be compensated for by dividing by what arrived ("contributors") or not ("none"); the paper's text and its
collapse at 90 % fit the second.
"""

from __future__ import annotations

from collections.abc import Sequence

from eris.paper.experiment import ACCURACY, BEST_ROUND, Experiment, Measure, Panel, Point, Settings, Treatment
from eris.paper.settings import MNIST, panel_of

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 7

_RATES = tuple(range(0, 95, 5))
_ARMS = (
    Treatment("ERIS, not made up for", ("method=eris", "server.normalisation=none"), "ERIS"),
    Treatment("ERIS, made up for", ("method=eris", "server.normalisation=contributors"), "-"),
)
_ONLY: Settings = ("server.min_contributors=1",)


def _panel(key: str, rates: Sequence[int], base: Panel, folds: int, arms: tuple[Treatment, ...] = _ARMS) -> Panel:
    [at] = base.points
    points = tuple(Point(float(rate), (*at.settings, f"faults.{key}={rate / 100}")) for rate in rates)
    measure, printed = Measure("training", {"audit": False}), f"figure-{_NAMES[key]}"
    return Panel(base.label, (*base.base, *_ONLY), arms, points, folds, measure, printed, "{x} %",
                 stand_in=base.stand_in)  # fmt: skip


_NAMES = {"aggregator_dropout": "dropout", "link_failure": "links"}
_SMOKE = Panel(
    "MNIST",
    ("data.name=mnist-sample", "model.name=lenet5", "members=5", "data.validation=0.3", "data.test_samples=100",
     "local.batch=full", "local.lr=0.05", "workers=1"),
    (), (Point(0.0, ("rounds=2", "data.samples=16")),), stand_in="smoke: 6,000 digits, 5 members, 2 rounds",
)  # fmt: skip
_SMALL = panel_of(MNIST, "unbiased", (), samples=(16,), members=20, rounds=120, test_samples=1000,
                  evaluate_every=4, extra=("local.cohort=20",))  # fmt: skip
_PAPER = panel_of(MNIST, "unbiased", (), samples=(16,), rounds=200)


def _experiment(
    name: str, title: str, key: str, notes: tuple[str, ...], small: tuple[Treatment, ...] = _ARMS
) -> Experiment:
    return Experiment(
        name, title, "accuracy and the round of least validation loss",
        {
            "smoke": (_panel(key, (0, 50), _SMOKE, 1),),
            "small": (_panel(key, (0, 30, 50, 90), _SMALL, 4, small),),
            "paper": (_panel(key, _RATES, _PAPER, 5),),
        },
        (ACCURACY, BEST_ROUND), axis="rate, %", shape="lines",
        notes=("The paper names neither data set nor sample size; MNIST with n = 16 comes near its level.", *notes),
    )  # fmt: skip


EXPERIMENTS = (
    _experiment("figure-dropout", "Aggregators that drop out", "aggregator_dropout",
                ("A shard without its aggregator lacks every member's share, so both ways of counting give the same "
                 "bits; size small runs one of them.",), small=_ARMS[:1]),
    _experiment("figure-links", "Links that fail", "link_failure",
                ("Every second printed point is the mean of its neighbours: it was interpolated.",)),
)  # fmt: skip
