"""Compute the gradients of several members in one vectorised call.

`torch.func.vmap` takes one step for a whole cohort at once, which saves the overhead of many small kernels. The kernels
it uses instead (batched products, grouped convolutions) add in another order, so a member's gradient equals the one it
would compute alone up to rounding, not bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from eris.errors import ConfigError
from eris.local.task import Memory
from eris.local.torch_examples import Batch, Nest
from eris.local.torch_module import FlatModule
from eris.local.torch_objective import Objective
from eris.local.torch_optimizer import LocalOptimizer

__all__ = ["CohortGradient", "descend_together"]

Models = NDArray[np.float32]  # members × coordinates
_ONE_BY_ONE = "use local.cohort = 1"


class CohortGradient:
    """Computes the gradient of the mean loss of each member's batch, at one model for all or one for each."""

    def __init__(self, flat: FlatModule, objective: Objective) -> None:
        _require_no_side_effects(flat)
        self._flat = flat
        self._tensors = [(t.name, flat.spec.slices[t.name], t.shape) for t in flat.spec.vector_tensors]

        def loss(weights: dict[str, Tensor], inputs: Nest, targets: Nest) -> Tensor:
            module = cast(nn.Module, _WithWeights(flat.module, weights))  # objectives only call it
            return objective.loss(module, inputs, targets)

        self._one = grad_and_value(loss)

    def __call__(self, models: Models, inputs: Sequence[Nest], targets: Sequence[Nest]) -> tuple[Models, list[float]]:
        """Return the members' gradients and losses; if `models` has a single row, all members share it."""
        shared = len(models) == 1
        step = vmap(self._one, in_dims=(None if shared else 0, 0, 0), randomness="error")
        try:
            gradients, losses = step(self._weights(models, shared), _stacked(inputs), _stacked(targets))
        except RuntimeError as error:
            raise ConfigError(
                f"the model cannot be trained in cohorts: {str(error).splitlines()[0]}",
                fix=_ONE_BY_ONE,
                key="local.cohort",
            ) from error
        parts = [gradients[name].reshape(len(losses), -1) for name, _, _ in self._tensors]
        return torch.cat(parts, dim=1).numpy(), losses.tolist()

    def _weights(self, models: Models, shared: bool) -> dict[str, Tensor]:
        flat = torch.from_numpy(models)
        if shared:
            return {name: flat[0, place].view(shape) for name, place, shape in self._tensors}
        return {name: flat[:, place].reshape(len(models), *shape) for name, place, shape in self._tensors}


def descend_together(
    gradient: CohortGradient,
    optimizer: LocalOptimizer,
    starts: Models,
    batches: Sequence[Iterable[Batch]],
    states: Sequence[Memory],
) -> tuple[Models, list[list[float]]]:
    """Take every member's local steps side by side; return the models they end at, and the loss of each step.

    Args:
        gradient: computes all members' gradients.
        optimizer: moves each model.
        starts: one model for each member.
        batches: one sequence of batches for each member.
        states: each member's optimizer state, changed in place.
    """
    ends, losses = starts.copy(), list[list[float]]()
    same = all(np.array_equal(starts[0], start) for start in starts[1:])
    for parts in zip(*batches, strict=True):
        inputs, targets = zip(*parts, strict=True)
        slopes, seen = gradient(ends[:1] if same else ends, inputs, targets)
        for end, slope, state in zip(ends, slopes, states, strict=True):
            optimizer.apply(end, slope, state)
        losses.append(seen)
        same = False
    return ends, losses


class _WithWeights:
    """A module that is called with these weights instead of its own."""

    def __init__(self, module: nn.Module, weights: dict[str, Tensor]) -> None:
        self.called, self._weights = module, weights

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return functional_call(self.called, self._weights, arguments, named)


def _stacked(nests: Sequence[Nest]) -> Nest:
    """Stack nests of the same form, with the members as the first dimension."""
    first = nests[0]
    if isinstance(first, Mapping):
        return {name: _stacked([nest[name] for nest in nests]) for name in first}
    if isinstance(first, tuple):
        return tuple(_stacked(parts) for parts in zip(*nests, strict=True))
    return torch.stack([*nests])


def _require_no_side_effects(flat: FlatModule) -> None:
    """Refuse layers that draw random numbers or keep statistics: a joint call cannot keep members apart for them."""
    for name, layer in flat.module.named_modules():
        drops = isinstance(layer, _DropoutNd) and layer.p > 0
        counts = isinstance(layer, _NormBase) and layer.track_running_stats
        if drops or counts:
            what = "draws random numbers" if drops else "keeps running statistics"
            raise ConfigError(
                f"the model cannot be trained in cohorts: {name} ({type(layer).__name__}) {what}",
                fix=_ONE_BY_ONE,
                key="local.cohort",
            )
    if flat.spec.n_buffer:
        raise ConfigError("a model with buffers cannot be trained in cohorts", fix=_ONE_BY_ONE, key="local.cohort")
