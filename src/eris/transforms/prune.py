"""Magnitude pruning (PriPrune): withhold the largest values, because they say most about the data.

The threshold is the (1 − p) quantile of the magnitudes; what lies above it becomes zero. With `keep_withheld`
(pseudo-pruning) a member keeps what it withheld in its own model: the next local training starts from it, and it may
still be sent when it is no longer among the largest.

**Bytes.** The (1 − p)·4n of the formula is not the whole price: the receiver must be told which values are missing, and
a list of them costs the four bytes each that pruning saves. So above p = 1/32 a part carries its values and a bitmap,
(1 − p)·4n + n/8 bytes; below, zeros travel like any value, 4n bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eris.errors import ConfigError, Reason, Refused
from eris.local.spec import Vector
from eris.seeds import Seed
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms.compress import Compress
from eris.transforms.normalise import NormaliseSteps
from eris.transforms.packed import Code, Float32, Packed
from eris.transforms.topk import magnitudes
from eris.transforms.transform import Accepted, SendContext, State, Transform

__all__ = ["MagnitudePrune", "Prune", "PseudoPrune", "magnitude_prune", "prune"]

_BITMAP_PAYS = 1 / 32


@dataclass(frozen=True)
class MagnitudePrune:
    """Zero what is larger than the (1 − p) quantile of the magnitudes (ties stay). Biased, and no contraction."""

    p: float

    unbiased = False
    contractive = False  # it drops the largest: nearly the whole vector may go
    plan_invariant = True
    sparse = True

    def __post_init__(self) -> None:
        if not 0 < self.p < 1:
            raise ConfigError(f"pruned share p is {self.p}", fix="use 0 < p < 1")

    def __repr__(self) -> str:
        return f"magnitude_prune({self.p})"

    @property
    def explicit(self) -> bool:
        """Whether a bitmap is shorter than sending the zeros."""
        return self.p > _BITMAP_PAYS

    @property
    def shared_support(self) -> bool:
        """Whether messages hold every coordinate of their shard."""
        return not self.explicit

    def omega(self, n: int) -> None:
        """Return None: biased."""
        del n

    def code(self, tensor_sizes: tuple[int, ...]) -> Code:
        """Return plain float32."""
        del tensor_sizes
        return Float32()

    def support(self, shard: int, plan: ShardPlan, public: Seed, mask_key: bytes) -> Coordinates | None:
        """Return None if zeros travel; otherwise refuse: only the message says which coordinates it has."""
        del plan, public, mask_key
        if self.explicit:
            raise Refused(Reason.MALFORMED, f"a message of {self!r} has no coordinates", shard=shard)
        return None

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Zero the largest values."""
        sizes = magnitudes(vector, context)
        keep = sizes <= _quantile(sizes, self.p)
        if not self.explicit:
            return Packed(vector.size, None, np.where(keep, vector, vector.dtype.type(0)))
        support = np.flatnonzero(keep).astype(np.int64, copy=False)
        return Packed(vector.size, support, vector[support], explicit=True)


def _quantile(sizes: Vector, p: float) -> np.float32:
    """Return the largest magnitude that is not above the (1 − p) quantile: that one separates the same values."""
    if not sizes.size:
        return np.float32(0)
    above = math.ceil(p * (sizes.size - 1) * (1 - 2.0**-50))
    rank = sizes.size - 1 - above
    return np.float32(np.partition(sizes, rank)[rank])


class Prune(Compress):
    """Withhold the largest values for good."""

    def __init__(self, p: float) -> None:
        super().__init__(MagnitudePrune(p))
        self.p = p

    def __repr__(self) -> str:
        return f"prune({self.p})"


class PseudoPrune(Prune):
    """Withhold the largest values for later: the member keeps them in its own model."""

    def __repr__(self) -> str:
        return f"prune({self.p}, keep_withheld=True)"

    def check(self, before: Sequence[Transform]) -> None:
        """Refuse to keep values that are no longer in units of the model."""
        if any(isinstance(transform, NormaliseSteps) for transform in before):
            raise ConfigError(
                f"{self!r} comes after normalise_steps(), so what it withholds could not be put back into the model",
                fix="use keep_withheld = false, or no normalise_steps",
            )

    def private_state(self, n: int) -> State:
        """Return zeros: nothing is withheld yet."""
        return {"withheld": np.zeros(n, np.float32)}

    def start(self, model: Vector, private: State) -> None:
        """Put what was withheld back into the member's own model."""
        model -= private["withheld"]

    def outgoing(self, update: Vector, context: SendContext) -> Packed:
        """Return the pruned update; what had been withheld before is part of it again."""
        return super().outgoing(update + context.private_state["withheld"], context)

    def settle_update(self, update: Vector, sent: Vector | Packed, private: State, accepted: Accepted) -> None:
        """Keep what was not sent, where the verdict accepted the rest."""
        assert isinstance(sent, Packed)
        withheld = update + private["withheld"]
        withheld -= sent.dense()  # exact: a value minus itself, or minus zero
        chosen = accepted.selects(None)
        np.copyto(private["withheld"], withheld, where=True if chosen is None else chosen)


def magnitude_prune(p: float) -> MagnitudePrune:
    """Zero the share p of largest magnitude."""
    return MagnitudePrune(p)


def prune(p: float, *, keep_withheld: bool = False) -> Prune:
    """Withhold the share p of largest magnitude; with `keep_withheld` a member goes on training with it."""
    return PseudoPrune(p) if keep_withheld else Prune(p)
