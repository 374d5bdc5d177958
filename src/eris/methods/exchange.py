"""The contract for methods in which members keep their own models and talk to each other.

A round: every member trains from its own model, then the exchange hands messages to `send` and moves all models. Who
talks to whom comes from the public root. Models are stored side by side, one row for each member.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eris.config import Config
from eris.local.spec import ModelSpec, Vector
from eris.seeds import Seed
from eris.shards.plan import ShardPlan

__all__ = ["Exchange", "MakeExchange", "Message", "Models", "Send", "subtract"]

Models = NDArray[np.float32]  # members × coordinates


@dataclass(frozen=True, slots=True)
class Message:
    """One chunk of one member's vector on its way to other members; a member named twice gets it twice."""

    sender: int
    receivers: tuple[int, ...]
    chunk: int
    values: Vector = field(repr=False)  # as receivers decode them
    payload: int  # bytes of the values, to each receiver


Send = Callable[[Message], None]


class Exchange(Protocol):
    """What members send each other in a round, and what they do with it."""

    @property
    def chunks(self) -> ShardPlan:
        """How a vector is cut into the chunks that messages carry."""
        ...

    def play(self, round: int, models: Models, updates: Models, send: Send) -> None:
        """Play one round: hand messages to `send` and move all `models` in place.

        `models` holds each member's model at the start of the round, `updates` its start − end after training.
        """
        ...

    def state(self) -> dict[str, Models]:
        """Return what the next round needs besides the models (views, changed in place)."""
        ...


MakeExchange = Callable[[Config, ModelSpec, Seed], Exchange]


def subtract(models: Models, updates: Models) -> None:
    """Move every member's model by its own update, in place."""
    for model, update in zip(models, updates, strict=True):
        model -= update
