"""Membership audits within a comparison of methods: every method is trained with canaries and attacked.

Accuracy and leakage come from one and the same training.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eris.audit.membership_run import NOTES, AuditedRun, AuditPlan
from eris.config import Config
from eris.errors import ConfigError
from eris.events import Listener
from eris.local.task import Task
from eris.plain_json import sayable
from eris.simulate.spread import reach_of

__all__ = ["MembershipComparison", "joint_p_value", "pareto_front"]

_FIGURES = ("auc", "accuracy", "paper_mean")

Folds = Sequence[Mapping[str, Any]]


class MembershipComparison:
    """A membership audit of every training of a comparison; see `eris.simulate.comparison.TrainingAudit`."""

    place = "audited"

    def __init__(self, plan: AuditPlan, *, figure: str = "auc") -> None:
        if figure not in _FIGURES:
            raise ConfigError(f"there is no figure {figure!r}", fix=f"use one of {', '.join(_FIGURES)}")
        self._plan, self._leak = plan, figure  # the figure that decides the Pareto front
        self._runs: dict[Path, AuditedRun] = {}

    def attend(self, config: Config, folder: Path) -> tuple[Task, Listener]:
        """Plant canaries; return the task without those whose coin shows tails, and the audit as its listener."""
        audited = self._runs[folder] = AuditedRun(config, folder, self._plan)
        return audited.task, audited

    def found(self, config: Config, folder: Path, rounds: int) -> dict[str, Any]:
        """Return the result of each attack on the training in `folder`, after its first `rounds` rounds."""
        del config
        results = [result.plain() for result in self._runs.pop(folder).results(rounds)]
        found: dict[str, Any] = sayable({"results": results})
        return found

    def gathered(self, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return each method's leakage over the folds, and which methods are on the Pareto front."""
        attack, observer = self._plan.attacks[0], str(self._plan.observers[0])
        methods = {line["label"]: self._of_method(line["witnessed"]) for line in lines}
        points = {
            line["label"]: (float(line["table"]["accuracy"]["mean"]), 1 - _leak(methods[line["label"]][0], self._leak))
            for line in lines
            if line["table"]["accuracy"]["mean"] is not None
        }
        return {
            "audit": {
                "attack": attack,
                "observer": observer,
                "figure": self._leak,
                "methods": methods,
                "front": pareto_front(points),
                "points": {label: {"accuracy": x, "one_minus_leak": y} for label, (x, y) in points.items()},
                "notes": [*NOTES, *_NOTES],
            }
        }

    def _of_method(self, folds: Folds) -> list[dict[str, Any]]:
        """Return an entry for each observer and attack."""
        return [_over_folds([fold["results"][place] for fold in folds]) for place in range(len(folds[0]["results"]))]


_NOTES = (
    "accuracy and leakage come from the same training run, with canaries: members train on three quarters of their "
    "samples",
    "the front compares accuracy with 1 − the figure named; a figure below chance counts as chance",
    "p-values are combined over folds by Fisher's method: every fold tosses its own coins",
)


def _over_folds(results: Folds) -> dict[str, Any]:
    first = results[0]
    return {
        **{name: first[name] for name in ("observer", "attack", "canaries", "views")},
        "visible_share": statistics.fmean(result["visible_share"] for result in results),
        "epsilon": [result["epsilon"]["lower_bound"] for result in results],
        "figures": {name: _figure([result["figures"][name] for result in results]) for name in _FIGURES},
    }


def _figure(folds: Folds) -> dict[str, Any]:
    values = [fold["value"] for fold in folds]
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "reach": reach_of(values),
        "values": values,
        "chance": statistics.fmean(fold["chance"] for fold in folds),
        "chance_95": statistics.fmean(fold["chance_95"] for fold in folds),
        "p_value": joint_p_value([fold["p_value"] for fold in folds]),
        "low": folds[0]["low"] if len(folds) == 1 else None,
        "high": folds[0]["high"] if len(folds) == 1 else None,
    }


def _leak(entry: Mapping[str, Any], leak: str) -> float:
    """Return how much leaks, at least the chance level: an attack below chance is no merit of the method."""
    figure = entry["figures"][leak]
    return max(float(figure["mean"]), float(figure["chance"]))


def joint_p_value(values: Sequence[float]) -> float:
    """Combine p-values of independent tests: Fisher's −2 Σ ln p is χ² with twice as many degrees of freedom.

    >>> round(joint_p_value([0.04]), 4)
    0.04
    >>> round(joint_p_value([0.04, 0.04]), 4)
    0.0119
    """
    half = -math.fsum(math.log(value) for value in values)
    terms = [half**power / math.factorial(power) for power in range(len(values))]
    return math.exp(-half) * math.fsum(terms)


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points that no other point beats: at least as high in both values, and higher in one.

    >>> pareto_front({"a": (0.9, 0.2), "b": (0.8, 0.5), "c": (0.8, 0.4), "d": (0.9, 0.2)})
    ['a', 'b', 'd']
    """
    return [name for name, point in points.items() if not any(_beats(other, point) for other in points.values())]


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one != other
