"""How one member scores a model: sums and counts of figures, on held-out data.

A task returns them from `score(member, model, memory)`; a task of a single peer may return them from `evaluate(model)`,
each figure a pair (sum, count) instead of a mean. Sums can be added over members, means cannot.

>>> means_of({"loss": (6.0, 8), "accuracy": 0.5})
{'loss': 0.75, 'accuracy': 0.5}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eris.errors import TaskError
from eris.local.spec import Vector
from eris.local.task import Memory

__all__ = ["Scores", "means_of", "scores_of"]

Scores = Mapping[str, tuple[float, float]]


def scores_of(task: Any, member: int, model: Vector, memory: Memory, names: Sequence[str]) -> Scores:
    """Return sums and counts of the figures in `names` for a member; refuse figures that are not such pairs."""
    score = getattr(task, "score", None)
    found: Mapping[str, Any] = task.evaluate(model) if score is None else score(member, model, memory)
    if not found:
        raise TaskError(
            "the run shares figures, but this member has no held-out data to score on",
            fix="raise data.validation, or give the member test data of its own",
            peer=member,
        )
    return {name: _pair(name, found, member) for name in names}


def means_of(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures with every pair (sum, count) replaced by its mean."""
    return {name: _mean(value) for name, value in figures.items()}


def _mean(value: Any) -> Any:
    if not _is_pair(value):
        return value
    return value[0] / value[1] if value[1] else math.nan


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _pair(name: str, found: Mapping[str, Any], member: int) -> tuple[float, float]:
    if name not in found:
        raise TaskError(
            f"figures names {name!r}, but this task only has {', '.join(found)}", fix="name one of these", peer=member
        )
    if not _is_pair(found[name]):
        raise TaskError(
            f"{name} is a mean, and means cannot be added up over members",
            fix="return a pair (sum, count) for it from evaluate, or share another figure, such as loss",
            peer=member,
        )
    total, count = (float(part) for part in found[name])
    if not 0 < count < math.inf:
        raise TaskError(f"{name} was scored on {count:g} samples", fix="hold out samples to measure it on", peer=member)
    return total, count
