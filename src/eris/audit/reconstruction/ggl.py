"""GGL: search among the pictures that a generator can make.

Whatever was seen, the result is a picture of the kind that the generator was trained on. So the attack's chance level
is not noise but what the generator makes of random latents (`GGL.blind`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eris.audit.reconstruction.attack import Labels, Mode, Recovered
from eris.audit.reconstruction.generators import Generator, fitted, generator_for, load_generator
from eris.audit.reconstruction.matching import OneStepMatching
from eris.audit.reconstruction.observation import UpdateObservation
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.search import SearchResult, best_of, labels_for
from eris.errors import MissingExtra
from eris.seeds import Seed

__all__ = ["GGL", "Evolved", "Points", "evolve"]


Points = NDArray[np.float64]


@dataclass(frozen=True)
class GGL:
    """Infer the label from the last layer; find latents by CMA-ES, with a penalty on unlikely ones.

    `generator` is a generator or the name of one in the cache; without, the one for pictures of this shape is used.
    """

    generations: int = 40  # in each search
    population: int = 16  # candidates in each generation
    restarts: int = 1  # searches at most, the first included
    spread: float = 0.7  # standard deviation of the first generation's latents
    prior: float = 1e-3  # weight of the latents' mean square
    enough: float = 1e-5  # a match this good needs no restart
    generator: Generator | str | None = None

    name = "ggl"

    def recover(
        self,
        observation: UpdateObservation,
        public: PublicModel,
        *,
        mode: Mode = "mask-aware",
        seed: Seed,
        labels: Labels | None = None,
    ) -> Recovered:
        """Recover the samples behind an observation."""
        generator = self._chosen(public)
        known = labels_for(observation, public, labels, seed)
        matching, targets = OneStepMatching(observation, public, mode=mode), torch.tensor(known)

        def judge(points: Points) -> list[float]:
            candidates = _pictures(generator, points, targets, public)
            matches = matching.losses(candidates, targets)
            return [match + self.prior * float(np.mean(row**2)) for match, row in zip(matches, points, strict=True)]

        def search(own: Seed) -> SearchResult:
            start = np.zeros(len(known) * generator.latents)
            found = evolve(
                judge, start, spread=self.spread, population=self.population, generations=self.generations, seed=own
            )
            return SearchResult(_pictures(generator, found.point[None], targets, public)[0], found.loss, found.trace)

        return best_of(search, seed, restarts=self.restarts, enough=self.enough).recovered(known)

    def blind(self, public: PublicModel, labels: Labels, seed: Seed) -> Recovered:
        """Return pictures generated from random latents and the true labels: the attack's chance level."""
        generator = self._chosen(public)
        point = seed.child("latents").generator().standard_normal(len(labels) * generator.latents)
        pictures = _pictures(generator, point[None], torch.tensor(labels), public)[0]
        return Recovered(pictures.to(torch.float32).numpy(), labels)

    def _chosen(self, public: PublicModel) -> Generator:
        chosen = generator_for(public.shape) if self.generator is None else self.generator
        return load_generator(chosen) if isinstance(chosen, str) else chosen


def _pictures(generator: Generator, points: Points, labels: Tensor, public: PublicModel) -> Tensor:
    """Return the pictures of a whole population: candidates × samples × channels × height × width.

    Each row of `points` holds the latents of all samples; `labels` are the samples', the same for all candidates.
    """
    with torch.no_grad():
        latents = torch.from_numpy(points).float().view(-1, generator.latents)
        pictures = fitted(generator(latents, labels.repeat(len(points))), public.shape)
        return pictures.to(public.dtype).view(len(points), len(labels), *public.shape)


@dataclass
class Evolved:
    """The best point that was tried, its loss, and the best loss of every generation."""

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
    """Minimise by CMA-ES, which adapts the distribution of each population to the last and needs no gradient.

    The strategy is that of the package `cma`; here it gets our randomness and takes nothing from its environment.

    Args:
        judge: returns the losses of a whole population, one point in each row.
        start: the centre of the first population.
        spread: the standard deviation of the first population.
        population: the number of points in each generation.
        generations: how many generations to try.
        seed: of the randomness.
    """
    try:
        import cma
    except ModuleNotFoundError as error:
        raise MissingExtra("cma", "audit", "a search by evolution") from error
    draws = seed.child("evolution").generator()
    options = {
        "popsize": population,
        "randn": lambda *shape: draws.standard_normal(shape),
        "seed": np.nan,  # leave numpy's global generator alone
        "signals_filename": "",  # read no options from a file that happens to be there
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
