"""Leakage against the number of aggregators and against ω; coalitions; accuracy against ω."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eris.paper.experiment import ACCURACY, AUC, MIA, Experiment, Measure, Panel, Point, Treatment
from eris.paper.settings import CIFAR10, ERIS, FEDAVG, MNIST, SMALL, panel_of, smoke_panel

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 5

_DSC = Treatment("ERIS+DSC", ("method=eris+dsc", "compression.keep={keep}"), "ERIS (+DSC)")
_STAND_IN = "MNIST and LeNet-5 for CIFAR-10 and ResNet-9"


def _over(
    base: Panel, label: str, arms: tuple[Treatment, ...], points: Sequence[Point], printed: str, column: str
) -> Panel:
    [at] = base.points
    joined = tuple(replace(point, settings=(*at.settings, *point.settings)) for point in points)
    return replace(base, label=label, arms=arms, points=joined, printed=printed, column=column)


def _aggregators(base: Panel, counts: Sequence[int]) -> list[Point]:
    """Return a point for each number of aggregators; the last needs no setting if all members aggregate."""
    everybody = f"members={counts[-1]}" in base.base
    each = [Point(count, (f"aggregators={count}",)) for count in counts]
    return [*each[:-1], Point(counts[-1])] if everybody else each


def _omegas(values: Sequence[int]) -> list[Point]:
    return [Point(omega, (), {"keep": f"{1 / (1 + omega):.6g}"}) for omega in values]


_PAPER = panel_of(CIFAR10, "unbiased", (), samples=(8,))
_SMALL = replace(panel_of(MNIST, "unbiased", (), samples=(8,), canaries=32, **SMALL["MNIST"]), stand_in=_STAND_IN)
_TOGETHER = replace(_SMALL, base=(*_SMALL.base, "local.cohort=8"), folds=5)
_SMOKE = smoke_panel(())


def _both(base: Panel, counts: Sequence[int], omegas: Sequence[int]) -> tuple[Panel, ...]:
    return (
        _over(base, "aggregators A", (ERIS,), _aggregators(base, counts), "figure-aggregators", "A={x}"),
        _over(base, "server", (FEDAVG,), [Point(1)], "figure-aggregators", "A={x}"),
        _over(base, "compression ω", (_DSC,), _omegas(omegas), "figure-compression", "ω={x}"),
    )


def _collusion(base: Panel, sizes: Sequence[int]) -> Panel:
    """Return a panel with one training for each fold, observed by coalitions of all sizes."""
    observers = ["aggregator", *(f"coalition:{size}" for size in sizes)]
    options = {**base.measure.options, "observers": observers}
    points = [Point(size, prefix=f"coalition:{size}/") for size in sizes]
    panel = replace(base, measure=Measure("training", options))
    return _over(panel, "coalition", (ERIS,), points, "", "")


def _utility(base: Panel, samples: Sequence[int], omegas: Sequence[int], rounds: int = 0) -> Panel:
    data = CIFAR10
    arms = tuple(
        Treatment(
            f"n = {n}",
            (
                "method=eris+dsc",
                "compression.keep={keep}",
                f"data.samples={2 * n}",
                f"rounds={rounds or data.rounds(n)}",
            ),
            f"n={n}",
        )
        for n in samples
    )
    panel = replace(base, measure=Measure("training", {"audit": False}))
    return _over(panel, base.label, arms, _omegas(omegas), "figure-compression-utility", "ω={x}")


_OMEGAS = (0, 13, 20, 27, 40, 85, 170, 340, 700, 1050)

EXPERIMENTS = (
    Experiment(
        "figure-aggregators-compression", "Leakage against A, and against ω",
        "leakage falls with the number of aggregators, and with compression",
        {
            "smoke": _both(_SMOKE, (2, 6), (1, 19)),
            "small": _both(_SMALL, (2, 8), (19, 99)),
            "paper": _both(_PAPER, (10, 20, 30, 40, 50), (85, 170, 340, 700, 1050)),
        },
        (MIA, AUC, ACCURACY), axis="A, or ω", shape="lines",
        notes=("The caption says MNIST; the values behind the figure are CIFAR-10 with n = 8.",
               "A server is one aggregator that sees everything; A aggregators without compression are ω = 0."),
    ),
    Experiment(
        "figure-collusion", "Coalitions of aggregators", "leakage rises gracefully with the size of the coalition",
        {
            "smoke": (_collusion(_SMOKE, (1, 5)),),
            "small": (_collusion(_SMALL, (1, 3, 7)),),
            "paper": (_collusion(_PAPER, (1, 5, 10, 20, 30, 40, 49)),),
        },
        (MIA, AUC), axis="colluding aggregators", shape="lines",
        notes=("Random coalitions without the victim, means over several; the paper prints no values.",),
    ),
    Experiment(
        "figure-compression-utility", "Accuracy against ω", "DSC keeps utility up to strong compression",
        {
            "smoke": (_utility(_SMOKE, (8,), (0, 19), 2),),
            "small": (_utility(_TOGETHER, (8, 32), (0, 20, 85, 340), 60),),
            "paper": (_utility(_PAPER, (4, 8, 16, 32, 64, 128), _OMEGAS),),
        },
        (ACCURACY,), axis="ω", shape="lines",
    ),
)  # fmt: skip
