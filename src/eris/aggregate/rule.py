"""The contract of an aggregation rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eris.local.spec import Vector

__all__ = ["Contribution", "Rule"]


@dataclass(frozen=True, slots=True)
class Contribution:
    """One member's complete, checked and finite values for one shard."""

    member: int
    weight: np.float32  # w_k, normalised over the whole roster
    values: NDArray[Any]  # float32, or ring values when a simulation adds those up
    positions: NDArray[np.int64] | None = None  # inside the shard, ascending; None: every coordinate in order


class Rule(Protocol):
    """Combines the contributions to one shard, in ascending member id, by an explicit loop."""

    @property
    def name(self) -> str:
        """The name used in configurations."""
        ...

    @property
    def coordinate_wise(self) -> bool:
        """Whether a coordinate's result depends on that coordinate alone (required for more than one aggregator)."""
        ...

    @property
    def linear(self) -> bool:
        """Whether the result is Σ w_k v_k (required by shifts and sparsifiers)."""
        ...

    def fold(self, contributions: Sequence[Contribution], out: Vector) -> None:
        """Write the combination of the contributions (any order; sorted here) into `out`."""
        ...
