"""Seeds: all randomness has an address, run → round → peer → purpose.

A `Seed` is a node of a tree. Its key comes from hashing the path that leads to it, its numbers from a counter-based
generator (Philox 4×64-10) under that key. There is no global state, and the order of calls does not matter: the same
address gives the same words on every platform and library version. Integers, permutations and subsets are built from
those words here, because libraries change how they build theirs.

There are two kinds of root. The **public** one (shard plans, shared masks, graphs) is known to every peer. Each peer
has a **private** one (noise, batches, stochastic rounding, canary coins) that is never sent. Code that draws noise asks
for a private seed and refuses a public one.

>>> run = public_root(7)
>>> run.child("round", 3).child("plan").integers(10, count=5).tolist()
[5, 8, 1, 7, 6]
>>> run.child("round", 3).child("plan").permutation(5).tolist()
[2, 0, 4, 3, 1]
>>> private_root(7, peer=0)
Seed(private: seed/7/peer/0)
"""

from __future__ import annotations

import hashlib
import math
import operator
import secrets
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from eris.errors import InputError

__all__ = ["Seed", "private_root", "private_root_from_os", "public_root"]

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]

_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Seed:
    """One address in the tree of randomness; `path` is for people to read, numbers come from `key`."""

    path: str
    key: bytes = field(repr=False)
    private: bool = False

    def __repr__(self) -> str:
        """Show the address, never the key."""
        return f"Seed({'private' if self.private else 'public'}: {self.path})"

    def child(self, *labels: str | int) -> Seed:
        """Return the seed at this path below; `child("round", 3)` is the same as `child("round").child(3)`."""
        path, key = self.path, self.key
        for label in labels:
            text = label if isinstance(label, str) else str(operator.index(label))  # numpy's integers count as integers
            kind = b"s" if isinstance(label, str) else b"i"
            key = hashlib.blake2b(kind + text.encode(), key=key, digest_size=_KEY_BYTES).digest()
            path = f"{path}/{text}"
        return Seed(path, key, self.private)

    def for_values(self, values: NDArray[Any]) -> Seed:
        """Return the seed that belongs to these values: equal values get the same numbers, others get different ones.

        This is how noise is addressed. An update sent again under another plan gets the same noise; a different
        update of the same round never does, because the difference of the two would reveal both.
        """
        return self.child("values", str(blake3(np.ascontiguousarray(values).view(np.uint8).data).hexdigest()))

    def require_private(self, purpose: str) -> Seed:
        """Return self if it is private; refuse a public seed, because anybody could redraw the `purpose` from it."""
        if not self.private:
            raise InputError(
                f"{purpose} must come from a private seed, but {self!r} is public",
                fix="derive it from private_root(...) or private_root_from_os()",
            )
        return self

    def words(self, count: int, *, start: int = 0) -> Words:
        """Return `count` words of 64 random bits, beginning with word number `start` (random access)."""
        block, skip = divmod(start, 4)
        generator = self._philox(block)
        if skip:
            generator.random_raw(skip, output=False)
        drawn: Words = np.asarray(generator.random_raw(count), dtype=np.uint64)
        return drawn

    def uniforms(self, count: int, *, start: int = 0) -> NDArray[np.float64]:
        """Return `count` multiples of 2⁻⁵³ in [0, 1)."""
        return (self.words(count, start=start) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def integers(self, bound: int, *, count: int, start: int = 0) -> Integers:
        """Return `count` integers in [0, bound), bound ≤ 2³²: the high part of word × bound (bias below 2⁻³²).

        The first is number `start` of the stream.
        """
        if not 0 < bound <= 2**32:
            raise InputError(f"bound of random integers is {bound}", fix="use 1 … 2³²")
        words, factor, half = self.words(count, start=start), np.uint64(bound), np.uint64(32)
        low = (words & np.uint64(0xFFFFFFFF)) * factor >> half
        return ((words >> half) * factor + low >> half).astype(np.int64)

    def permutation(self, n: int) -> Integers:
        """Return a random order of 0 … n−1: the stable order of n random words."""
        return np.argsort(self.words(n), kind="stable").astype(np.int64, copy=False)

    def subset(self, n: int, k: int) -> Integers:
        """Return k distinct integers of 0 … n−1 in ascending order, every k-subset equally likely, in O(k log k).

        The first k distinct values of a stream of integers; for k > n/2 the complement is drawn.
        """
        if not 0 <= k <= n:
            raise InputError(f"cannot choose {k} of {n}", fix="use 0 ≤ k ≤ n")
        if k == n:
            return np.arange(n, dtype=np.int64)
        if 2 * k > n:
            keep = np.ones(n, dtype=bool)
            keep[self.subset(n, n - k)] = False
            return np.flatnonzero(keep).astype(np.int64, copy=False)
        return self._first_distinct(n, k)

    def generator(self) -> np.random.Generator:
        """Return a numpy generator under this key, for draws whose bits need not outlive the library version."""
        return np.random.Generator(self._philox(0))

    def torch_seed(self) -> int:
        """Return a non-negative 63-bit number to seed other libraries with."""
        return int(self.words(1)[0] >> np.uint64(1))

    def _philox(self, block: int) -> np.random.Philox:
        return np.random.Philox(key=int.from_bytes(self.key, "little"), counter=block)

    def _first_distinct(self, n: int, k: int) -> Integers:
        # Expected number of draws until k distinct ones, plus six standard deviations: a second batch is rare.
        draws = int(n * -math.log1p(-k / n) + 6 * math.sqrt(k) + 16)
        while True:
            values, first = _distinct(self.integers(n, count=draws))
            if values.size >= k:
                if values.size > k:
                    cut = np.partition(first, k - 1)[k - 1] if k else -1
                    values = values[first <= cut]
                return values
            draws *= 2


def _distinct(stream: Integers) -> tuple[Integers, Integers]:
    """Return the distinct values of a stream (each below 2³²) in ascending order, and where each occurs first.

    numpy sorts sixteen bits in linear time and stably: doing that twice takes half as long as `unique`.
    """
    numbers = stream.astype(np.uint32)
    order = np.argsort(numbers.astype(np.uint16), kind="stable")  # by the lower half; the cast drops the upper one
    order = order[np.argsort((numbers >> np.uint32(16)).astype(np.uint16)[order], kind="stable")]
    values = stream[order]
    begins = np.ones(values.size, bool)
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    return values[begins], order[begins]


def public_root(seed: int) -> Seed:
    """Return the root everybody knows: plans, shared masks, graphs."""
    return Seed(f"seed/{seed}", _root_key(b"public", str(seed).encode()))


@lru_cache(maxsize=1024, typed=True)  # a simulation asks for every member in every round
def private_root(seed: int, peer: int | str) -> Seed:
    """Return a peer's private root *derived from the run's seed*: reproducible, hence no privacy claim."""
    return Seed(f"seed/{seed}/peer/{peer}", _root_key(b"private", f"{seed}/{peer}".encode()), private=True)


def private_root_from_os(peer: int | str) -> Seed:
    """Return a private root drawn from the operating system, as a real peer uses it. It is never sent."""
    return Seed(f"os/peer/{peer}", secrets.token_bytes(_KEY_BYTES), private=True)


def _root_key(kind: bytes, text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_KEY_BYTES, person=b"eris-" + kind).digest()
