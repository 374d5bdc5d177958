"""The public model as an attacker uses it: compute what a member with given pictures would have sent.

The result is differentiable with respect to the pictures, through all of the member's local steps.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from eris.audit.reconstruction.observation import Handling, LocalSteps
from eris.local.spec import ModelSpec, Vector, as_vector
from eris.local.torch_module import spec_of
from eris.local.torch_work import BufferPolicy

__all__ = ["PublicModel"]


class PublicModel:
    """A network at the public weights x^t.

    Args:
        module: the network.
        vector: x^t, the flat vector.
        shape: channels, height and width of a picture.
        classes: the number of classes.
        mean: of the data set's normalisation; pictures are (N, C, H, W) in [0, 1] and normalised here.
        std: of the data set's normalisation.
        buffers: how the network's buffers are treated.
        dtype: the precision to compute in.
    """

    def __init__(
        self,
        module: nn.Module,
        vector: Vector,
        *,
        shape: tuple[int, int, int],
        classes: int,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        buffers: BufferPolicy = "average",
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.module = module.to(dtype).train()
        self.shape, self.classes, self.dtype = shape, classes, dtype
        self.spec: ModelSpec = spec_of(module, buffers=buffers)
        self.mean, self.std = (torch.tensor(part, dtype=dtype).view(-1, 1, 1) for part in (mean, std))
        self.weights = self._named(torch.from_numpy(as_vector(vector, self.spec.n).copy()).to(dtype))
        self._names = [tensor.name for tensor in self.spec.vector_tensors if tensor.role == "trainable"]

    def at(self, vector: Vector) -> PublicModel:
        """Return the same network at the public weights of another round."""
        other = copy.copy(self)
        other.weights = self._named(torch.from_numpy(as_vector(vector, self.spec.n).copy()).to(self.dtype))
        return other

    @property
    def n(self) -> int:
        """The number of trainable coordinates."""
        return self.spec.n_trainable

    def normalised(self, pictures: Tensor) -> Tensor:
        """Normalise pictures in [0, 1] for the network."""
        return (pictures - self.mean) / self.std

    def pictures(self, normalised: Tensor) -> Tensor:
        """Undo the normalisation; values outside [0, 1] are kept."""
        return normalised * self.std + self.mean

    def logits(self, pictures: Tensor, weights: dict[str, Tensor] | None = None) -> Tensor:
        """Return the network's logits, at other weights if given."""
        buffers = {name: tensor.detach().clone() for name, tensor in self.module.named_buffers()}
        tensors = {**buffers, **(weights or self.weights)}
        return functional_call(self.module, tensors, (self.normalised(pictures),))  # type: ignore[no-any-return]

    def gradient(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient of the mean loss as one vector; labels are numbers, or probabilities (N × classes)."""
        weights = self._leaves()
        return self._flat(self._gradients(weights, pictures, labels, Handling()))

    def update(
        self,
        pictures: Tensor,
        labels: Tensor,
        local: LocalSteps | None = None,
        handling: Handling | None = None,
    ) -> Tensor:
        """Return x^t − x_k of a member with these samples.

        Args:
            pictures: the member's pictures.
            labels: their labels.
            local: how the member trains; by default, one step on all samples.
            handling: the clipping that its update went through, if any.
        """
        local = local or LocalSteps(samples=len(pictures), batch=len(pictures))
        handling = handling or Handling()
        weights, velocity = self._leaves(), None
        moved: Tensor | None = None
        for step in range(local.steps):
            places = self._places(step, len(pictures), local.batch)
            gradients = self._gradients(weights, pictures[places], labels[places], handling)
            velocity = _carried(velocity, gradients, local.momentum)
            shift = local.lr * self._flat(velocity)
            moved = shift if moved is None else moved + shift
            weights = {**weights, **{n: weights[n] - local.lr * v for n, v in zip(self._names, velocity, strict=True)}}
        assert moved is not None
        return _clipped(moved, handling.clip)

    def _gradients(
        self, weights: dict[str, Tensor], pictures: Tensor, labels: Tensor, handling: Handling
    ) -> list[Tensor]:
        if handling.sample_clip and len(labels) > 1:
            parts = [
                self._gradients(weights, pictures[k : k + 1], labels[k : k + 1], handling) for k in range(len(labels))
            ]
            return [sum(tensors[1:], tensors[0]) / len(parts) for tensors in zip(*parts, strict=True)]
        loss = functional.cross_entropy(self.logits(pictures, weights), labels)
        wanted = [weights[name] for name in self._names]
        gradients = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True, materialize_grads=True)
        if not handling.sample_clip:
            return list(gradients)
        norm = self._flat(list(gradients)).norm()
        return [gradient * (handling.sample_clip / norm).clamp(max=1.0) for gradient in gradients]

    def _leaves(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone().requires_grad_() for name, tensor in self.weights.items()}

    def _named(self, flat: Tensor) -> dict[str, Tensor]:
        shapes = {tensor.name: tensor.shape for tensor in self.spec.vector_tensors}
        return {name: flat[place].view(shapes[name]) for name, place in self.spec.slices.items()}

    @staticmethod
    def _flat(tensors: list[Tensor]) -> Tensor:
        return torch.cat([tensor.reshape(-1) for tensor in tensors])

    @staticmethod
    def _places(step: int, samples: int, batch: int) -> Tensor:
        if batch >= samples:
            return torch.arange(samples)
        return torch.arange(step * batch, (step + 1) * batch) % samples


def _carried(velocity: list[Tensor] | None, gradients: list[Tensor], momentum: float) -> list[Tensor]:
    if velocity is None or not momentum:
        return gradients
    return [momentum * before + now for before, now in zip(velocity, gradients, strict=True)]


def _clipped(update: Tensor, bound: float) -> Tensor:
    return update if not bound else update * (bound / update.norm().clamp(min=1e-30)).clamp(max=1.0)
