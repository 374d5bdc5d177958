"""Shifted compression played by hand: members, one mean, lost links and shards, in float32 or float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eris.seeds import private_root, public_root
from eris.shards.plan import ShardPlan
from eris.transforms import Accepted, MeanStretch, SendContext, Shift, chain
from eris.transforms.exact import Identity
from eris.transforms.sparsify import Bernoulli, RandK, StratifiedRandK
from eris.transforms.topk import TopK


@dataclass(frozen=True)
class Float64:
    """A code that keeps float64, so that the same arithmetic can be run without float32's rounding."""

    name: str = "float64"
    bits: int = 64
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype("<f8"))
    scale_count: int = 0

    def decode(self, symbols, scales, coordinates):
        return symbols


def widened(compressor_type):
    """Return the compressor with float64 values inside."""

    class Wide(compressor_type):
        def compress(self, vector, context):
            return replace(super().compress(vector, context), code=Float64())

        def __repr__(self):
            return f"wide {super().__repr__()}"

    if not hasattr(compressor_type, "compress_difference"):
        return Wide

    class WideDifference(Wide):
        def compress_difference(self, update, reference, context):
            return replace(super().compress_difference(update, reference, context), code=Float64())

    return WideDifference


WideIdentity, WideTopK = widened(Identity), widened(TopK)
WideRandK, WideBernoulli, WideStratified = widened(RandK), widened(Bernoulli), widened(StratifiedRandK)


class Federation:
    """K members around one shift; `round` is what a round of the protocol does to their states."""

    def __init__(self, transform: Shift, plan: ShardPlan, weights, *, seed: int = 0, dtype=np.float64):
        self.transform, self.chain, self.plan, self.seed, self.dtype = transform, chain(transform), plan, seed, dtype
        self.weights = self._normalised(weights)
        self.public = self._empty(self.chain.public_state(plan.n))
        self.private = {k: self._empty(self.chain.private_state(plan.n)) for k in self.weights}
        self.time = 0
        self.means: list[MeanStretch] = []

    @property
    def reference(self):
        """s, as every peer has it."""
        return self.public["0.reference"]

    def own(self, member: int):
        """s_k."""
        return self.private[member]["0.reference"]

    def weighted_references(self):
        """Σ w_k s_k over all members, present or not."""
        return sum(float(w) * self.own(k).astype(np.float64) for k, w in sorted(self.weights.items()))

    def broken(self) -> float:
        """How far s is from Σ w_k s_k."""
        return float(np.abs(self.reference - self.weighted_references()).max())

    def context(self, member: int) -> SendContext:
        public = public_root(self.seed).child("round", self.time)
        private = private_root(self.seed, member).child("round", self.time)
        return SendContext(self.time, member, self.plan, public, private)

    def round(self, updates: Mapping[int, Any], *, links=frozenset(), shards=frozenset(), renormalise=True):
        """Play a round: `links` (member, shard) and `shards` are lost. Return the direction u."""
        sent = {
            k: self.chain.outgoing(update, self.private[k], self.public, self.context(k))
            for k, update in sorted(updates.items())
        }
        arrived = {a: [] if a in shards else [k for k in sent if (k, a) not in links] for a in range(self.plan.shards)}
        values = np.zeros(self.plan.n, self.dtype)
        for k, outgoing in sent.items():
            dense = outgoing.packed.dense().astype(self.dtype)
            for a in range(self.plan.shards):
                if k in arrived[a]:
                    inside = self.plan.coordinates(a)
                    values[inside] += self.weights[k] * dense[inside]
        c = np.ones(self.plan.n, self.dtype)
        if renormalise:
            for a, members in arrived.items():
                c[self.plan.coordinates(a)] = 1 / sum(self.weights[k] for k in members) if members else 1
        mean = MeanStretch(values, c, lost=tuple(a for a, members in arrived.items() if not members))
        direction = self.chain.incoming(mean, self.public)
        for k, outgoing in sent.items():
            missing = tuple(a for a, members in arrived.items() if k not in members)
            self.chain.settle(outgoing, self.private[k], Accepted(self.plan, missing))
        self.means.append(mean)
        self.time += 1
        return direction

    def new_members(self, weights) -> None:
        """Change the roster: a reference epoch begins, everybody sets s_k := s."""
        self.weights = self._normalised(weights)
        self.private = {k: self._empty(self.chain.private_state(self.plan.n)) for k in self.weights}
        for private in self.private.values():
            self.chain.new_epoch(private, self.public)

    def _empty(self, state):
        return {name: vector.astype(self.dtype) for name, vector in state.items()}

    def _normalised(self, weights):
        total = sum(weights.values())
        return {k: self.dtype(w / total) for k, w in sorted(weights.items())}
