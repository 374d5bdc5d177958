"""DP-SGD: every sample's gradient is clipped, their sum gets noise.

Gradients of single samples come from torch.func, a few samples at a time. The noise is drawn in float64 from the
member's private seed, once for every step, and divided by the size of the batch with the sum.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from eris.errors import ConfigError
from eris.local.torch_examples import Batch, Nest, count_of, mapped
from eris.local.torch_module import FlatModule
from eris.local.torch_objective import Objective
from eris.seeds import Seed

__all__ = ["PrivateGradient"]

_VALUES_AT_ONCE = 1 << 22  # of all single gradients together
_TINY = 1e-12


class PrivateGradient:
    """Clip each sample's gradient to norm C, add noise of standard deviation σC to the sum, divide by the batch."""

    def __init__(self, bound: float, multiplier: float) -> None:
        if not (bound > 0 and multiplier >= 0):
            raise ConfigError(f"clipping bound {bound} with noise {multiplier}", fix="use a bound > 0 and noise ≥ 0")
        self.bound, self.multiplier = bound, multiplier

    def __call__(self, flat: FlatModule, objective: Objective, batch: Batch, seed: Seed, step: int) -> float:
        """Write the noisy gradient into the module and return the mean loss."""
        n, count = flat.spec.n_trainable, count_of(batch)
        total, loss = torch.zeros(n, device=flat.device), 0.0
        size = max(1, _VALUES_AT_ONCE // n)
        for start in range(0, count, size):
            part = slice(start, start + size)
            inputs, targets = (mapped(each, operator.itemgetter(part)) for each in batch)
            gradients, losses = _of_every_sample(flat, objective, inputs, targets)
            factors = (self.bound / (gradients.norm(dim=1) + _TINY)).clamp(max=1.0)
            total += (gradients * factors[:, None]).sum(dim=0)
            loss += losses.sum().item()
        generator = seed.require_private("noise").child("noise", step).generator()
        noise = generator.standard_normal(n) * (self.multiplier * self.bound)
        flat.write_gradient((total.cpu().numpy() + noise) / count)
        return loss / count


class _Bound(nn.Module):
    """A module called with tensors that are not its own."""

    def __init__(self, module: nn.Module, parameters: dict[str, Tensor]) -> None:
        super().__init__()
        self._module = [module]  # in a list: its parameters are not ours
        self._tensors = parameters

    @property
    def called(self) -> nn.Module:
        """What it is called in the place of."""
        return self._module[0]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Call it."""
        return functional_call(self.called, self._tensors, inputs, named)


def _of_every_sample(flat: FlatModule, objective: Objective, inputs: Nest, targets: Nest) -> tuple[Tensor, Tensor]:
    """Return gradients (samples × n, in the order of the spec) and losses."""
    own = dict(flat.module.named_parameters())
    names = [tensor.name for tensor in flat.spec.vector_tensors if tensor.role == "trainable"]
    parameters = {name: own[name].detach() for name in names}

    def loss(values: dict[str, Tensor], sample: Nest, target: Nest) -> Tensor:
        alone = (mapped(part, lambda tensor: tensor[None]) for part in (sample, target))
        return objective.loss(_Bound(flat.module, values), *alone)

    each = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")
    gradients, losses = each(parameters, inputs, targets)
    return torch.cat([gradients[name].reshape(len(losses), -1) for name in names], dim=1), losses
