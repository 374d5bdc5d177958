"""Which of several trade-offs are worth a thought: those that no other beats in both respects.

>>> pareto_front({"a": (0.9, 0.2), "b": (0.8, 0.5), "c": (0.8, 0.4), "d": (0.9, 0.2)})
['a', 'b', 'd']
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["pareto_front"]

Point = tuple[float, float]


def pareto_front(points: Mapping[str, Point]) -> list[str]:
    """Return the names that no other is at least as good as in both, and better in one; more is better."""
    return [name for name, point in points.items() if not any(_beats(other, point) for other in points.values())]


def _beats(one: Point, other: Point) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one != other
