"""Who trains in a round."""

from __future__ import annotations

from collections.abc import Sequence

from eris.errors import ConfigError
from eris.seeds import Seed

__all__ = ["draw_participants"]


def draw_participants(peers: Sequence[int], fraction: float, public: Seed, round: int) -> tuple[int, ...]:
    """Draw a share of the peers for a round, the same on every machine: at least one, ascending.

    >>> from eris.seeds import public_root
    >>> draw_participants(range(10), 0.3, public_root(1), round=0)
    (1, 7, 8)
    """
    if not 0 < fraction <= 1:
        raise ConfigError(f"participation is {fraction}", fix="use 0 < participation ≤ 1")
    peers = peers if isinstance(peers, range) else sorted(peers)
    count = max(1, int(fraction * len(peers) + 0.5))
    chosen = public.child("round", round, "participants").subset(len(peers), count)
    return tuple(peers[index] for index in chosen)
