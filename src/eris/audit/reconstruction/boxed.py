"""Our default attack: bounded least squares on what was seen, with a preference for smooth pictures.

A pixel is never below zero or above one, and in many pictures most pixels are exactly at a bound: a search that
respects the bounds (L-BFGS-B) has far fewer values left to find. Neighbouring pixels are alike: the search starts with
a large weight on smoothness and reduces it in stages, so that what was seen decides wherever it can, and smoothness
where it cannot. Together they need a much smaller part of the update than the published attacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eris.audit.reconstruction.matching import Matching, total_variation
from eris.audit.reconstruction.search import LabelledSearch, SearchProblem, SearchResult
from eris.errors import MissingExtra
from eris.seeds import Seed

__all__ = ["Boxed"]

Numbers = NDArray[np.float64]
Slope = Callable[[Numbers], tuple[float, Numbers]]

_EDGES = 10.0  # the prior on differences of neighbours: e-folds less likely for a difference of one


@dataclass(frozen=True)
class Boxed(LabelledSearch):
    """Infer the label from the last layer; find the picture by L-BFGS-B in [0, 1] from grey, less smooth each stage."""

    steps: int = 600  # over all stages
    restarts: int = 3  # searches at most, the first included
    smoothness: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-6)  # weight of the total variation in each stage
    enough: float = 1e-5  # a match this good needs no restart

    name = "boxed"

    def searching(self, problem: SearchProblem, seed: Seed) -> Callable[[Seed], SearchResult]:
        """Return the search from one start: near grey first; if that leads nowhere, from noise."""
        del seed
        spreads = chain([0.1], repeat(1.0))

        def search(own: Seed) -> SearchResult:
            start = torch.from_numpy(_start(problem.shape, own, next(spreads))).to(problem.public.dtype)
            return self._descend(problem.matching, problem.targets, start)

        return search

    def _descend(self, matching: Matching, targets: Tensor, pictures: Tensor) -> SearchResult:
        trace: list[float] = []
        # Under noise, the weight of smoothness against a squared residual that the likeliest picture calls for.
        least = 2 * _EDGES * matching.noise_ratio**2 * pictures.numel()
        for weight in dict.fromkeys(max(weight, least) for weight in self.smoothness):
            flat = self._minimised(_objective(matching, targets, pictures, weight), pictures, trace)
            pictures = torch.from_numpy(flat).to(pictures.dtype).view(pictures.shape)
        with torch.enable_grad():
            loss = matching.loss(pictures, targets).item()
        return SearchResult(pictures, loss, trace)

    def _minimised(self, slope: Slope, pictures: Tensor, trace: list[float]) -> Numbers:
        try:
            from scipy.optimize import minimize
        except ModuleNotFoundError as error:
            raise MissingExtra("scipy", "plan", "a search within bounds") from error
        start, steps = pictures.double().numpy().reshape(-1), self.steps // len(self.smoothness)
        options = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 50, "ftol": 1e-14, "gtol": 1e-11}
        bounds = [(0, 1)] * start.size
        found = minimize(slope, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        trace.append(float(found.fun))
        flat: Numbers = found.x
        return flat


def _objective(matching: Matching, targets: Tensor, pictures: Tensor, weight: float) -> Slope:
    def slope(flat: Numbers) -> tuple[float, Numbers]:
        candidate = torch.from_numpy(flat).to(pictures.dtype).view(pictures.shape).requires_grad_()
        value = matching.loss(candidate, targets) + weight * total_variation(candidate)
        (gradient,) = torch.autograd.grad(value, candidate)
        return value.item(), gradient.double().numpy().reshape(-1)

    return slope


def _start(shape: tuple[int, ...], seed: Seed, spread: float) -> Numbers:
    """Return a start up to `spread` / 2 from grey, but not at it: pictures of a batch that start equal stay equal."""
    return 0.5 + spread * (seed.child("start").generator().random(shape) - 0.5)
