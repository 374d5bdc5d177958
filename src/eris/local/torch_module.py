"""A torch module whose tensors are views of one flat vector.

Loading a model then takes one copy, and reading it back takes none: parameters and buffers share one torch allocation
that numpy sees as well. Its alignment is always the same, so that matrix kernels choose the same path in every process.
Gradients share another one.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray
from torch import Tensor, nn

from eris.errors import ConfigError, ModelError
from eris.local.spec import ModelSpec, Role, TensorSpec, Vector
from eris.local.torch_examples import Batch, Nest, mapped
from eris.local.torch_objective import Objective
from eris.local.torch_work import BufferPolicy, Precision

__all__ = ["FlatModule", "one_thread", "require_module", "spec_of", "tensors_of"]

_FIRST_SCALE = 2.0**16  # of the loss in fp16
_BUFFER_ROLES: dict[BufferPolicy, Role] = {"average": "buffer", "local": "local", "frozen": "frozen"}


class FlatModule:
    """One copy of the model: load a vector, compute gradients, read the vector back.

    The flat memory holds the vector, then the personal tensors that are trained (`keep`); gradients likewise. On an
    accelerator `vector`, `trainable` and `gradient` are copies for the processor that `load`, `read` and
    `read_gradient` fill; the tensors themselves stay on the device.

    Args:
        module: the network; its tensors become views.
        buffers: what to do with running statistics: average, local or frozen.
        keep: patterns of tensors that stay with their peer.
        device: where to compute.
        precision: float32, or a half precision for the forward and backward pass.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        buffers: BufferPolicy = "average",
        keep: Sequence[str] = (),
        device: str = "cpu",
        precision: Precision = "float32",
    ) -> None:
        self.device, self._precision, self._scale = torch.device(device), precision, _FIRST_SCALE
        self.module = _as_float32(module).eval().to(self.device)
        self.spec = spec_of(module, buffers=buffers, keep=keep)
        tensors = tensors_of(module)
        own = [tensors[t.name] for t in self.spec.tensors if t.role == "local" and _is_trained(tensors[t.name])]
        n, n_trainable, n_own = self.spec.n, self.spec.n_trainable, sum(tensor.numel() for tensor in own)
        self.flat = torch.zeros(n + n_own, device=self.device)
        for name, place in self.spec.slices.items():
            _move_into(self.flat[place], tensors[name])
        start = n
        for tensor in own:
            _move_into(self.flat[start : start + tensor.numel()], tensor)
            start += tensor.numel()
        self._parameters = [tensors[t.name] for t in self.spec.vector_tensors if t.role == "trainable"]
        self._local = [tensors[t.name] for t in self.spec.tensors if t.role == "local"]
        self._frozen = _frozen_buffers(module) if buffers == "frozen" else []
        self.initial_local = self.local_values()
        self.flat_gradient = torch.zeros(n_trainable + n_own, device=self.device)
        parts = torch.split(self.flat_gradient, [parameter.numel() for parameter in [*self._parameters, *own]])
        for parameter, part in zip([*self._parameters, *own], parts, strict=True):
            parameter.grad = part.view(parameter.shape)
        self._see()

    def _see(self) -> None:
        """Make the tensors visible to numpy; those on an accelerator, through copies."""
        n, n_trainable = self.spec.n, self.spec.n_trainable
        self.on_host = self.device.type == "cpu"
        pinned = self.device.type == "cuda"
        self._host = self.flat if self.on_host else torch.zeros(n, pin_memory=pinned)
        self._host_gradient = self.flat_gradient if self.on_host else torch.zeros(n_trainable, pin_memory=pinned)
        self.vector: Vector = self._host.numpy()[:n]
        self.trainable: Vector = self.vector[:n_trainable]
        self.gradient: Vector = self._host_gradient.numpy()[:n_trainable]
        self.personal: Vector = self._host.numpy()[n:]
        self.personal_gradient: Vector = self._host_gradient.numpy()[n_trainable:]

    @property
    def n_personal(self) -> int:
        """Number of values that are trained but never sent."""
        return self.flat.numel() - self.spec.n

    def load(self, vector: Vector) -> None:
        """Set the trainable tensors and buffers, and restore the frozen buffers."""
        self._scale = _FIRST_SCALE  # nothing of one call survives into the next
        np.copyto(self.vector, vector)
        if not self.on_host:
            self.flat[: self.spec.n].copy_(self._host, non_blocking=True)
        for _, tensor, value in self._frozen:
            tensor.data.copy_(value)

    def load_trainable(self, point: Vector) -> None:
        """Set only the trainable tensors."""
        np.copyto(self.trainable, point)
        if not self.on_host:
            self.flat[: point.size].copy_(self._host[: point.size], non_blocking=True)

    def read(self) -> Vector:
        """Return the current vector; its memory will be reused."""
        if not self.on_host:
            self._host.copy_(self.flat[: self.spec.n])
        return self.vector

    def read_gradient(self) -> Vector:
        """Return the gradient of the trainable values; its memory will be reused."""
        if not self.on_host:
            self._host_gradient.copy_(self.flat_gradient[: self.spec.n_trainable])
        return self.gradient

    def write_gradient(self, gradient: NDArray[Any]) -> None:
        """Replace the gradient that was computed."""
        np.copyto(self.gradient, gradient, casting="same_kind")
        if not self.on_host:
            self.flat_gradient[: self.spec.n_trainable].copy_(self._host_gradient, non_blocking=True)

    def placed(self, batch: Batch) -> Batch:
        """Return a batch on the network's device."""
        if self.on_host:
            return batch
        inputs, targets = (mapped(part, self._to_device) for part in batch)
        return inputs, targets

    def _to_device(self, tensor: Tensor) -> Tensor:
        tensor = tensor.pin_memory() if self.device.type == "cuda" else tensor
        return tensor.to(self.device, non_blocking=True)

    def train(self) -> None:
        """Switch to training mode; layers with frozen statistics use those instead of the batch's."""
        if not self.module.training:  # walking through all layers takes longer than loading the vector
            self.module.train()
            for owner, _, _ in self._frozen:
                owner.eval()

    def evaluate(self) -> None:
        """Switch to evaluation mode."""
        if self.module.training:
            self.module.eval()

    def differentiate(self, objective: Objective, inputs: Nest, targets: Nest) -> float:
        """Write the gradient of the mean loss into `gradient` and return the loss."""
        if self._precision != "float32":
            return self._differentiate_in_halves(objective, inputs, targets)
        self.flat_gradient.zero_()
        loss = objective.loss(self.module, inputs, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    def _differentiate_in_halves(self, objective: Objective, inputs: Nest, targets: Nest) -> float:
        """Let torch choose what to compute in half precision; weights and gradients stay float32.

        So that gradients do not vanish in fp16, the loss is scaled by a power of two, halved until none overflows.
        """
        dtype = torch.bfloat16 if self._precision == "bf16" else torch.float16
        with torch.autocast(self.device.type, dtype=dtype):
            loss = objective.loss(self.module, inputs, targets)
        scale = self._scale if self._precision == "fp16" else 1.0
        while True:  # only the backward pass is repeated, so that running statistics see the batch once
            self.flat_gradient.zero_()
            (loss.float() * scale).backward(retain_graph=scale != 1.0)  # type: ignore[no-untyped-call]
            if scale == 1.0 or torch.isfinite(self.flat_gradient).all():
                break
            scale = self._scale = scale / 2
        if scale != 1.0:
            self.flat_gradient.div_(scale)
        return loss.item()

    def local_values(self) -> Vector:
        """Return the tensors that stay with their peer, as one float32 vector."""
        if not self._local:
            return np.empty(0, np.float32)
        return torch.cat([tensor.detach().reshape(-1).float().cpu() for tensor in self._local]).numpy()

    def load_local(self, values: Vector) -> None:
        """Set the tensors that stay with their peer."""
        start = 0
        for tensor in self._local:
            part = values[start : start + tensor.numel()]
            tensor.data.copy_(torch.from_numpy(part).view(tensor.shape))
            start += tensor.numel()


def require_module(model: object) -> nn.Module:
    """Return what a function made, provided that it is a network."""
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"the function that makes the model returned {model!r:.40}, not a network",
            fix="give a class or a function that returns a torch.nn.Module",
        )
    return model


