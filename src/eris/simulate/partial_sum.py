"""Add up one worker's contributions in a round: sums of integers have no order, so one vector stands for many members.

Only contributions that reach every aggregator are added up: a member with a lost message, or one that sends nothing, is
handed over separately. If a listener asks for views, every member's values are needed and nothing is added up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.fixed_point import Ring64, add, encode_buffers
from eris.simulate.work import Work, code_of

__all__ = ["PartialSum", "Total", "added"]


class Total(NamedTuple):
    """A sum of contributions in fixed point."""

    values: NDArray[np.uint32]
    buffers: Ring64


def added(totals: list[Total]) -> Total:
    """Return the sum of these sums, in new memory."""
    first, *others = totals
    total = Total(first.values.copy(), first.buffers.copy())
    for each in others:
        add(total.values, each.values)
        add(total.buffers, each.buffers)
    return total


class PartialSum:
    """Adds contributions up until it is asked for the total."""

    def __init__(self) -> None:
        self._total: Total | None = None

    def take(self, work: Work) -> Work:
        """Add a contribution and return the rest of the work; one that cannot be added is returned as it is."""
        if not work.job.limit or work.job.missing or work.not_finite or work.support is not None:
            return work
        buffers = encode_buffers(work.buffers, code_of(work.job).weight)
        if self._total is None:
            self._total = Total(work.values.copy(), buffers)
        else:
            add(self._total.values, work.values)
            add(self._total.buffers, buffers)
        return replace(work, values=_no(work.values), buffers=_no(work.buffers), added=True)

    def hand_over(self) -> Total | None:
        """Return the total and start over; None if nothing was added."""
        total, self._total = self._total, None
        return total


def _no(values: NDArray[Any]) -> NDArray[Any]:
    return np.empty(0, values.dtype)
