"""Integer noise from a cryptographic generator: the discrete Gaussian, P(x) ∝ exp(−x²/2σ²) on the integers.

Added to values on a grid it leaves no low bits to inspect, as rounded floats do. The words come from BLAKE3's
extendable output under a key of the member's private root: without the key they cannot be told from random ones, and
the same address gives the same words again.

A normal ξ (Box and Muller, with 128 bits for the radius: tails reach 13σ) proposes x = rint(ξ); x is kept with a
probability proportional to exp((ξ² − x²)/2σ²), which corrects for the rounding. Nothing beyond 12σ is drawn (10⁻³² of
all). This is done in float64: relative errors of a probability are 2⁻⁵⁰ for small σ and grow to 2⁻²² for σ = 2²⁸ grid
steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from eris.aggregate.fixed_point import Ring
from eris.errors import InputError
from eris.seeds import Seed

__all__ = ["TAIL", "add_discrete_gaussian", "discrete_gaussian"]

TAIL = 12  # standard deviations: no draw is larger
_PAIRS = 1 << 14  # drawn at a time, so that they stay in the cache
_WORDS = 5  # of 64 bits for a pair: two for its radius, one for its angle, one to keep or drop each
_LARGEST = 2.0**40


def add_discrete_gaussian(ring: Ring, deviation: float, seed: Seed) -> None:
    """Add noise to ring values in place, modulo 2³²; `deviation` is in grid steps."""
    filled = 0
    for drawn in _draws(deviation, seed):
        part = ring[filled : filled + drawn.size]
        part += drawn[: part.size].view(np.uint64).astype(np.uint32)  # the low half of two's complement: modulo 2³²
        filled += part.size
        if filled == ring.size:
            return


def discrete_gaussian(count: int, deviation: float, seed: Seed) -> NDArray[np.int64]:
    """Return `count` draws, the same as `add_discrete_gaussian` adds.

    >>> from eris.seeds import private_root
    >>> noise = discrete_gaussian(100_000, 8.0, private_root(1, peer=0))
    >>> bool(abs(noise.std() - 8) < 0.1), bool(abs(noise.mean()) < 0.1)
    (True, True)
    """
    found, filled = np.empty(count, np.int64), 0
    for drawn in _draws(deviation, seed) if count else ():
        part = found[filled : filled + drawn.size]
        part[:] = drawn[: part.size]
        filled += part.size
        if filled == count:
            break
    return found


def _draws(deviation: float, seed: Seed) -> Iterator[NDArray[np.int64]]:
    """Yield draws endlessly, some thousands at a time."""
    seed.require_private("noise")
    if not (math.isfinite(deviation) and 0.5 <= deviation <= _LARGEST):
        raise InputError(f"the noise is {deviation} grid steps", fix="use 0.5 … 2⁴⁰ grid steps")
    hasher = blake3(b"eris discrete gaussian v1", key=blake3(seed.key, derive_key_context="eris noise 2026").digest())
    twice, most = 2 * deviation * deviation, math.floor(TAIL * deviation)
    largest = (most + 0.25) / twice  # of (ξ² − x²)/2σ² = r(2x + r)/2σ², r = ξ − x within ±½
    for block in range(2**40):
        length = 8 * _WORDS * _PAIRS
        raw = hasher.digest(length=length, seek=block * length)
        words = np.frombuffer(raw, "<u8").reshape(_WORDS, _PAIRS)
        radius = words[0] * 2.0**-64
        radius += (words[1] + 1.0) * 2.0**-128  # never zero
        np.log(radius, out=radius)
        radius *= -2.0
        np.sqrt(radius, out=radius)
        radius *= deviation
        angle = words[2] * (2 * np.pi * 2.0**-64)
        normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
        whole = np.rint(normal)
        normal -= whole
        chance = normal * (2 * whole + normal)
        chance /= twice
        chance -= largest
        np.exp(chance, out=chance)
        keep = (words[3:].reshape(-1) >> np.uint64(11)) * 2.0**-53 < chance
        keep &= np.abs(whole) <= most
        yield whole[keep].astype(np.int64)
