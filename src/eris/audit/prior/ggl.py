"""GGL: search among the pictures that a generator can make.

Whatever was seen, the result is a picture of the kind that the generator knows. So its chance level is not noise but
what the generator makes of random latents (`GGL.blind`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from eris.audit.inversion.attack import Labels, Mode, Recovered
from eris.audit.inversion.public_model import PublicModel
from eris.audit.inversion.search import Attempt, best_of, labels_for
from eris.audit.inversion.sight import Sight
from eris.audit.prior.evolution import Points, evolve
from eris.audit.prior.generator import Generator, fitted, generator_for, load_generator
from eris.audit.prior.one_step import OneStepMatching
from eris.seeds import Seed

__all__ = ["GGL"]


@dataclass(frozen=True)
class GGL:
    """Label from the last layer, latents by CMA-ES; latents far from where the generator was trained are not preferred.

    `generator` is one, or the name of one in the cache; without it, the one for pictures of this shape is taken.
    """

    generations: int = 40
    population: int = 16
    restarts: int = 1
    spread: float = 0.7
    prior: float = 1e-3  # weight of the latents' mean square
    enough: float = 1e-5
    generator: Generator | str | None = None

    name = "ggl"

    def recover(
        self,
        sight: Sight,
        public: PublicModel,
        *,
        mode: Mode = "mask-aware",
        seed: Seed,
        labels: Labels | None = None,
    ) -> Recovered:
        """Recover the samples of a sight."""
        generator = self._chosen(public)
        known = labels_for(sight, public, labels, seed)
        matching, targets = OneStepMatching(sight, public, mode=mode), torch.tensor(known)

        def judge(points: Points) -> list[float]:
            candidates = _pictures(generator, points, targets, public)
            matches = matching.losses(candidates, targets)
            return [match + self.prior * float(np.mean(row**2)) for match, row in zip(matches, points, strict=True)]

        def search(own: Seed) -> Attempt:
            start = np.zeros(len(known) * generator.latents)
            found = evolve(
                judge, start, spread=self.spread, population=self.population, generations=self.generations, seed=own
            )
            return Attempt(_pictures(generator, found.point[None], targets, public)[0], found.loss, found.trace)

        return best_of(search, seed, restarts=self.restarts, enough=self.enough).recovered(known)

    def blind(self, public: PublicModel, labels: Labels, seed: Seed) -> Recovered:
        """Return what the generator makes of random latents: the attack's chance level, with the labels known."""
        generator = self._chosen(public)
        point = seed.child("latents").generator().standard_normal(len(labels) * generator.latents)
        pictures = _pictures(generator, point[None], torch.tensor(labels), public)[0]
        return Recovered(pictures.to(torch.float32).numpy(), labels)

    def _chosen(self, public: PublicModel) -> Generator:
        chosen = generator_for(public.shape) if self.generator is None else self.generator
        return load_generator(chosen) if isinstance(chosen, str) else chosen


def _pictures(generator: Generator, points: Points, labels: Tensor, public: PublicModel) -> Tensor:
    """Return the pictures of a whole population: candidates × samples × channels × height × width."""
    with torch.no_grad():
        latents = torch.from_numpy(points).float().view(-1, generator.latents)
        pictures = fitted(generator(latents, labels.repeat(len(points))), public.shape)
        return pictures.to(public.dtype).view(len(points), len(labels), *public.shape)
