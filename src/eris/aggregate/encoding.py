"""How contributions are written so that they can be added up: as floats, or in fixed point (`server.encoding`).

Floats are weighted and folded by the aggregator in ascending member id, once all have arrived. In fixed point a member
limits, weights and rounds its values itself (`fixed_point` has the arithmetic) and sends integers modulo 2³², and
buffers modulo 2⁶⁴. An aggregator adds each contribution as soon as it is complete, and does not keep it.

Only chains known to work may end in fixed point (`check_fixed_point`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.fixed_point import ONE, Encoded, Ring, RingScale, next_limit
from eris.aggregate.mean import WeightedMean
from eris.aggregate.rule import Rule
from eris.errors import ConfigError
from eris.local.spec import Vector
from eris.shards.plan import Coordinates
from eris.transforms.capabilities import AddsNoise
from eris.transforms.chain import Chain
from eris.transforms.compress import Compressor
from eris.transforms.exact import Identity
from eris.transforms.sparsify import Sparsifier

__all__ = ["FLOATS", "RINGS", "FixedPoint", "Ring32", "Words", "check_fixed_point", "check_masking"]

_TOLERATED = 0.01  # share of a member's values that a configured limit may cut before the member sends nothing


class Words(NamedTuple):
    """The types in which values and buffers are written, in uploads and in published shards."""

    values: np.dtype[Any]
    buffers: np.dtype[Any]

    def payload(self, values: int, buffers: int) -> int:
        """Return the bytes of this many values and buffers."""
        return values * self.values.itemsize + buffers * self.buffers.itemsize


FLOATS = Words(np.dtype("<f4"), np.dtype("<f4"))
RINGS = Words(np.dtype("<u4"), np.dtype("<u8"))


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Fixed point for a run: the limit R of all its rounds, or None if R follows what last moved the model."""

    limit: float | None = None

    def __post_init__(self) -> None:
        if self.limit is not None:
            RingScale(self.limit)

    def first(self, omega: float) -> float:
        """Return R of the first round: as configured, or the least power of two ≥ 1 + ω, the factor of a sparsifier.

        >>> FixedPoint().first(0.0), FixedPoint().first(4.0), FixedPoint(0.25).first(4.0)
        (1.0, 8.0, 0.25)
        """
        return self.limit if self.limit is not None else 2.0 ** math.ceil(math.log2(1 + omega))

    def next(self, largest: float, *, first: float, members: int) -> float:
        """Return R of the next round, given the largest value of the last directions, over so many members.

        It is `first` before anything was committed.
        """
        return self.limit if self.limit is not None else next_limit(largest, first=first, members=members)

    def tolerates(self, limited: int, values: int) -> bool:
        """Return whether a member may send an update in which the limit cut this many values.

        A limit that follows the directions and is too low grows sixteenfold by the next round, as long as somebody
        sends; a configured limit never grows, and would silently change the training.
        """
        return self.limit is None or limited <= _TOLERATED * values


@dataclass(frozen=True, slots=True)
class Ring32:
    """The code of one member's values in one round: integers modulo 2³², already weighted.

    An aggregator only adds symbols up, so it need not know R or the weight. Without both, `decode` gives v·w/R.
    """

    limit: float = 1.0
    weight: np.float32 = ONE
    name: str = "ring32"
    bits: int = 32
    dtype: np.dtype[Any] = field(default_factory=lambda: RINGS.values)
    scale_count: int = 0

    def encode(self, values: Vector, *, out: Ring | None = None) -> Encoded:
        """Return the symbols of float32 values, and how many of them the limit cut."""
        return RingScale(self.limit).encode(values, self.weight, out=out)

    def decode(self, symbols: NDArray[Any], scales: Vector, coordinates: Coordinates | None) -> Vector:
        """Return z·2^−f/w, the values that a contribution stands for at its member and at everybody else."""
        del scales, coordinates
        return RingScale(self.limit).decode(symbols, self.weight)


def check_fixed_point(rule: Rule, chain: Chain) -> None:
    """Refuse all but a mean of uncompressed updates, or of random sparsifiers with shared masks."""
    if not isinstance(rule, WeightedMean):
        raise ConfigError(
            f"rule {rule.name!r} looks at every member's values, but in fixed point an aggregator has only their sum",
            fix="use server.rule = 'mean', or server.encoding = 'float'",
        )
    for transform in chain.transforms:
        if isinstance(transform, AddsNoise):
            raise ConfigError(
                f"{transform!r} comes before the limit of fixed point, which would cut off the tail of its noise",
                fix="set noise in [privacy], which adds it after the limit; or use server.encoding = 'float'",
            )
        if not transform.only_sums:
            raise ConfigError(
                f"{transform!r} is not known to work with fixed point",
                fix="use clipping, control variates, shifts and shared random masks, or server.encoding = 'float'; "
                "set only_sums = True on a transform of your own if its incoming needs nothing of single members",
            )
    _check_compressor(chain.compressor)


def check_masking(rule: Rule, chain: Chain, *, steps: float = 0.0) -> None:
    """Refuse rules and chains that need more of a member than its part of a sum: masked shards reveal only sums.

    `steps` is how many local steps every member takes; 0 if members differ.
    """
    try:
        check_fixed_point(rule, chain)
    except ConfigError as error:
        fix = error.fix.replace("server.encoding = 'float'", "privacy.masking = 'none'")
        raise ConfigError(error.what, fix=fix) from None
    if chain.needs_steps and not steps:  # even a sum of them would reveal too much: see docs/methods.md
        raise ConfigError(
            f"{chain.describe()} needs the mean number of local steps: members' numbers stay the same while "
            "contributors change, so the sums of a few rounds would reveal each of them",
            fix="set local.steps (or local.batch = 'full'), so that all take equally many and none need be sent; "
            "or privacy.masking = 'none'",
        )


def _check_compressor(compressor: Compressor) -> None:
    if isinstance(compressor, Identity) or (isinstance(compressor, Sparsifier) and compressor.shared_support):
        return
    if isinstance(compressor, Sparsifier):
        reason = "lets members keep different coordinates: the sum would show a value that only one of them keeps"
    elif compressor.sparse:
        reason = "keeps coordinates that depend on the values: the sum would show a value that only one member keeps"
    else:
        reason = "has its own code for values, whose symbols cannot be added up"
    raise ConfigError(
        f"{compressor!r} {reason}",
        fix="use identity, or rand_k, bernoulli or stratified_rand_k with shared masks; or server.encoding = 'float'",
    )
