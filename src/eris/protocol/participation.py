"""Who trains in a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eris.errors import ConfigError, Reason
from eris.seeds import Seed

__all__ = ["ALARMS", "draw_participants", "drawn_count", "is_alarm", "without_a_third"]

ALARMS = 2  # rounds in a row with an impossible sum, after which a third of the participants sits out


def draw_participants(peers: Sequence[int], fraction: float, public: Seed, round: int) -> tuple[int, ...]:
    """Draw a `fraction` of the peers for a round, at least one, ascending; `public` makes it the same on every machine.

    >>> from eris.seeds import public_root
    >>> draw_participants(range(10), 0.3, public_root(1), round=0)
    (1, 7, 8)
    """
    if not 0 < fraction <= 1:
        raise ConfigError(f"participation is {fraction}", fix="use 0 < participation ≤ 1")
    peers = peers if isinstance(peers, range) else sorted(peers)
    chosen = public.child("round", round, "participants").subset(len(peers), drawn_count(len(peers), fraction))
    return tuple(peers[index] for index in chosen)


def drawn_count(peers: int, fraction: float) -> int:
    """Return how many of so many peers are drawn for a round."""
    return max(1, int(fraction * peers + 0.5))


def is_alarm(lost: Iterable[str]) -> bool:
    """Whether one of these reasons for losing a shard may be the doing of a member that nobody can name.

    If a sum is out of range, some contribution exceeded the limit; if pads do not fit, anybody may have put them on
    wrongly.
    """
    return not {Reason.OUT_OF_RANGE.value, Reason.WRONG_PADS.value}.isdisjoint(lost)


def without_a_third(drawn: Sequence[int], turn: int) -> tuple[int, ...]:
    """Return who is left when every third participant sits out, a different third each turn.

    A sum of whole numbers that no members within the limit can have does not show who exceeded it. A member that does
    so in every round would stop the run; leaving people out in turn finds it, and the run goes on meanwhile.

    >>> [without_a_third(range(7), turn) for turn in range(4)]
    [(1, 2, 4, 5), (0, 2, 3, 5, 6), (0, 1, 3, 4, 6), (1, 2, 4, 5)]
    """
    return tuple(peer for place, peer in enumerate(drawn) if place % 3 != turn % 3)
