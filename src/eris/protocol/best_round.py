"""Which round began with the best model so far, judged by the figures that members share, and whether to go on.

All peers and the coordinator arrive at the same answer, because it follows from the verdicts alone.

>>> best = BestRound()
>>> for round, score in enumerate([-0.9, -0.5, None, -0.6, -0.5]):
...     best = best.after(round, score)
>>> best.round, best.since
(1, 2)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eris.local.spec import Vector

__all__ = ["BestRound", "Choice"]


@dataclass(frozen=True, slots=True)
class BestRound:
    """The best score, the round that began with it (−1: none yet), and how many evaluations have passed since."""

    score: float = 0.0  # exact in float32
    round: int = -1
    since: int = 0

    def after(self, round: int, score: float | None) -> BestRound:
        """Return the state after a round with this score; a round without a score changes nothing."""
        if score is None:
            return self
        if self.round < 0 or score > self.score:
            return BestRound(score, round)
        return BestRound(self.score, self.round, self.since + 1)

    @property
    def vector(self) -> Vector:
        """The same state as three values, for snapshots and checkpoints."""
        return np.array([self.score, self.round, self.since], np.float32)

    @classmethod
    def of(cls, vector: Vector) -> BestRound:
        """Rebuild a `BestRound` from its `vector`."""
        score, round, since = vector.tolist()
        return cls(score, int(round), int(since))


@dataclass(frozen=True, slots=True)
class Choice:
    """What a run decided from its members' figures, for its summary."""

    figure: str
    best_round: int  # the round that began with the best model; −1: nothing was scored
    score: float  # of that model; larger is better
    stopped: bool  # whether the run ended early because nothing better came
    kept: bool  # whether the best model is the run's result

    def __str__(self) -> str:
        if self.best_round < 0:
            return "no round has figures of enough members: nothing was decided by them"
        said = (
            f"the model that round {self.best_round} began with has the best {self.figure} of all that members scored"
        )
        said += f" ({abs(self.score):.6g})" + (", and is the result" if self.kept else "")
        return said + ("; the run ended because no later one was better" if self.stopped else "")
