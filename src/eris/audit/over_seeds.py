"""What an audit came to over several seeds: means with intervals that say how much another seed would differ.

>>> {name: round(value, 3) for name, value in mean_over_seeds([0.9, 0.94, 0.98]).items()}
{'value': 0.94, 'low': 0.841, 'high': 1.0}
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from eris.audit.membership import MembershipResult
from eris.audit.scoring import detection
from eris.simulate.spread import t_quantile

__all__ = ["mean_over_seeds", "summary_over_seeds"]


def mean_over_seeds(values: Sequence[float]) -> dict[str, float]:
    """Return the mean of an area or a rate with its 95 % t-interval, cut off at 0 and 1."""
    mean = statistics.fmean(values)
    reach = t_quantile(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return {"value": mean, "low": max(0.0, mean - reach), "high": min(1.0, mean + reach)}


def summary_over_seeds(method: str, runs: Mapping[int, Sequence[MembershipResult]]) -> dict[str, Any]:
    """Return for one method what each observer's attacks came to over at least two seeds, as plain data.

    Each figure is the mean of what the runs came to. The rates at few false positives are taken of all runs' canaries
    together, as one run has too few.
    """
    return {
        "method": method,
        "seeds": list(runs),
        "results": [_summary(found) for found in zip(*runs.values(), strict=True)],
    }


def _summary(found: Sequence[MembershipResult]) -> dict[str, Any]:
    first = found[0]
    epsilons = [result.epsilon["lower_bound"] for result in found]
    return {
        **{name: getattr(first, name) for name in ("observer", "attack", "rounds", "members", "views")},
        "canaries": sum(result.canaries for result in found),
        "visible_share": statistics.fmean(result.visible_share for result in found),
        "figures": {name: _figure(name, found) for name in ("auc", "accuracy")},
        "epsilon": {
            "values": epsilons,
            "lower_bound": statistics.fmean(epsilons),
            "delta": first.epsilon["delta"],
            "confidence": first.epsilon["confidence"],
        },
        "true_positives": detection([result.sheet for result in found], [result.coins for result in found]),
    }


def _figure(name: str, found: Sequence[MembershipResult]) -> dict[str, Any]:
    figures = [result.figures[name] for result in found]
    chance = {part: statistics.fmean(getattr(figure, part) for figure in figures) for part in ("chance", "chance_95")}
    values = [figure.value for figure in figures]
    return {**mean_over_seeds(values), **chance, "values": values}
