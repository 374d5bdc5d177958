"""ERIS+LDP against the baselines' fronts on CIFAR-10: a table and two figures.

What is printed as ε is the noise multiplier σ: 0.001 means ε ≈ 550,000 per round, 1 means 4.7 per round.
"""

from __future__ import annotations

from dataclasses import replace

from eris.paper.experiment import Experiment, Panel, Treatment
from eris.paper.settings import CIFAR10, ERIS, FEDAVG, MNIST, SHATTER, SMALL, panel_of, smoke_panel

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 4

_NOISE = ((0.001, 10), (0.01, 5), (0.1, 2), (0.3, 1), (0.6, 1), (1.0, 1))
_PRUNED = (0.0005, 0.001, 0.005, 0.01, 0.03, 0.05)


def _noisy(family: str, method: str) -> list[Treatment]:
    return [
        Treatment(
            f"{family}: σ = {sigma}, C = {clip}",
            (f"method={method}", "privacy.unit=sample", f"privacy.noise_multiplier={sigma}", f"privacy.clip={clip}.0"),
            f"LDP (ε={sigma},C={clip})",
        )
        for sigma, clip in _NOISE
    ]


def _family(group: str, without: Treatment, arms: list[Treatment], none: str = "No LDP") -> list[Treatment]:
    """Return a family of rows, the first without any defence.

    Args:
        group: the family's name in print.
        without: the row without a defence.
        arms: the rows with one.
        none: the name in print of the row without a defence.
    """
    name = arms[0].label.split(":")[0]
    first = replace(without, label=f"{name}: none", row=none)
    return [replace(each, row=f"{group}: {each.row}") for each in (first, *arms)]


_SOTERIA = Treatment("", ("method=soteriafl", "privacy.epsilon=none"))
_ARMS = (
    *_family("FedAvg + LDP", FEDAVG, _noisy("FedAvg+LDP", "fedavg-dpsgd")),
    *_family("ERIS + LDP", ERIS, _noisy("ERIS+LDP", "eris+ldp")),
    *_family("SoteriaFL", _SOTERIA, _noisy("SoteriaFL", "soteriafl")),
    *_family("PriPrune", FEDAVG, [
        Treatment(
            f"PriPrune: p = {share}", ("method=priprune", f"options.priprune.prune={share}"), f"Pruning (p={share})"
        )
        for share in _PRUNED
    ], "No Pruning"),
)  # fmt: skip
_SHATTER = replace(SHATTER, label="Shatter: r = 4")
_FEW = tuple(arm for arm in _ARMS if arm.label.endswith(("none", "σ = 0.1, C = 2", "p = 0.01")))


_SOME = ("none", "σ = 0.1, C = 2", "σ = 0.6, C = 1", "p = 0.001", "p = 0.01", "p = 0.05", "r = 4")
_ATTACKED = ("FedAvg", "ERIS", "PriPrune: p = 0.01", "PriPrune: none")  # what the claim compares, and rows of Table 1


def _small(arms: tuple[Treatment, ...]) -> Panel:
    """Return a panel with every third strength; trainings that Table 1 has too are shared with it."""
    some = tuple(
        arm if arm.label.startswith(_ATTACKED) else replace(arm, options={"losses_only": True})
        for arm in arms
        if arm.label.endswith(_SOME)
    )
    panel = panel_of(MNIST, "unbiased", some, samples=(8,), canaries=32, **SMALL["MNIST"])
    return replace(panel, stand_in="MNIST and LeNet-5 for CIFAR-10 and ResNet-9")


def _paper(arms: tuple[Treatment, ...], samples: tuple[int, ...]) -> Panel:
    return panel_of(CIFAR10, "unbiased", arms, samples=samples, printed="pareto")


_NOTE = ("What is printed as ε is the noise multiplier σ.",)

EXPERIMENTS = (
    Experiment(
        "table-pareto", "Noise and pruning of all strengths (CIFAR-10)", "ERIS+LDP against the baselines",
        {"smoke": (smoke_panel(_FEW),), "small": (_small(_ARMS),), "paper": (_paper(_ARMS, (4, 8, 16)),)},
        axis="n", notes=_NOTE,
    ),
    Experiment(
        "figure-pareto", "The fronts by sample size", "whose points no other method's dominate",
        {"smoke": (smoke_panel(_FEW),), "small": (_small(_ARMS),), "paper": (_paper(_ARMS, (4, 8, 16)),)},
        axis="n", shape="front", notes=_NOTE,
    ),
    Experiment(
        "figure-pareto-shatter", "The fronts at 16 samples, with Shatter", "the same with Shatter beside them",
        {
            "smoke": (smoke_panel((*_FEW, _SHATTER)),),
            "small": (_small((*_ARMS, _SHATTER)),),
            "paper": (_paper((*_ARMS, _SHATTER), (16,)),),
        },
        axis="n", shape="front",
        notes=(*_NOTE, "The plotted leakage of Shatter is that of ERIS plus round constants: it was not measured."),
    ),
)  # fmt: skip
