"""A torch module whose tensors are windows on one flat vector.

Loading a model is then one copy, and reading it back is none: parameters and buffers lie in one torch allocation (whose
alignment is always the same, so that matrix kernels choose the same path in every process), seen from numpy as well.
Gradients lie in one, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn

from eris.local.spec import ModelSpec, Role, TensorSpec, Vector
from eris.local.torch_objective import Objective
from eris.local.torch_work import BufferPolicy

__all__ = ["FlatModule", "one_thread", "spec_of", "tensors_of"]

_BUFFER_ROLES: dict[BufferPolicy, Role] = {"average": "buffer", "local": "local", "frozen": "frozen"}


class FlatModule:
    """One copy of the model: load a vector, ask for gradients, read the vector back."""

    def __init__(self, module: nn.Module, *, buffers: BufferPolicy = "average") -> None:
        self.module = module.float().eval()
        self.spec = spec_of(module, buffers=buffers)
        tensors = tensors_of(module)
        self._flat = torch.zeros(self.spec.n)
        self.vector: Vector = self._flat.numpy()
        self.trainable: Vector = self.vector[: self.spec.n_trainable]
        for name, place in self.spec.slices.items():
            self._flat[place] = tensors[name].detach().reshape(-1)
            tensors[name].data = self._flat[place].view(tensors[name].shape)
        self._parameters = [tensors[t.name] for t in self.spec.vector_tensors if t.role == "trainable"]
        self._local = [tensors[t.name] for t in self.spec.tensors if t.role == "local"]
        self._frozen = _frozen_buffers(module) if buffers == "frozen" else []
        self.initial_local = self.local_values()
        self._gradient = torch.zeros(self.spec.n_trainable)
        self.gradient: Vector = self._gradient.numpy()
        parts = torch.split(self._gradient, [parameter.numel() for parameter in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.grad = part.view(parameter.shape)

    def load(self, vector: Vector) -> None:
        """Set the trainable tensors and buffers, and put frozen buffers back to what they were."""
        np.copyto(self.vector, vector)
        for _, tensor, value in self._frozen:
            tensor.data.copy_(value)

    def train(self) -> None:
        """Behave as in training; layers whose statistics are frozen use them instead of the batch's."""
        if not self.module.training:  # walking through all layers takes longer than loading the vector
            self.module.train()
            for owner, _, _ in self._frozen:
                owner.eval()

    def evaluate(self) -> None:
        """Behave as in evaluation."""
        if self.module.training:
            self.module.eval()

    def differentiate(self, objective: Objective, inputs: Tensor, targets: Tensor) -> float:
        """Write the gradient of the mean loss into `gradient` and return the loss."""
        self._gradient.zero_()
        loss = objective.loss(self.module, inputs, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    def local_values(self) -> Vector:
        """Return the tensors that stay with their peer, as one float32 vector."""
        if not self._local:
            return np.empty(0, np.float32)
        return torch.cat([tensor.detach().reshape(-1).float() for tensor in self._local]).numpy()

    def load_local(self, values: Vector) -> None:
        """Set the tensors that stay with their peer."""
        start = 0
        for tensor in self._local:
            part = values[start : start + tensor.numel()]
            tensor.data.copy_(torch.from_numpy(part).view(tensor.shape))
            start += tensor.numel()


def spec_of(module: nn.Module, *, buffers: BufferPolicy = "average") -> ModelSpec:
    """Describe a module: what needs no gradient is frozen, integers are local, other buffers follow the policy."""
    described = []
    for name, tensor in tensors_of(module).items():
        role = _role(tensor, buffers)
        dtype = "float32" if tensor.is_floating_point() else str(tensor.dtype).removeprefix("torch.")
        described.append(TensorSpec(name, tuple(tensor.shape), dtype, role))
    return ModelSpec(tuple(described))


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and lasting buffers by name; a tensor shared under several names comes once."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor
    return tensors


def _frozen_buffers(module: nn.Module) -> list[tuple[nn.Module, Tensor, Tensor]]:
    return [
        (owner, tensor, tensor.clone())
        for owner in module.modules()
        for tensor in owner.buffers(recurse=False)
        if tensor.is_floating_point()
    ]


def _role(tensor: Tensor, buffers: BufferPolicy) -> Role:
    if isinstance(tensor, nn.Parameter):
        return "trainable" if tensor.requires_grad else "frozen"
    return _BUFFER_ROLES[buffers] if tensor.is_floating_point() else "local"


def one_thread() -> AbstractContextManager[None]:
    """Compute with one torch thread: more would add in another order, hence other bits."""
    before = torch.get_num_threads()
    return nullcontext() if before == 1 else _one_instead_of(before)


@contextmanager
def _one_instead_of(before: int) -> Iterator[None]:
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
