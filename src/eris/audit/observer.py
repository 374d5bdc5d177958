"""Observers of a member, and recorders that gather the events of a round into one transcript.

An observer is an aggregator, a coalition, the server, a neighbour, any peer that hears broadcasts, or the wire.

>>> parse_observer("coalition:3")
Observer(kind='coalition', size=3)
>>> from eris.seeds import public_root
>>> [vantage.peers for vantage in Observer("coalition", 2).vantages(0, [0, 1, 2], 3, public_root(1), limit=1)]
[(2, 1)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from eris.config import Config
from eris.errors import ConfigError, InputError
from eris.events import Event, RoundEnded, RoundStarted, Sent, ShardPublished, VerdictWritten
from eris.local.spec import Vector
from eris.methods import with_defaults
from eris.methods.masked import is_masked
from eris.protocol.recipe import Recipe
from eris.seeds import Seed
from eris.shards.plan import Coordinates
from eris.shards.policy import Layout
from eris.view import View, seen_shards, view_of

__all__ = [
    "DecentralisedRecorder",
    "DecentralisedTranscript",
    "Kind",
    "Observer",
    "PublishedMean",
    "RoundTranscript",
    "TranscriptRecorder",
    "Vantage",
    "parse_observer",
    "partners_of",
]

Kind = Literal["aggregator", "unmasker", "pair", "coalition", "server", "neighbour", "broadcast", "wire"]
Reach = Literal["own", "all", "sent", "none"]
Models = NDArray[np.float32]  # members × coordinates
_NOBODY: Mapping[int, Sequence[int]] = {}


@dataclass(frozen=True, slots=True)
class Vantage:
    """A place to look from: peers that pool what they know, and which shards they read (`reach`).

    ``own``: the shards they aggregate as first or second aggregator; masked ones only if they unmask them too.
    ``all``: every shard (the server). ``sent``: every shard that left the member (the wire without encryption; the
    member's own shard never leaves it, and masked ones cannot be read). ``none``: only what is published. The peers
    also know their own updates. Where members talk to each other, ``own`` is what was sent to the peers.
    """

    peers: tuple[int, ...]
    reach: Reach

    def shards(
        self,
        sent: Sent,
        assignment: tuple[int, ...],
        witnesses: tuple[int, ...] = (),
        unmaskers: tuple[int, ...] = (),
    ) -> tuple[int, ...]:
        """Return the shards of a member's message whose values are seen from here.

        Args:
            sent: the member's message.
            assignment: the aggregator of each shard.
            witnesses: the second aggregator of each shard, with replicas.
            unmaskers: the unmaskers of shard 0, then of shard 1, …, where contributions are masked.
        """
        if self.reach == "sent":
            return () if unmaskers else tuple(shard for shard, count in enumerate(sent.bytes) if count)
        if self.reach == "own":
            return seen_shards(sent.reached, assignment, self.peers, witnesses, unmaskers)
        return sent.reached if self.reach == "all" else ()

    def hears(self, sent: Sent) -> bool:
        """Return whether a message from one member to others is heard here."""
        return bool(sent.reached) if self.reach == "sent" else not set(sent.reached).isdisjoint(self.peers)

    def view(
        self,
        sent: Sent,
        layout: Layout,
        assignment: tuple[int, ...],
        witnesses: tuple[int, ...] = (),
        unmaskers: tuple[int, ...] = (),
    ) -> View:
        """Return what is seen of one member in one round; the arguments are those of `shards`."""
        seen = replace(sent, reached=self.shards(sent, assignment, witnesses, unmaskers))
        return view_of(seen, layout, assignment, set(assignment))


@dataclass(frozen=True, slots=True)
class Observer:
    """A kind of observer, such as an aggregator or a coalition of some size; the victim is never part of it."""

    kind: Kind
    size: int = 1  # of a coalition

    def __str__(self) -> str:
        return f"coalition:{self.size}" if self.kind == "coalition" else self.kind

    def vantages(
        self,
        victim: int,
        aggregators: Sequence[int],
        members: int,
        seed: Seed,
        *,
        limit: int,
        server: bool = False,
        partners: Mapping[int, Sequence[int]] = _NOBODY,
    ) -> list[Vantage]:
        """Return up to `limit` places to look at a victim from; the first is the one chosen beforehand.

        They are drawn in a random order that does not depend on the coalition's size, so a larger coalition contains
        the smaller ones. With a server there is one aggregator, which is not a member; a coalition is then the server
        and c − 1 members.

        Args:
            victim: the member that is looked at.
            aggregators: the peers that aggregate.
            members: how many members there are.
            seed: where the random order comes from.
            limit: the most places to return.
            server: whether a server aggregates.
            partners: the unmaskers of each aggregator of masked shards, which sees nothing without them: a `pair` is
                an aggregator together with its unmaskers.
        """
        if self.kind == "wire":
            return [Vantage((), "sent")]
        if self.kind == "neighbour":
            raise ConfigError(
                "members of this method have no neighbours", fix="use --observer aggregator, or coalition:C"
            )
        if self.kind == "server" and not server:
            raise ConfigError("this method has no server", fix="use --observer aggregator, or coalition:C")
        if server and self.kind != "broadcast":
            peers = _order(range(members), victim, seed, 0)[: self.size - 1]
            return [Vantage(tuple(peers), "all")]
        nobody_else = set(aggregators) == {victim}  # a sole aggregator shows the others only what it publishes
        if self.kind == "broadcast" or nobody_else:
            return [Vantage((peer,), "none") for peer in _order(range(members), victim, seed, 0)[:limit]]
        if self.kind == "unmasker":
            return _unmaskers(_order(aggregators, victim, seed, 0), victim, partners)[:limit]
        if self.kind == "pair":
            return _pairs(_order(aggregators, victim, seed, 0), victim, partners)[:limit]
        if self.kind == "aggregator":
            return [Vantage((peer,), "own") for peer in _order(aggregators, victim, seed, 0)[:limit]]
        return self._coalitions(victim, aggregators, seed, limit)

    def places_among(self, victim: int, members: int, seed: Seed, *, limit: int) -> list[Vantage]:
        """Return up to `limit` places to look from, for methods whose members talk to each other directly.

        Args:
            victim: the member that is looked at.
            members: how many members there are.
            seed: where the random order comes from.
            limit: the most places to return.
        """
        if self.kind == "wire":
            return [Vantage((), "sent")]
        if self.kind in ("server", "broadcast", "pair", "unmasker"):
            raise ConfigError(
                f"members of this method talk to each other: there is no {self.kind}",
                fix="use --observer neighbour, coalition:C or wire",
            )
        if self.kind != "coalition":
            return [Vantage((peer,), "own") for peer in _order(range(members), victim, seed, 0)[:limit]]
        return self._coalitions(victim, range(members), seed, limit)

    def _coalitions(self, victim: int, aggregators: Sequence[int], seed: Seed, limit: int) -> list[Vantage]:
        if self.size > len(aggregators):
            raise ConfigError(
                f"the coalition has {self.size} peers, but there are {len(aggregators)} aggregators",
                fix="use a smaller one",
            )
        different: dict[frozenset[int], Vantage] = {}
        for draw in range(limit):
            peers = tuple(_order(aggregators, victim, seed, draw)[: self.size])
            different.setdefault(frozenset(peers), Vantage(peers, "own"))
        return list(different.values())


def parse_observer(text: str) -> Observer:
    """Parse an observer from its command-line form, such as `aggregator` or `coalition:3`."""
    kind, _, size = text.partition(":")
    if kind not in get_args(Kind) or (kind == "coalition") != bool(size) or (size and not size.isdecimal()):
        raise ConfigError(
            f"there is no observer {text!r}",
            fix="use aggregator, unmasker, pair, coalition:C, server, neighbour, broadcast or wire",
        )
    if size and int(size) < 1:
        raise ConfigError("the coalition has no members", fix="use coalition:1 or more")
    return Observer(kind, int(size or 1))  # type: ignore[arg-type]


def partners_of(config: Config, name: str) -> dict[int, tuple[int, ...]]:
    """Return each aggregator's unmaskers in a simulated run of a method: the next peers in the ring.

    >>> partners_of(Config(members=4, aggregators=2), "eris+masked"), partners_of(Config(), "eris")
    ({0: (1,), 1: (2,)}, {})
    """
    config = with_defaults(config, name)
    if not is_masked(config):
        return {}
    count, members = config.aggregators, config.members
    found = {}
    for home in range(count):
        owners = {(home + turn) % count for turn in range(config.shards.replicas)}
        ring = [(home + turn) % members for turn in range(1, members) if (home + turn) % members not in owners]
        found[home] = tuple(ring[: config.privacy.unmaskers])
    return found


def _unmaskers(aggregators: Sequence[int], victim: int, partners: Mapping[int, Sequence[int]]) -> list[Vantage]:
    """Return a place for each unmasker on its own: it knows pads, and only those values that it aggregates itself.

    `partners` are the unmaskers of each aggregator.
    """
    if not partners:
        raise ConfigError("shards are not masked, so there is no unmasker", fix="use --observer aggregator")
    helpers = dict.fromkeys(helper for peer in aggregators for helper in partners[peer] if helper != victim)
    return [Vantage((peer,), "own") for peer in helpers] or [Vantage((), "none")]


def _pairs(aggregators: Sequence[int], victim: int, partners: Mapping[int, Sequence[int]]) -> list[Vantage]:
    """Return a place for each aggregator with its unmaskers (`partners`), unless the victim is one of them."""
    if not partners:
        raise ConfigError("shards are not masked, so an aggregator needs no unmasker", fix="use --observer aggregator")
    pairs = [(peer, *partners[peer]) for peer in aggregators if victim not in partners[peer]]
    return [Vantage(peers, "own") for peers in pairs] or [Vantage((), "none")]


def _order(peers: Sequence[int], victim: int, seed: Seed, draw: int) -> list[int]:
    others = [peer for peer in peers if peer != victim]
    order = seed.child("observers", victim, draw).permutation(len(others))
    return [others[place] for place in order.tolist()]


@dataclass(frozen=True, slots=True)
class PublishedMean:
    """A committed shard, as published: v̄ at these coordinates, averaged over these contributors."""

    coordinates: Coordinates = field(repr=False)
    values: Vector = field(repr=False)
    contributors: tuple[int, ...]


@dataclass
class RoundTranscript:
    """What happened in one round; all of it is public (model, assignment, weights, means) but `sent`."""

    round: int
    assignment: tuple[int, ...]  # shard → aggregator
    layout: Layout  # which coordinates are in which shard
    model: Vector = field(repr=False)  # x^t
    sent: dict[int, Sent] = field(default_factory=dict, repr=False)  # by member
    means: dict[int, PublishedMean] = field(default_factory=dict, repr=False)  # by shard
    weights: dict[int, float] = field(default_factory=dict, repr=False)  # w_k of the roster, Σ = 1
    new_references: bool = False  # a reference epoch began with this round
    witnesses: tuple[int, ...] = ()  # shard → second aggregator, with replicas; public too
    unmaskers: tuple[int, ...] = ()  # those of shard 0, then of shard 1, …, where contributions are masked; public too

    @property
    def owners(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The peers on duty for each shard: aggregators, witnesses and unmaskers."""
        return self.assignment, self.witnesses, self.unmaskers

    def accepted(self, member: int) -> tuple[int, ...]:
        """Return the shards that were committed with this member among the contributors."""
        return tuple(shard for shard, mean in self.means.items() if member in mean.contributors)


class TranscriptRecorder:
    """Listens to a run and calls `deliver` with the transcript of each round once its verdict is written."""

    def __init__(self, recipe: Recipe, deliver: Callable[[RoundTranscript], None]) -> None:
        self._recipe, self._deliver = recipe, deliver
        self._record: RoundTranscript | None = None

    def __call__(self, event: Event) -> None:
        """Add an event to the transcript of the current round."""
        if isinstance(event, RoundStarted):
            self._record = self._begin(event)
        elif (record := self._record) is None:
            return
        elif isinstance(event, Sent):
            # Copied because the arrays belong to the engine, which reuses them.
            record.sent[event.member] = replace(event, values=event.values.copy(), buffers=event.buffers.copy())
        elif isinstance(event, ShardPublished) and not event.lost and event.values is not None:
            record.means[event.shard] = self._mean(record, event, event.values)
        elif isinstance(event, VerdictWritten):
            self._close(record, event)

    def _begin(self, event: RoundStarted) -> RoundTranscript:
        if event.model is None:
            raise InputError("this run's events do not carry the model", fix="audit a simulated run", round=event.round)
        layout, model = self._recipe.layout(event.round), event.model.copy()
        return RoundTranscript(
            event.round, event.assignment, layout, model, witnesses=event.witnesses, unmaskers=event.unmaskers
        )

    def _mean(self, record: RoundTranscript, event: ShardPublished, values: Vector) -> PublishedMean:
        support = self._recipe.published_support(event.round, event.shard)
        if support is None:
            support = record.layout.trainable.coordinates(event.shard)
        return PublishedMean(support, values.copy(), event.contributors)

    def _close(self, record: RoundTranscript, event: VerdictWritten) -> None:
        total = sum(entry.weight for entry in event.plan.roster)
        record.weights = {entry.peer: entry.weight / total for entry in event.plan.roster}
        record.weights |= {member: sent.weight for member, sent in record.sent.items()}
        record.new_references = event.plan.reference_begins == event.round > 0
        self._record = None
        self._deliver(record)


@dataclass
class DecentralisedTranscript:
    """What happened in one round of a method whose members have their own models; no observer sees all of it."""

    round: int
    models: Models = field(repr=False)  # each member's model at the start of the round
    sent: dict[int, list[Sent]] = field(default_factory=dict, repr=False)  # by member, all its messages


class DecentralisedRecorder:
    """Listens to a run and calls `deliver` with the transcript of each round once it is over."""

    def __init__(self, deliver: Callable[[DecentralisedTranscript], None]) -> None:
        self._deliver = deliver
        self._record: DecentralisedTranscript | None = None

    def __call__(self, event: Event) -> None:
        """Add an event to the transcript of the current round."""
        if isinstance(event, RoundStarted):
            if event.models is None:
                raise InputError("this run's events do not carry the models", fix="audit a simulated run")
            self._record = DecentralisedTranscript(event.round, event.models.copy())
        elif (record := self._record) is None:
            return
        elif isinstance(event, Sent):
            # Copied because the arrays belong to the exchange, which reuses them.
            record.sent.setdefault(event.member, []).append(replace(event, values=event.values.copy()))
        elif isinstance(event, RoundEnded):
            self._record = None
            self._deliver(record)
