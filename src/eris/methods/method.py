"""What a method is: a named composition of transforms over one or many aggregators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eris.config import Config
from eris.transforms import Transform

__all__ = ["Method"]


@dataclass(frozen=True, slots=True)
class Method:
    """A named way to train together.

    `packing` builds the last transform of the chain (None: values go as they are); clipping and noise, where the
    configuration asks for them, come before it. With `server` there is one aggregator and it is not a member: it sees
    every update whole, and nothing of it stays at home.
    """

    name: str
    summary: str
    packing: Callable[[Config], Transform] | None = None
    server: bool = False

    def aggregators(self, config: Config) -> int:
        """Return the number of shards A."""
        return 1 if self.server else config.aggregators
