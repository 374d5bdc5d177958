"""Q-DPSGD-1: gossip with quantised models; the member's own step is clipped and noisy.

x_k ← (1 − e + e·w)·x_k + e·w·Σ Q(x_j) − e·u_k over its neighbours j, with w = 1/(degree + 1) and u_k the update of a
local step behind clipping and noise. The model that is sent is the one the round began with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import Field

from eris.config import Config
from eris.local.spec import ModelSpec
from eris.methods.exchange import Message, Models, Send
from eris.methods.graph import Neighbours, check_degree, regular_graph
from eris.methods.method import Method, MethodFacts, Planned, Seen
from eris.methods.noise_budget import with_noise
from eris.methods.own_model import OwnModelOptions
from eris.seeds import Seed, private_root
from eris.shards.plan import ShardPlan, contiguous
from eris.transforms import SendContext, qsgd_max
from eris.transforms.packed import Packed

__all__ = ["QDPSGD", "QuantisedGossip"]


@dataclass(frozen=True)
class QuantisedGossip:
    """Quantised models between neighbours of a regular graph that is redrawn every round."""

    chunks: ShardPlan
    members: int
    degree: int
    consensus: float
    levels: int
    tensor_sizes: tuple[int, ...]
    seed: int  # of the run; rounding uses each member's private root
    public: Seed = field(repr=False)

    def __post_init__(self) -> None:
        check_degree(self.members, self.degree)
        qsgd_max(self.levels + 1)  # refuses too many levels before the run begins

    def neighbours(self, round: int) -> Neighbours:
        """Return who talks to whom."""
        return regular_graph(self.members, self.degree, self.public.child("gossip", round))

    def play(self, round: int, models: Models, updates: Models, send: Send) -> None:
        """Send the quantised model, mix in what arrived, take the local step."""
        neighbours, heard = self.neighbours(round), np.empty_like(models)
        for member, near in enumerate(neighbours):
            packed = self.quantised(round, member, models)
            heard[member] = packed.values()
            size = -(-self.chunks.n * packed.code.bits // 8) + 4 * packed.scales.size
            send(Message(member, near, 0, heard[member], size))
        share = np.float32(self.consensus / (self.degree + 1))
        kept = np.float32(1 - self.consensus + self.consensus / (self.degree + 1))
        for member, near in enumerate(neighbours):
            models[member] *= kept
            for other in near:
                models[member] += share * heard[other]
            models[member] -= np.float32(self.consensus) * updates[member]

    def quantised(self, round: int, member: int, models: Models) -> Packed:
        """Return a member's model as it is sent."""
        private = private_root(self.seed, member).child("round", round, "gossip")
        public = self.public.child("round", round)
        context = SendContext(round, member, self.chunks, public, private, self.tensor_sizes)
        return qsgd_max(self.levels + 1).compress(models[member], context)

    def state(self) -> dict[str, Models]:
        """Return nothing: the models are all there is."""
        return {}


class QuantisedOptions(OwnModelOptions):
    """Who talks to whom, how far, how finely."""

    degree: Annotated[int, Field(ge=0)] = Field(default=0, description="neighbours of a member; 0: all")
    consensus: Annotated[float, Field(gt=0, le=1)] = Field(default=0.9, description="step ε_c of a round")
    levels: Annotated[int, Field(ge=1)] = Field(default=31, description="quantisation levels on each side of zero")


def _make(config: Config, spec: ModelSpec, public: Seed) -> QuantisedGossip:
    settings = QDPSGD.settings(config)
    return QuantisedGossip(
        contiguous(spec.n_trainable, 1),
        config.members,
        settings.degree or config.members - 1,
        settings.consensus,
        settings.levels,
        spec.trainable_sizes,
        config.seed,
        public,
    )


def _size(round: Planned) -> float:
    """Return a quantised model's size relative to float32, counting one scale (there is one for each tensor)."""
    bits = qsgd_max(QDPSGD.settings(round.config).levels + 1).code((round.n,)).bits
    return (-(-round.n * bits // 8) + 4 + 4 * round.buffers) / round.bytes


def _messages(round: Planned) -> tuple[float, float]:
    degree = QDPSGD.settings(round.config).degree or round.participants - 1
    return degree, _size(round) * round.bytes


QDPSGD = Method(
    "qdpsgd",
    "neighbours see whole noisy models, quantised",
    with_defaults=with_noise,
    exchange=_make,
    label="Q-DPSGD",
    options=QuantisedOptions,
    facts=MethodFacts(
        kept=_size,
        messages=_messages,
        sight=lambda *_: Seen(1.0, "every neighbour", "the whole model, quantised"),
    ),
)
