"""ROG: search for a coarse picture, then let a trained network refine it.

A coarse picture has few unknowns, so even an update that was sparsified, rounded or made noisy determines it. Matching
is as in the other attacks; what is new is the learned prior. It also makes the result look like a photograph whatever
was seen: compare it with the chance level (`UpdateObservation.randomised`), and by more than one score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from eris.audit.reconstruction.attack import Labels, Mode, Recovered
from eris.audit.reconstruction.enhancer import FACTOR, Enhancer, enhancer_for, finer, load_enhancer
from eris.audit.reconstruction.matching import Matching, OneStepMatching
from eris.audit.reconstruction.observation import UpdateObservation
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.search import SearchResult, best_of, labels_for
from eris.errors import ConfigError
from eris.seeds import Seed

__all__ = ["ROG"]


@dataclass(frozen=True)
class ROG:
    """Find a coarse picture by Adam, with a learning rate that falls to a tenth; then enhance it.

    `enhancer` is a trained one, the name of one in the cache, or ``""`` for plain interpolation; without, the one for
    pictures of this shape is used.
    """

    steps: int = 100  # in each search
    restarts: int = 1  # searches at most, the first included
    step: float = 0.05  # the learning rate at first
    enough: float = 1e-5  # a match this good needs no restart
    enhancer: Enhancer | str | None = None

    name = "rog"

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
        enhancer = self._chosen(public)  # first, so that a missing network is noticed before the search
        known = labels_for(observation, public, labels, seed)
        matching, targets = OneStepMatching(observation, public, mode=mode), torch.tensor(known)

        def search(own: Seed) -> SearchResult:
            return self._descend(_start(public, len(known), own), public, matching, targets)

        attempt = best_of(search, seed, restarts=self.restarts, enough=self.enough)
        attempt.pictures = _enhanced(attempt.pictures, public, enhancer)
        return attempt.recovered(known)

    def _descend(self, coarse: Tensor, public: PublicModel, matching: Matching, targets: Tensor) -> SearchResult:
        coarse.requires_grad_()
        optimizer = torch.optim.Adam([coarse], lr=self.step)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps, self.step / 10)
        attempt = SearchResult(coarse, math.inf)
        for _ in range(self.steps):
            loss = matching.loss(finer(coarse, public.shape[1:]), targets)
            (coarse.grad,) = torch.autograd.grad(loss, coarse)
            if loss.item() < attempt.loss:
                attempt.loss, attempt.pictures = loss.item(), coarse.detach().clone()
            attempt.trace.append(loss.item())
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                coarse.clamp_(0, 1)
        return attempt

    def _chosen(self, public: PublicModel) -> Enhancer | None:
        if isinstance(self.enhancer, Enhancer):
            return self.enhancer
        name = enhancer_for(public.shape) if self.enhancer is None else self.enhancer
        if name is None:
            raise ConfigError(
                f"no enhancer is trained for pictures of {public.shape}",
                fix='pass an enhancer, or enhancer="" for none',
            )
        return load_enhancer(name) if name else None


def _start(public: PublicModel, count: int, seed: Seed) -> Tensor:
    channels, height, width = public.shape
    shape = (count, channels, -(-height // FACTOR), -(-width // FACTOR))
    return torch.from_numpy(seed.child("start").uniforms(math.prod(shape))).to(public.dtype).view(shape)


def _enhanced(coarse: Tensor, public: PublicModel, enhancer: Enhancer | None) -> Tensor:
    with torch.no_grad():
        return finer(coarse, public.shape[1:]) if enhancer is None else enhancer(coarse.float())
