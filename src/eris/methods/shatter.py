"""Shatter: a member acts through l virtual nodes, each with one chunk of its model.

All virtual nodes form a random graph in which each has r neighbours, redrawn every round from the public root. A node
sends its chunk (of the *model*, not of an update) to its neighbours, which hand it to their member. For every
coordinate, a member takes the mean of its own value and those it received. Chunks are cut within every tensor and stay
the same for the whole run.

A neighbour inside the same member brings nothing new and costs nothing. A chunk that reaches a member through two of
its virtual nodes was sent twice but counts once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from eris.config import Config
from eris.local.spec import ModelSpec
from eris.methods.exchange import Message, Models, Send, subtract
from eris.methods.gossip import mean_of
from eris.methods.graph import check_degree, regular_graph
from eris.methods.method import Method, MethodFacts, Planned, Seen
from eris.methods.own_model import OwnModelOptions
from eris.seeds import Seed
from eris.shards.plan import ShardPlan, per_tensor

__all__ = ["SHATTER", "Shatter"]

Receivers = tuple[int, ...]  # real members, once for each time that they are reached


@dataclass(frozen=True)
class Shatter:
    """Chunks of models between virtual nodes; node (k, j) has number k·l + j."""

    chunks: ShardPlan
    members: int
    degree: int
    public: Seed = field(repr=False)

    def __post_init__(self) -> None:
        check_degree(self.members * self.chunks.shards, self.degree)

    def receivers(self, round: int) -> dict[tuple[int, int], Receivers]:
        """Return, for each member and chunk, the members that get it."""
        virtual = self.chunks.shards
        graph = regular_graph(self.members * virtual, self.degree, self.public.child("shatter", round))
        return {
            (node // virtual, node % virtual): tuple(
                other // virtual for other in near if other // virtual != node // virtual
            )
            for node, near in enumerate(graph)
        }

    def play(self, round: int, models: Models, updates: Models, send: Send) -> None:
        """Train, scatter, average chunk by chunk."""
        subtract(models, updates)
        receivers = self.receivers(round)
        for chunk in range(self.chunks.shards):
            places = self.chunks.coordinates(chunk)
            parts = [model[places] for model in models]
            heard: list[set[int]] = [{member} for member in range(self.members)]
            for sender, part in enumerate(parts):
                reached = receivers[sender, chunk]
                send(Message(sender, reached, chunk, part, 4 * part.size))
                for receiver in reached:
                    heard[receiver].add(sender)
            for member, senders in enumerate(heard):
                models[member, places] = mean_of([parts[sender] for sender in sorted(senders)])

    def state(self) -> dict[str, Models]:
        """Return nothing: the models are all there is."""
        return {}


class ShatterOptions(OwnModelOptions):
    """How a member is scattered, and who talks to whom."""

    virtual_nodes: Annotated[int, Field(ge=1)] = Field(default=2, description="virtual nodes l of a member")
    virtual_degree: Annotated[int, Field(ge=1)] = Field(default=4, description="neighbours r of a virtual node")


def _make(config: Config, spec: ModelSpec, public: Seed) -> Shatter:
    settings = SHATTER.settings(config)
    chunks = per_tensor(spec.trainable_sizes, settings.virtual_nodes, public.child("shatter", "chunks"))
    return Shatter(chunks, config.members, settings.virtual_degree, public)


def _messages(round: Planned) -> tuple[float, float]:
    """Count each chunk to r virtual nodes, less the expected share of neighbours inside the same real node."""
    settings = SHATTER.settings(round.config)
    chunks, degree, virtual = (
        settings.virtual_nodes,
        settings.virtual_degree,
        round.participants * settings.virtual_nodes,
    )
    check_degree(virtual, degree)
    inside = (chunks - 1) / (virtual - 1)
    return degree * chunks * (1 - inside), round.bytes / chunks


def _sight(round: Planned, coalition: int) -> Seen:
    """Estimate the largest number of a member's chunks that reach one observer.

    A chunk goes to r of the other virtual nodes, so an observer that runs l of them gets it with probability q; the
    counts of different observers are taken as independent binomials.
    """
    settings, count = SHATTER.settings(round.config), round.participants
    chunks, degree = settings.virtual_nodes, settings.virtual_degree
    targets, own = count * chunks - 1, min(coalition, count - 1) * chunks
    missed = math.comb(max(targets - own, 0), degree) / math.comb(targets, degree) if degree <= targets else 0.0
    observers = max((count - 1) // coalition, 1)
    at_most, expected = 0.0, 0.0
    for seen in range(chunks):
        at_most += math.comb(chunks, seen) * (1 - missed) ** seen * missed ** (chunks - seen)
        expected += 1 - at_most**observers
    return Seen(expected / chunks, "a neighbour", "expected largest; the sender's name is hidden")


SHATTER = Method(
    "shatter",
    "random members see chunks of a model",
    exchange=_make,
    label="Shatter",
    options=ShatterOptions,
    facts=MethodFacts(messages=_messages, sight=_sight),
)
