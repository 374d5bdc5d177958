"""Inverting gradients: match the direction of the update but not its length, and prefer smooth pictures.

Made for networks with kinks (ReLU), where curvature leads nowhere: it takes many small steps by the sign of the
gradient, within the range of pixels, with a step size that shrinks three times.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from eris.audit.reconstruction.attack import Labels, Mode, Recovered
from eris.audit.reconstruction.matching import Matching, total_variation
from eris.audit.reconstruction.observation import UpdateObservation
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.search import SearchResult, best_of, labels_for, noise_like
from eris.seeds import Seed

__all__ = ["InvertingGradients"]

_SHRINK_AT = (3 / 8, 5 / 8, 7 / 8)


@dataclass(frozen=True)
class InvertingGradients:
    """Minimise cosine distance and total variation by Adam on the sign of the gradient."""

    steps: int = 1000  # in each search
    restarts: int = 1  # searches at most, the first included
    step: float = 0.1  # size of the first step
    smoothness: float = 0.01  # weight of the total variation
    enough: float = 1e-5  # a match this good needs no restart

    name = "inverting-gradients"

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
        known = labels_for(observation, public, labels, seed)
        matching = Matching(observation, public, mode=mode, distance="cosine")
        targets = torch.from_numpy(known)

        def search(own: Seed) -> SearchResult:
            values = noise_like(public, len(known), own)
            return self._descend(values, public, matching, targets)

        return best_of(search, seed, restarts=self.restarts, enough=self.enough).recovered(known)

    def _descend(self, values: Tensor, public: PublicModel, matching: Matching, targets: Tensor) -> SearchResult:
        lowest, highest = public.normalised(torch.zeros(public.shape)), public.normalised(torch.ones(public.shape))
        values.requires_grad_()
        optimizer = torch.optim.Adam([values], lr=self.step)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [int(share * self.steps) for share in _SHRINK_AT])
        attempt = SearchResult(values, float("inf"))
        for _ in range(self.steps):
            pictures = public.pictures(values)
            loss = matching.loss(pictures, targets) + self.smoothness * total_variation(pictures)
            (slope,) = torch.autograd.grad(loss, values)
            if loss.item() < attempt.loss:
                attempt.loss, attempt.pictures = loss.item(), pictures.detach().clone()
            attempt.trace.append(loss.item())
            values.grad = slope.sign()
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                values.copy_(values.clamp(lowest, highest))
        return attempt
