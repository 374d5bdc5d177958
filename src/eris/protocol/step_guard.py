"""How long a mean may be: aggregators do not sign, and members do not take, one that no honest round produces.

Where members clip, no mean of theirs exceeds the bound; that is certain. Elsewhere the past is the measure: by default
ten times the median length of the last twenty committed means, once ten are known. That is an alarm, not a proof: a
shard that fails it is lost for the round with that reason, and nobody is excluded for it.

When a model has converged, members still pull it in different directions: their updates stay long, and the mean is next
to nothing until one of them is missing. So a mean may always be as long as this peer's own updates usually are; and
steps that are tiny beside the first ones may have any length.

>>> guard = StepGuard("auto")
>>> for _ in range(10):
...     guard.note(1.0)
>>> guard.limit, guard.allows(np.full(4, 4.0, np.float32)), guard.allows(np.full(4, 6.0, np.float32))
(10.0, True, False)
>>> for _ in range(20):
...     guard.note(1e-9)
...     guard.note_own(2.0)
>>> guard.limit
2.0
"""

from __future__ import annotations

import logging
import math
import statistics
from collections import deque
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from eris.protocol.recipe import Recipe
from eris.transforms.capabilities import BoundsNorm
from eris.transforms.compress import Compress
from eris.transforms.exact import Identity

__all__ = ["MaxStep", "StepGuard", "clipped_to", "length"]

_LOG = logging.getLogger(__name__)
MaxStep = Literal["auto", "off"] | float
_TIMES, _REMEMBERED, _WARM_UP = 10.0, 20, 10
_TINY = 1e-3  # of the first usual length
_ROUNDING = 1 + 1e-4  # sums of float32 squares


class StepGuard:
    """Tracks how long a run's committed means were; both roles of a peer consult it."""

    def __init__(self, longest: MaxStep = "auto", clipped: float | None = None) -> None:
        """`longest` is the configured limit; `clipped` is the length that no update exceeds, where members clip."""
        self._longest, self._clipped = longest, clipped
        self._lengths: deque[float] = deque(maxlen=_REMEMBERED)
        self._own: deque[float] = deque(maxlen=_REMEMBERED)  # of what this peer contributed
        self._first = 0.0  # usual length of a mean
        self._said = math.inf
        self.limit = self._limit()  # how long a mean may be now; infinite while nothing is known

    @property
    def learns(self) -> bool:
        """Whether what came before is the measure."""
        return self._longest == "auto" and self._clipped is None

    @property
    def clips(self) -> bool:
        """Whether members clip, so that every single contribution is held to the limit too."""
        return self._clipped is not None

    def _limit(self) -> float:
        if self._longest == "off":
            return math.inf
        if self._clipped is not None:
            return self._clipped * _ROUNDING
        if self._longest != "auto":
            return float(self._longest) * _ROUNDING
        usual = statistics.median(self._lengths) if len(self._lengths) >= _WARM_UP else 0.0
        self._first = self._first or usual
        own = statistics.median(self._own) if self._own else 0.0
        return max(_TIMES * usual, own, _TINY * self._first) if usual > 0 else math.inf

    def allows(self, values: NDArray[Any], factor: float = 1.0) -> bool:
        """Whether values, times a factor, are no longer than a mean may be; whole numbers have their own limit."""
        if self.limit == math.inf or values.dtype != np.float32:
            return True
        return not abs(factor) * length(values) > self.limit  # values that are not finite are caught elsewhere

    def note_own(self, contributed: float) -> None:
        """Take note of the length of a whole update of this peer, as it leaves."""
        if math.isfinite(contributed):
            self._own.append(contributed)
            self.limit = self._limit()

    def note(self, committed: float) -> None:
        """Note the length of a whole mean that was committed."""
        if math.isfinite(committed):
            self._lengths.append(committed)
            self.limit = self._limit()
        if not 0.5 < self.limit / self._said < 2.0 and self.limit < math.inf:
            _LOG.info(
                "from now on, means longer than %.3g are neither published nor accepted (server.max_step)", self.limit
            )
            self._said = self.limit


def length(values: NDArray[Any]) -> float:
    """Return the ℓ2 norm of float32 values, in one fast pass; infinite if the squares overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.sqrt(float(np.dot(values, values)))


def clipped_to(recipe: Recipe) -> float | None:
    """Return the norm that no member's contribution exceeds, if the recipe's chain guarantees one."""
    *before, last = recipe.chain.transforms
    if not (isinstance(last, Compress) and isinstance(last.compressor, Identity) and recipe.rule.linear):
        return None
    known: float | None = None
    for transform in before:
        known = transform.norm_bound(known) if isinstance(transform, BoundsNorm) else None
    return known
