"""Compute each sample's own gradient: all together with vmap if the network allows it, otherwise one by one.

Both are equal up to rounding; for a small network, vmap is four times as fast. Audits and tasks get the gradients
themselves, as rows; `privacy/torch_sample_gradients.py` gets from here what its vmap and its loop need, and clips.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from eris.local.torch_examples import Batch, Nest, count_of, mapped
from eris.local.torch_module import FlatModule, tensors_of
from eris.local.torch_objective import Objective

__all__ = [
    "VALUES_AT_ONCE", "gradients_together", "looks_at_values", "one_sample", "single_gradients", "trainable_names",
]  # fmt: skip

VALUES_AT_ONCE = 1 << 22  # in all gradients that are computed together


def single_gradients(flat: FlatModule, objective: Objective, batch: Batch) -> Iterator[Tensor]:
    """Yield each sample's gradient as a row, a few samples at a time."""
    size = max(1, VALUES_AT_ONCE // flat.spec.n_trainable)
    mixing = any(isinstance(layer, _BatchNorm) for layer in flat.module.modules())
    together = size > 1 and not mixing and not looks_at_values(flat.module)
    for start in range(0, count_of(batch), size):
        part = mapped(batch, operator.itemgetter(slice(start, start + size)))
        rows = None
        if together:
            try:
                rows, _ = gradients_together(flat, objective, part)
            except (
                RuntimeError,
                TypeError,
                ValueError,
            ):  # vmap cannot follow; if there is a real mistake, the loop raises it
                together = False
        yield _one_by_one(flat, objective, part) if rows is None else rows


def gradients_together(flat: FlatModule, objective: Objective, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return each sample's gradient as a row, and the losses, computed with vmap."""
    own, names = tensors_of(flat.module), trainable_names(flat)
    parameters = {name: own[name].detach() for name in names}

    def loss(values: dict[str, Tensor], sample: Nest, target: Nest) -> Tensor:
        alone = (mapped(part, lambda tensor: tensor[None]) for part in (sample, target))
        return objective.loss(_Bound(flat.module, values), *alone)

    each = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")
    single, losses = each(parameters, *batch)
    return torch.cat([single[name].reshape(len(losses), -1) for name in names], dim=1), losses.detach()


def _one_by_one(flat: FlatModule, objective: Objective, batch: Batch) -> Tensor:
    gradients = torch.empty(count_of(batch), flat.spec.n_trainable, device=flat.device)
    for place, row in enumerate(gradients):
        flat.differentiate(objective, *one_sample(batch, place))
        row.copy_(flat.flat_gradient[: flat.spec.n_trainable])
    return gradients


def one_sample(batch: Batch, place: int) -> Batch:
    """Return a batch of one."""
    inputs, targets = (mapped(part, operator.itemgetter(slice(place, place + 1))) for part in batch)
    return inputs, targets


def trainable_names(flat: FlatModule) -> list[str]:
    """Return the names of a network's trainable tensors, in the order of its vector."""
    return [tensor.name for tensor in flat.spec.vector_tensors if tensor.role == "trainable"]


def looks_at_values(module: nn.Module) -> bool:
    """Return whether a network branches on values, as those of transformers do: vmap cannot follow that."""
    library = sys.modules.get("transformers")  # anybody who has such a network has imported it
    parts: tuple[type, ...] = (nn.RNNBase,) if library is None else (nn.RNNBase, library.PreTrainedModel)
    return any(isinstance(part, parts) for part in module.modules())


class _Bound(nn.Module):
    """A module called with tensors that are not its own."""

    def __init__(self, module: nn.Module, parameters: dict[str, Tensor]) -> None:
        super().__init__()
        self._module = [module]  # in a list: its parameters are not ours
        self._tensors = parameters

    @property
    def called(self) -> nn.Module:
        """The module that it stands in for."""
        return self._module[0]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Call it."""
        return functional_call(self.called, self._tensors, inputs, named)
