"""A round of real roles in which one aggregator signs a false mean, and the next one, in which it reads.

Coordinator, members and aggregators are those of the protocol, in one process. The liar receives what everybody sends
it, and then states for every shard that it holds, in its manifest and with values that fit it, the mean that would move
the model to where it wants it. Nobody is told who lies. With `shards.replicas = 2` the other aggregator of the shard
states what it really folded; members and the coordinator do with the two what the protocol says.

Messages are not signed here, since nobody speaks for anybody else: what a liar signs, it signs correctly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from eris.compose import Composition
from eris.local.spec import Vector
from eris.local.task import LocalResult
from eris.protocol.in_process import InProcess
from eris.protocol.member import Member
from eris.protocol.messages import Published, Withheld, payload_hash
from eris.protocol.round_plan import RoundPlan
from eris.protocol.rules import Rules
from eris.seeds import private_root
from eris.shards.plan import ShardPlan

__all__ = ["FalseMeanRound", "Lie", "Train"]

Train = Callable[[int, Vector], LocalResult]  # a peer's training, from a model
Lie = Callable[[Vector, NDArray[np.bool_]], Vector]  # the model wanted: given the present one, and what can be decided


@dataclass(frozen=True)
class FalseMeanRound:
    """What came of one lie.

    Args:
        told: the shards that the liar stated a mean of.
        lost: the shards that the round ended without.
        model: of every honest member, after it.
        seen: which coordinates the liar is sent.
        read: what the victim, peer 0, sent the liar in the next round; zero elsewhere.
    """

    told: tuple[int, ...]
    lost: tuple[int, ...]
    model: Vector = field(repr=False)
    seen: NDArray[np.bool_] = field(repr=False)
    read: Vector = field(repr=False)

    @classmethod
    def play(
        cls, made: Composition, model: Vector, train: Train, lie: Lie | None, *, shard: Callable[[ShardPlan], int]
    ) -> FalseMeanRound:
        """Play two rounds from a model.

        Args:
            made: the method, with a peer for every aggregator.
            model: what everybody begins with.
            train: how every peer trains.
            lie: the model that the liar wants; None: it is honest.
            shard: the shard whose first aggregator it is.
        """
        root = partial(private_root, made.config.seed)
        least = made.config.server.min_contributors
        rules = Rules(made.run, made.aggregators, made.config.participation, min_contributors=least)
        roles = InProcess(made.recipe, rules, [made.roster[k] for k in range(len(made.roster))], model, root)
        plan, layout = roles.plan(), made.recipe.layout(0).trainable
        roles.begin(plan)
        roles.upload(plan, roles.contribute(plan, partial(_trained, train)))
        liar = plan.assignment[shard(layout)]
        told, seen = plan.shards_of(liar), np.zeros(layout.n, bool)
        for number in told:
            seen[layout.coordinates(number)] = True
        outcomes = roles.cut(plan)
        if lie is not None:
            wanted = lie(model, seen)
            outcomes = [_false(each, liar, layout, model, wanted) for each in outcomes]
        roles.publish(plan, outcomes)
        verdict = roles.decide()
        roles.conclude(verdict)
        after = roles.members[0].replica.model.copy()
        return cls(told, verdict.lost_shards, after, seen, _read(roles, liar, train))


def _trained(train: Train, member: Member, plan: RoundPlan) -> LocalResult:
    del plan
    return train(member.peer, member.look())


def _false(
    outcome: Published | Withheld, liar: int, layout: ShardPlan, model: Vector, wanted: Vector
) -> Published | Withheld:
    """Return what the liar states instead of an outcome of its own; those of others stay as they are."""
    if isinstance(outcome, Withheld) or outcome.manifest.aggregator != liar:
        return outcome
    own = layout.coordinates(outcome.manifest.shard)
    values = model[own] - wanted[own]
    stated = replace(outcome.manifest, hash=payload_hash(values, outcome.buffers))
    return Published(stated, values, outcome.buffers)


def _read(roles: InProcess, liar: int, train: Train) -> Vector:
    """Let everybody train and send once more; return what the liar has of peer 0."""
    plan = roles.plan()
    roles.begin(plan)
    roles.upload(plan, roles.contribute(plan, partial(_trained, train)))
    layout = roles.recipe.layout(plan.round).trainable
    found = np.zeros(layout.n, np.float32)
    for shard in plan.shards_of(liar):
        for header, part, _ in roles.aggregators[liar].staged(shard):
            if header.member == 0:
                found[layout.coordinates(shard)] = part.values
    return found
