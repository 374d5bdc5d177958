"""Shatter: a member speaks through l virtual nodes, each with one chunk of its model.

All virtual nodes form a random graph in which each has r neighbours, redrawn every round from the public root. One
sends its chunk (of the *model*, not of an update) to its neighbours, which hand it to their member; that takes, for
every coordinate, the mean of its own value and those of the others it got. Chunks are cut within every tensor and stay
the same for the run.

A neighbour inside the same member brings nothing new and costs nothing. A chunk that reaches a member over two of its
virtual nodes was sent twice but counts once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eris.config import Config
from eris.local.spec import ModelSpec
from eris.methods.exchange import Message, Models, Send, subtract
from eris.methods.gossip import mean_of
from eris.methods.graph import check_degree, regular_graph
from eris.methods.method import Method
from eris.seeds import Seed
from eris.shards.plan import ShardPlan, per_tensor

__all__ = ["SHATTER", "Shatter"]

Receivers = tuple[int, ...]  # real members, as often as they are reached


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
        """Return that models are all there is."""
        return {}


def _make(config: Config, spec: ModelSpec, public: Seed) -> Shatter:
    settings = config.baselines
    chunks = per_tensor(spec.trainable_sizes, settings.virtual_nodes, public.child("shatter", "chunks"))
    return Shatter(chunks, config.members, settings.virtual_degree, public)


SHATTER = Method("shatter", "random members see chunks of a model", exchange=_make)
