"""Ako: every round one of p partitions of the accumulated gradient goes to everybody.

A partition that is sent holds what was accumulated since it was sent last, the sum of the last p gradients. So after p
rounds every gradient has reached everybody in all its partitions. A member applies its own gradient at once and those
of others as they come. In the original they add up; with ``mean`` (the default here) each counts 1/K, so that learning
rates mean what they mean in FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eris.config import Config
from eris.errors import ConfigError
from eris.local.spec import ModelSpec
from eris.methods.exchange import Message, Models, Send
from eris.methods.method import Method
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
        """Accumulate, send the partition whose turn it is, apply one's own gradient and the partitions of others."""
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


def _make(config: Config, spec: ModelSpec, public: Seed) -> Ako:
    del public
    n, partitions, members = spec.n_trainable, config.baselines.partitions, config.members
    if partitions > n:
        raise ConfigError(
            f"{partitions} partitions of {n} coordinates", fix="use as many or fewer", key="baselines.partitions"
        )
    weight = np.float32(1 / members if config.baselines.ako_combine == "mean" else 1)
    return Ako(contiguous(n, partitions), members, weight, np.zeros((members, n), np.float32))


AKO = Method("ako", "all members see 1/p of the accumulated gradient", exchange=_make, sends_models=False)
