"""What a method is: a named composition of transforms over one or many aggregators, or an exchange of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eris.config import Config
from eris.methods.exchange import MakeExchange
from eris.transforms import Transform

__all__ = ["Method"]


def _as_it_is(config: Config) -> Config:
    return config


@dataclass(frozen=True, slots=True)
class Method:
    """A named way to train together.

    `packing` builds the last transform of the chain (None: values go as they are); clipping and noise, where the
    configuration asks for them, come before it. With `server` there is one aggregator and it is not a member: it sees
    every update whole, and nothing of it stays at home; with `trusted` it tells nobody, so nothing counts as seen.
    `settle` gives a configuration what makes the method (a second time it changes nothing). Members of a method with an
    `exchange` have models of their own, and nobody aggregates.
    """

    name: str
    summary: str
    packing: Callable[[Config], Transform] | None = None
    server: bool = False
    trusted: bool = False
    settle: Callable[[Config], Config] = _as_it_is
    exchange: MakeExchange | None = None
    sends_models: bool = True  # what goes through the exchange; else gradients

    def aggregators(self, config: Config) -> int:
        """Return the number of shards A."""
        return 1 if self.server or self.exchange else config.aggregators