def _as_float32(module: nn.Module) -> nn.Module:
    """Return a module in float32; if its base is quantised, only its trained tensors are converted."""
    if not any(getattr(part, "is_quantized", False) for part in module.modules()):
        return module.float()
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    for part in module.modules():
        if hasattr(part, "support_avx512bf16_for_cpu"):  # bitsandbytes: after evaluating with it, gradients are lost
            vars(part)["support_avx512bf16_for_cpu"] = False
    return module


def _move_into(place: Tensor, tensor: Tensor) -> None:
    place.copy_(tensor.detach().reshape(-1))
    tensor.data = place.view(tensor.shape)


def _is_trained(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) and tensor.requires_grad


def spec_of(module: nn.Module, *, buffers: BufferPolicy = "average", keep: Sequence[str] = ()) -> ModelSpec:
    """Describe a module: what needs no gradient is frozen, integers are local, other buffers follow the policy.

    Tensors that match a pattern in `keep` are local too: they stay with their peer. What a module saves besides its
    parameters and buffers, such as the scales of 4-bit weights, is frozen with the weights it belongs to.
    """
    tensors = tensors_of(module)
    changing = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    kept = _kept(list(tensors), keep)
    described = []
    for name, tensor in tensors.items():
        role = _role(tensor, buffers) if id(tensor) in changing else "frozen"
        role = "local" if name in kept and role != "frozen" else role
        dtype = "float32" if tensor.is_floating_point() else str(tensor.dtype).removeprefix("torch.")
        described.append(TensorSpec(name, tuple(tensor.shape), dtype, role))
    frozen = [(each.name, tensors[each.name]) for each in described if each.role == "frozen"]
    known = frozen and not any(tensor.is_meta for _, tensor in frozen)
    return ModelSpec(tuple(described), _digest(frozen) if known else "")


def _digest(tensors: Sequence[tuple[str, Tensor]]) -> str:
    """Return a digest of values: frozen tensors are never sent, so peers could differ in them unnoticed."""
    whole = blake3()
    for name, tensor in tensors:
        values = tensor.detach().to("cpu", torch.float32 if tensor.is_floating_point() else tensor.dtype).contiguous()
        whole.update(f"{name}\0".encode())
        whole.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return whole.hexdigest()


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and persistent buffers by name; a tensor shared under several names comes once."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in module.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor
    return tensors


def _kept(names: list[str], patterns: Sequence[str]) -> set[str]:
    """Return the names that match a pattern; refuse a pattern that matches none."""
    kept = set[str]()
    for pattern in patterns:
        found = fnmatch.filter(names, pattern)
        if not found:
            raise ConfigError(
                f"local.keep has {pattern!r}, which matches no tensor of the model",
                fix=f"the tensors are {_some(names)}; * stands for anything",
                key="local.keep",
            )
        kept.update(found)
    return kept


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f", … ({len(names)})" if len(names) > 6 else "")


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
    """Compute with one torch thread: more would add in another order and give other bits."""
    before = torch.get_num_threads()
    return nullcontext() if before == 1 else _one_instead_of(before)


@contextmanager
def _one_instead_of(before: int) -> Iterator[None]:
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
