"""The scores of one observer as they come in, round by round; they can be put away and taken up again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.audit.guesses import Scores

__all__ = ["ScoreBook"]


class ScoreBook:
    """For each score and member: rounds × views × canaries; and the share of the update that each view held.

    >>> book = ScoreBook(("loss",), [2])
    >>> book.add(0, [{"loss": np.array([0.5, 0.1])}], [0.25])
    >>> book.away(0, views=1)
    >>> book.rounds, book.scores["loss"][0].tolist()
    (2, [[[0.5, 0.1]], [[nan, nan]]])
    """

    def __init__(self, names: Sequence[str], canaries: Sequence[int]) -> None:
        self._canaries = list(canaries)
        self._lists: dict[str, list[list[Scores]]] = {name: [[] for _ in self._canaries] for name in names}
        self.shares: list[float] = []

    def add(self, victim: int, found: Sequence[Mapping[str, Scores]], shares: Sequence[float]) -> None:
        """Write down one round of a victim, a view after the other."""
        for name, members in self._lists.items():
            members[victim].append(np.stack([scores[name] for scores in found]))
        self.shares.extend(shares)

    def away(self, victim: int, views: int) -> None:
        """Note that a victim took no part in a round."""
        for members in self._lists.values():
            members[victim].append(np.full((views, self._canaries[victim]), np.nan))

    @property
    def rounds(self) -> int:
        """Rounds so far."""
        return len(next(iter(self._lists.values()))[0])

    @property
    def scores(self) -> dict[str, list[Scores]]:
        """For each name and member: rounds × views × canaries."""
        return {
            name: [
                np.stack(rounds) if rounds else np.empty((0, 0, canaries))
                for rounds, canaries in zip(members, self._canaries, strict=True)
            ]
            for name, members in self._lists.items()
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays by name, for a file."""
        found = {f"{name}/{k}": part for name, members in self.scores.items() for k, part in enumerate(members)}
        return {**found, "shares": np.array(self.shares)}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what was put away."""
        for name, members in self._lists.items():
            members[:] = [list(arrays[f"{name}/{k}"]) for k in range(len(self._canaries))]
        self.shares = arrays["shares"].tolist()
