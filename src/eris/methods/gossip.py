"""Plain gossip: a member trains, sends its whole model to its neighbours, and takes the mean of theirs and its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import Field

from eris.config import Config
from eris.local.spec import ModelSpec, Vector
from eris.methods.exchange import Message, Models, Send, subtract
from eris.methods.graph import Neighbours, check_degree, regular_graph
from eris.methods.method import Method, MethodFacts, Planned, Seen
from eris.methods.own_model import OwnModelOptions
from eris.seeds import Seed
from eris.shards.plan import ShardPlan, contiguous

__all__ = ["GOSSIP", "Gossip", "mean_of"]


def mean_of(models: list[Vector]) -> Vector:
    """Return the mean, summed in the order given: everybody with the same models gets the same bits."""
    total = np.zeros_like(models[0])
    for model in models:
        total += model
    total /= np.float32(len(models))
    return total


@dataclass(frozen=True)
class Gossip:
    """Whole models between neighbours of a regular graph that is redrawn every round."""

    chunks: ShardPlan
    members: int
    degree: int
    public: Seed = field(repr=False)

    def __post_init__(self) -> None:
        check_degree(self.members, self.degree)

    def neighbours(self, round: int) -> Neighbours:
        """Return who talks to whom."""
        return regular_graph(self.members, self.degree, self.public.child("gossip", round))

    def play(self, round: int, models: Models, updates: Models, send: Send) -> None:
        """Train, send, average."""
        subtract(models, updates)
        neighbours, trained = self.neighbours(round), models.copy()
        for member, near in enumerate(neighbours):
            send(Message(member, near, 0, trained[member], 4 * self.chunks.n))
        for member, near in enumerate(neighbours):
            models[member] = mean_of([trained[other] for other in sorted((member, *near))])

    def state(self) -> dict[str, Models]:
        """Return nothing: the models are all there is."""
        return {}


class GossipOptions(OwnModelOptions):
    """Who talks to whom."""

    degree: Annotated[int, Field(ge=0)] = Field(default=0, description="neighbours of a member; 0: all")


def _make(config: Config, spec: ModelSpec, public: Seed) -> Gossip:
    degree = GOSSIP.settings(config).degree or config.members - 1
    return Gossip(contiguous(spec.n_trainable, 1), config.members, degree, public)


def _messages(round: Planned) -> tuple[float, float]:
    return GOSSIP.settings(round.config).degree or round.participants - 1, round.bytes


GOSSIP = Method(
    "gossip",
    "neighbours see whole models",
    exchange=_make,
    label="Gossip",
    options=GossipOptions,
    facts=MethodFacts(messages=_messages, sight=lambda *_: Seen(1.0, "every neighbour", "the whole model")),
)
