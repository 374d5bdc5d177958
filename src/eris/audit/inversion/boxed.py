"""The attack that is our default: least squares on what was seen, inside the box that all pictures live in.

A pixel is never below zero or above one, and on many pictures most pixels are exactly at such a bound. A search that
respects the bounds (L-BFGS-B) has far fewer values left to find, and gets along with fewer equations: with a smaller
part of the update than a search without them. With noise the smoothness of pictures is weighed against it, as the
likeliest picture would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from eris.audit.inversion.attack import Labels, Mode, Recovered
from eris.audit.inversion.matching import Matching
from eris.audit.inversion.public_model import PublicModel
from eris.audit.inversion.search import Attempt, best_of, labels_for
from eris.audit.inversion.sight import Sight
from eris.audit.inversion.smoothness import total_variation
from eris.errors import MissingExtra
from eris.seeds import Seed

__all__ = ["Boxed"]

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Boxed:
    """Label from the last layer, picture by L-BFGS-B in [0, 1], from grey first and then from noise."""

    steps: int = 600
    restarts: int = 2
    enough: float = 1e-7
    edges: float = 10.0  # how unlikely differences of neighbours are, in e-folds for a difference of one

    name = "boxed"

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
        known = labels_for(sight, public, labels, seed)
        matching, targets = Matching(sight, public, mode=mode), torch.from_numpy(known)
        shape = (len(known), *public.shape)
        smooth = self._smoothness(matching, int(np.prod(shape)))

        def value(flat: Numbers) -> tuple[float, Numbers]:
            pictures = torch.from_numpy(flat.reshape(shape)).to(public.dtype).requires_grad_()
            loss = matching.loss(pictures, targets)
            if smooth:
                loss = loss + smooth * total_variation(pictures)
            (slope,) = torch.autograd.grad(loss, pictures)
            return loss.item(), slope.double().numpy().reshape(-1)

        def search(own: Seed) -> Attempt:
            flat, loss, trace = self._minimised(value, _start(shape, own))
            return Attempt(torch.from_numpy(flat.reshape(shape)), loss, trace)

        enough = max(self.enough, matching.floor)
        return best_of(search, seed, restarts=self.restarts, enough=enough).recovered(known)

    def _smoothness(self, matching: Matching, pixels: int) -> float:
        """Return the weight of the total variation: that of the likeliest picture under the noise, none without."""
        return 2 * self.edges * matching.noise_ratio**2 * pixels

    def _minimised(
        self, value: Callable[[Numbers], tuple[float, Numbers]], start: Numbers
    ) -> tuple[Numbers, float, list[float]]:
        try:
            from scipy.optimize import minimize
        except ModuleNotFoundError as error:
            raise MissingExtra("scipy", "plan", "a search within bounds") from error
        trace: list[float] = []

        def note(intermediate_result: object) -> None:
            trace.append(float(intermediate_result.fun))  # type: ignore[attr-defined]
            if trace[-1] < self.enough * 1e-6:
                raise StopIteration

        options = {"maxiter": self.steps, "maxfun": 2 * self.steps, "maxcor": 50, "ftol": 1e-15, "gtol": 1e-12}
        found = minimize(
            value, start, jac=True, method="L-BFGS-B", bounds=[(0, 1)] * start.size, callback=note, options=options
        )
        return found.x, float(found.fun), trace


def _start(shape: tuple[int, ...], seed: Seed) -> Numbers:
    """Begin near grey: pictures of one batch must differ, or they stay the same for ever."""
    return 0.5 + 0.1 * (seed.child("start").generator().random(int(np.prod(shape))) - 0.5)
