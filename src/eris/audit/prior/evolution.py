"""CMA-ES: search by trying out a population and adapting where the next one is drawn from; no slope is needed.

The strategy itself is that of the package `cma`; here it gets our randomness and nothing from its surroundings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eris.errors import MissingExtra
from eris.seeds import Seed

__all__ = ["Evolved", "Points", "evolve"]

Points = NDArray[np.float64]


@dataclass
class Evolved:
    """The best point that was tried, and the best of every generation."""

    point: Points
    loss: float = math.inf
    trace: list[float] = field(default_factory=list)


def evolve(
    judge: Callable[[Points], list[float]],
    start: Points,
    *,
    spread: float,
    population: int,
    generations: int,
    seed: Seed,
) -> Evolved:
    """Minimise from `start`, with a first population of deviation `spread` around it.

    `judge` gives the losses of a whole population, one point in a row.
    """
    try:
        import cma
    except ModuleNotFoundError as error:
        raise MissingExtra("cma", "audit", "a search by evolution") from error
    draws = seed.child("evolution").generator()
    options = {
        "popsize": population,
        "randn": lambda *shape: draws.standard_normal(shape),
        "seed": np.nan,  # numpy's global generator is left alone
        "signals_filename": "",  # no options from a file that happens to lie around
        "verbose": -10,
    }
    strategy = cma.CMAEvolutionStrategy(start, spread, options)
    evolved = Evolved(start)
    for _ in range(generations):
        points = strategy.ask()
        losses = judge(np.stack(points))
        strategy.tell(points, losses)
        best = int(np.argmin(losses))
        evolved.trace.append(losses[best])
        if losses[best] < evolved.loss:
            evolved.point, evolved.loss = np.array(points[best]), losses[best]
    return evolved
