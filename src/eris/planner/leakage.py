"""Theorem 3.2 of the paper as a calculator: an upper bound on what an observer's shards reveal of a member's data.

    I(D_k; view) ≤ T · p · (coordinates of the coalition) · C_max        in nats

It rests on assumptions that do not hold in general (see `eris.paper.flaws`); read it as a count of coordinates, times
the most that one of them could reveal.

>>> leak = leakage(n=61_706, rounds=120, keep=1 / 31, shards=50, capacity=gaussian_capacity(0.01))
>>> round(leak.coordinates, 2), round(leak.nats, 2)
(4777.24, 23.77)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.errors import ConfigError, InputError

__all__ = ["Capacity", "Leakage", "capacity_from_transcripts", "gaussian_capacity", "leakage", "needed_against"]


@dataclass(frozen=True, slots=True)
class Leakage:
    """What a coalition sees over a run, and the bound on what it can learn."""

    coordinates: float  # expected number of values seen, over all rounds
    nats: float  # min(H(D), coordinates · C_max)
    vacuous: bool  # the bound is infinite, or no better than knowing the data

    @property
    def bits(self) -> float:
        """The bound in bits."""
        return self.nats / math.log(2)


def leakage(
    *,
    n: int,
    rounds: int,
    keep: float = 1.0,
    shards: int | Sequence[float] = 1,
    coalition: int = 1,
    capacity: float,
    entropy: float = math.inf,
) -> Leakage:
    """Return the bound for the best placed coalition.

    `n` values are trained for `rounds` rounds, and compression keeps the share `keep` of them. `shards` is the number
    of equal shards, or their sizes (any unit): then the largest ones collude. `capacity` is C_max in nats for one
    coordinate and round, `entropy` is H(D_k) in nats if it is known.
    """
    if n < 1 or rounds < 1:
        raise ConfigError(f"n is {n} and rounds is {rounds}", fix="use 1 or more of each")
    if not 0 < keep <= 1:
        raise ConfigError(f"kept share p is {keep}", fix="use 0 < p ≤ 1")
    if not capacity >= 0:
        raise ConfigError(f"C_max is {capacity}", fix="use nats ≥ 0, or inf")
    share = _coalition_share(shards, coalition)
    coordinates = rounds * keep * n * share
    # nothing seen tells nothing, whatever the capacity; 0 · ∞ is not a number
    bound = coordinates * capacity if coordinates > 0 else 0.0
    return Leakage(coordinates, min(bound, entropy), not bound < entropy)


def _coalition_share(shards: int | Sequence[float], coalition: int) -> float:
    sizes = [1.0] * shards if isinstance(shards, int) else sorted(map(float, shards), reverse=True)
    if not sizes or min(sizes) < 0 or sum(sizes) <= 0:
        raise ConfigError(f"shards are {shards}", fix="give a number ≥ 1, or sizes ≥ 0 with a positive sum")
    if not 0 <= coalition <= len(sizes):
        raise ConfigError(f"the coalition has {coalition} of {len(sizes)} aggregators", fix=f"use 0 … {len(sizes)}")
    return math.fsum(sizes[:coalition]) / math.fsum(sizes)


def gaussian_capacity(signal_to_noise: float) -> float:
    """Return ½ ln(1 + SNR) nats: the Gaussian estimate of C_max.

    >>> gaussian_capacity(math.inf)
    inf
    """
    if not signal_to_noise >= 0:
        raise ConfigError(f"signal-to-noise ratio is {signal_to_noise}", fix="use a value ≥ 0")
    return 0.5 * math.log1p(signal_to_noise)


@dataclass(frozen=True, slots=True)
class Capacity:
    """C_max estimated from a run: the largest coordinate's, the mean over coordinates, and how it was measured."""

    largest: float
    mean: float
    coordinates: int
    members: int
    redraws: int
    deterministic: int  # coordinates that do not change when the batch is redrawn


def capacity_from_transcripts(members: NDArray[np.floating], redraws: NDArray[np.floating]) -> Capacity:
    """Estimate C_max from updates of one round that all start from the same model.

    `members` [members × coordinates]: one update of each member. `redraws` [draws × coordinates]: updates of one
    member over redrawn batches. A coordinate tells ½ ln(variance between members / variance between redraws). If local
    work is deterministic the second variance is zero and the estimate infinite: the bound says nothing then.

    >>> draw = np.random.default_rng(7).normal
    >>> deterministic = np.ones((5, 3))
    >>> capacity_from_transcripts(draw(size=(9, 3)), deterministic).largest
    inf
    """
    for name, array in (("members", members), ("redraws", redraws)):
        if array.ndim != 2 or array.shape[0] < 2 or not np.isfinite(array).all():
            raise InputError(f"{name} has shape {array.shape}", fix="give at least two rows of finite values")
    if members.shape[1] != redraws.shape[1]:
        raise InputError(
            f"members have {members.shape[1]} coordinates, but redraws have {redraws.shape[1]}",
            fix="use the same coordinates",
        )
    between = members.astype(np.float64).var(axis=0, ddof=1)
    within = redraws.astype(np.float64).var(axis=0, ddof=1)
    told = np.zeros_like(between)  # a coordinate that never changes tells nothing
    noisy = within > 0
    told[noisy] = 0.5 * np.log(np.maximum(between[noisy] / within[noisy], 1.0))
    told[~noisy & (between > 0)] = math.inf
    return Capacity(
        largest=float(told.max()),
        mean=float(told.mean()),
        coordinates=int(told.size),
        members=int(members.shape[0]),
        redraws=int(redraws.shape[0]),
        deterministic=int((~noisy).sum()),
    )


def needed_against(coalition: int, *, shards: int, keep: float) -> tuple[int, float]:
    """Return the A, or else the p, that keep the bound of one observer against this many colluders.

    `shards` is A and `keep` p against one observer.
    """
    if coalition < 1:
        raise ConfigError(f"the coalition has {coalition} peers", fix="use 1 or more")
    return shards * coalition, keep / coalition
