"""DP-SGD: clip every sample's gradient and add noise to their sum.

How the gradients of single samples are computed depends on the network (`eris.privacy.torch_sample_gradients`). The
noise is drawn in float64 from the member's private seed, once for every step; sum and noise are divided by the batch
size.
"""

from __future__ import annotations

import operator

import numpy as np

from eris.errors import ConfigError
from eris.local.torch_examples import Batch, count_of, mapped
from eris.local.torch_module import FlatModule
from eris.local.torch_objective import Objective
from eris.privacy.torch_sample_gradients import clipped_sum, require_equal_norms, way_of
from eris.seeds import Seed

__all__ = ["PrivateGradient"]

_BLOCK = 1 << 20  # values of noise drawn at a time


class PrivateGradient:
    """Clip each sample's gradient to norm C, add noise of standard deviation σC to the sum, divide by the batch.

    `way` says how the gradients of single samples are computed (``"auto"``: depends on the network's layers), at most
    `at_once` of them at a time (default: all).

    `bound` is C, `multiplier` σ.
    """

    def __init__(self, bound: float, multiplier: float, way: str = "auto", at_once: int | None = None) -> None:
        if not (bound > 0 and multiplier >= 0):
            raise ConfigError(
                f"the clipping bound is {bound} and the noise multiplier {multiplier}",
                fix="use a bound > 0 and a multiplier ≥ 0",
            )
        self.bound, self.multiplier = bound, multiplier
        self._way, self._at_once = way, at_once

    def __call__(self, flat: FlatModule, objective: Objective, batch: Batch, seed: Seed, step: int) -> float:
        """Write the noisy gradient into the module and return the mean loss.

        `seed` is private; the noise is that of local step number `step`.
        """
        private = seed.require_private("noise")
        way, count = way_of(flat, objective, self._way), count_of(batch)
        size, loss = self._at_once or count, 0.0
        total = np.zeros(flat.spec.n_trainable, np.float32)
        for start in range(0, count, size):
            part = mapped(batch, operator.itemgetter(slice(start, start + size)))
            summed = clipped_sum(way, flat, objective, part, self.bound)
            total += summed.total.cpu().numpy()
            loss += summed.losses.double().sum().item()
        generator = private.child("noise", step).generator()
        for start in range(0, total.size, _BLOCK):
            block = total[start : start + _BLOCK]
            noise = generator.standard_normal(block.size) * (self.multiplier * self.bound)
            block[:] = (block + noise) / count
        flat.write_gradient(total)
        return loss / count

    def check(self, flat: FlatModule, objective: Objective, batch: Batch) -> None:
        """Compare the norms of a few samples' gradients with a loop's; refuse layers that mix samples."""
        require_equal_norms(way_of(flat, objective, self._way), flat, objective, batch)
