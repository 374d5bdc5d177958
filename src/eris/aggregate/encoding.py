"""How contributions are written so that they can be added up: as floats, or in fixed point (`server.encoding`).

Floats are weighed and folded by the aggregator, once all are there, in ascending member id. In fixed point a member
limits, weighs and rounds its values itself (`fixed_point` has the arithmetic); what travels are whole numbers modulo
2³², and buffers modulo 2⁶⁴. An aggregator adds each contribution up when it is complete and keeps nothing of it.

Which chains may end in fixed point is a list (`check_fixed_point`), not whatever happens to run.
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
    """What values and buffers are written as, in uploads and in published shards."""

    values: np.dtype[Any]
    buffers: np.dtype[Any]

    def payload(self, values: int, buffers: int) -> int:
        """Return the bytes of this many values and buffers."""
        return values * self.values.itemsize + buffers * self.buffers.itemsize


FLOATS = Words(np.dtype("<f4"), np.dtype("<f4"))
RINGS = Words(np.dtype("<u4"), np.dtype("<u8"))


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The encoding of a run: the limit R of all its rounds, or None where R follows what moved the model last."""

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
        """Return R of the next round, given the largest value of the directions that so many members just caused."""
        return self.limit if self.limit is not None else next_limit(largest, first=first, members=members)

    def tolerates(self, limited: int, values: int) -> bool:
        """Whether a member may send an update of which the limit cut this many values.

        A limit that follows the directions has grown sixteenfold by the next round if it was too low, as long as
        somebody sends; a configured one never does, and would quietly train to something else.
        """
        return self.limit is None or limited <= _TOLERATED * values


@dataclass(frozen=True, slots=True)
class Ring32:
    """The code of one member's values in one round: whole numbers modulo 2³², weighed already.

    An aggregator knows neither R nor has to: it adds symbols up. With both left out `decode` gives v·w/R.
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
        """Return z·2^−f/w: what member and others hold the contribution for."""
        del scales, coordinates
        return RingScale(self.limit).decode(symbols, self.weight)


def check_fixed_point(rule: Rule, chain: Chain) -> None:
    """Refuse all but a mean of uncompressed updates, or of random sparsifiers with shared masks."""
    if not isinstance(rule, WeightedMean):
        raise ConfigError(
            f"rule {rule.name!r} looks at every member's values; in fixed point an aggregator has only their sum",
            fix="use server.rule = 'mean', or server.encoding = 'float'",
        )
    for transform in chain.transforms:
        if isinstance(transform, AddsNoise):
            raise ConfigError(
                f"{transform!r} stands before the limit of fixed point, which would cut the tail off its noise",
                fix="give it as [privacy] settings: it then comes behind the limit; or use server.encoding = 'float'",
            )
        if not transform.only_sums:
            raise ConfigError(
                f"{transform!r} is not known to work with fixed point",
                fix="use clipping, control variates, shifts and shared random masks, or server.encoding = 'float'; "
                "a transform of your own says only_sums = True if its way back needs nothing of single members",
            )
    _check_compressor(chain.compressor)


def check_masking(rule: Rule, chain: Chain, *, steps: float = 0.0) -> None:
    """Refuse what needs more of a member than its part of a sum: masked contributions are fixed point, and say less.

    `steps` is how many local steps every member takes; 0 if that is each one's own affair.
    """
    try:
        check_fixed_point(rule, chain)
    except ConfigError as error:
        fix = error.fix.replace("server.encoding = 'float'", "privacy.masking = 'none'")
        raise ConfigError(error.what, fix=fix) from None
    if chain.needs_steps and not steps:  # a sum of them would be of little use: see docs/methods.md
        raise ConfigError(
            f"{chain.describe()} needs the mean number of local steps: the numbers stay while contributors change, so "
            "sums of a few rounds would tell each member's",
            fix="set local.steps (or local.batch = 'full'): then all take as many, and it need not be told; "
            "or privacy.masking = 'none'",
        )


def _check_compressor(compressor: Compressor) -> None:
    if isinstance(compressor, Identity) or (isinstance(compressor, Sparsifier) and compressor.shared_support):
        return
    if isinstance(compressor, Sparsifier):
        reason = "lets members keep different coordinates: what one of them keeps alone is its own value in the sum"
    elif compressor.sparse:
        reason = "keeps coordinates that depend on the values: what one member keeps alone is its own value in the sum"
    else:
        reason = "writes values in a code of its own, whose symbols cannot be added up"
    raise ConfigError(
        f"{compressor!r} {reason}",
        fix="use identity, or rand_k, bernoulli or stratified_rand_k with shared masks; or server.encoding = 'float'",
    )
