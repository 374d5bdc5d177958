"""Ako: every round one of p partitions of the accumulated gradient goes to everybody.

A partition that is sent holds what was accumulated since it was sent last, the sum of the last p gradients. So after p
rounds every gradient has reached everybody in all its partitions. A member applies its own gradient at once and those
of others as they come. In the original they add up; with ``mean`` (the default here) each counts 1/K, so that learning
rates mean what they mean in FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from eris.config import Config
from eris.errors import ConfigError
from eris.local.spec import ModelSpec
from eris.methods.exchange import Message, Models, Send
from eris.methods.method import Method, MethodFacts, Planned, Seen
from eris.methods.own_model import OwnModelOptions
from eris.seeds import Seed
from eris.shards.plan import ShardPlan, contiguous

__all__ = ["AKO", "Ako"]


@dataclass(frozen=True)
class Ako:
    """Partitions of accumulated gradients, from everybody to everybody."""

    chunks: ShardPlan
    members: int
    weight: np.float32
    accumulated: Models = field(repr=False)

    def play(self, round: int, models: Models, updates: Models, send: Send) -> None:
        """Accumulate, send the partition whose turn it is, apply its own gradient and the others' partitions."""
        chunk = round % self.chunks.shards
        places = self.chunks.coordinates(chunk)
        for sum_so_far, update in zip(self.accumulated, updates, strict=True):
            sum_so_far += update
        parts = self.accumulated[:, places]
        self.accumulated[:, places] = 0
        for sender, part in enumerate(parts):
            others = tuple(member for member in range(self.members) if member != sender)
            send(Message(sender, others, chunk, part, 4 * part.size))
        for member, (model, update) in enumerate(zip(models, updates, strict=True)):
            model -= self.weight * update
            for sender, part in enumerate(parts):
                if sender != member:
                    model[places] -= self.weight * part

    def state(self) -> dict[str, Models]:
        """Return what was accumulated and not sent yet."""
        return {"accumulated": self.accumulated}


class AkoOptions(OwnModelOptions):
    """How gradients are cut and weighed."""

    partitions: Annotated[int, Field(ge=1)] = Field(default=5, description="partitions p of a gradient")
    combine: Literal["mean", "sum"] = Field(
        default="mean", description="weigh every gradient by 1/K, or add them up: mean, sum"
    )


def _make(config: Config, spec: ModelSpec, public: Seed) -> Ako:
    del public
    settings = AKO.settings(config)
    n, partitions, members = spec.n_trainable, settings.partitions, config.members
    if partitions > n:
        raise ConfigError(
            f"{n} coordinates cannot be cut into {partitions} partitions",
            fix=f"use {n} or fewer",
            key="options.ako.partitions",
        )
    weight = np.float32(1 / members if settings.combine == "mean" else 1)
    return Ako(contiguous(n, partitions), members, weight, np.zeros((members, n), np.float32))


def _messages(round: Planned) -> tuple[float, float]:
    return round.participants - 1, round.bytes / AKO.settings(round.config).partitions


def _sight(round: Planned, coalition: int) -> Seen:
    del coalition
    parts = AKO.settings(round.config).partitions
    return Seen(1 / parts, "every member", f"another part each round: everything after {parts} rounds")


AKO = Method(
    "ako",
    "all members see 1/p of the accumulated gradient",
    exchange=_make,
    sends_models=False,
    label="Ako",
    options=AkoOptions,
    facts=MethodFacts(messages=_messages, sight=_sight),
)
