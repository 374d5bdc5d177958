"""Masked shards as a setting: what they imply, and what they cannot be combined with."""

from __future__ import annotations

import math

from eris.config import Config
from eris.errors import ConfigError
from eris.methods.method import Method

__all__ = ["MASKED_FROM", "check_masked", "is_masked", "smallest_sum", "unmaskers_of"]

MASKED_FROM = 4  # members: with three, two that collude see the third, masks or not


def is_masked(config: Config) -> bool:
    """Return whether contributions are masked."""
    return config.privacy.masking == "pairs"


def unmaskers_of(name: str, config: Config) -> int:
    """Return how many unmaskers each shard has under this method and configuration."""
    from eris.methods import with_defaults  # here, because methods import this module

    completed = with_defaults(config, name)
    return completed.privacy.unmaskers if is_masked(completed) else 0


def smallest_sum(config: Config) -> int:
    """Return the least number of members in a masked sum: two thirds of the participants, and `min_contributors`."""
    taking_part = max(1, int(config.participation * config.members + 0.5))
    return max(config.server.min_contributors, math.ceil(2 * taking_part / 3))


def check_masked(config: Config, method: Method, members: int) -> None:
    """Refuse masking if nobody could unmask, and its settings if nothing is masked.

    `members` is how many peers there are to aggregate and unmask.
    """
    privacy, shards = config.privacy, config.shards
    if not is_masked(config):
        if privacy.unmaskers != 1:
            raise ConfigError(
                "privacy.unmaskers is set, but nothing is masked",
                fix="set privacy.masking = 'pairs' too",
                key="privacy.unmaskers",
            )
        return
    if method.server or method.exchange is not None:
        who = "has one server, which aggregates alone" if method.server else "has no aggregators"
        raise ConfigError(
            f"{method.name} {who}: no peer could remove the pads",
            fix="use eris with aggregators = 1: it gives the same bits as fedavg in fixed point",
            key="privacy.masking",
        )
    least = shards.replicas + privacy.unmaskers
    if members < max(least, 2):
        raise ConfigError(
            f"there are only {members} members, but each shard needs {shards.replicas} to aggregate it "
            f"and {privacy.unmaskers} others to unmask it",
            fix=f"use {max(least, 3)} members or more (of three, two that collude can see the third)",
            key="privacy.masking",
        )
