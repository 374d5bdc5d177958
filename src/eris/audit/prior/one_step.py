"""Matching where a member made one plain step on all its samples: the usual case, with less to move about.

The update is then the gradient, and its distance can be taken tensor by tensor, without putting vectors as long as the
model together. A search by evolution asks for no slopes, and judges a whole population at once.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from eris.audit.inversion.attack import Mode
from eris.audit.inversion.matching import Matching
from eris.audit.inversion.public_model import PublicModel
from eris.audit.inversion.sight import Sight

__all__ = ["OneStepMatching"]


class OneStepMatching(Matching):
    """The squared distance of `Matching`; whatever is no plain step is left to that."""

    def __init__(self, sight: Sight, public: PublicModel, *, mode: Mode = "mask-aware") -> None:
        super().__init__(sight, public, mode=mode)
        local, handling = sight.local, sight.handling
        whole = local.steps == 1 and local.batch >= local.samples and not (handling.clip or handling.sample_clip)
        exact = self._rounding is None
        self._plain = whole and exact and next(public.module.buffers(), None) is None
        if self._plain:
            self._names = [tensor.name for tensor in public.spec.vector_tensors if tensor.role == "trainable"]
            self._leaves = {name: public.weights[name].detach().clone().requires_grad_() for name in self._names}
            self._scale = (local.lr / self._length) ** 2
            self._targets = self._apart(torch.from_numpy(sight.filled(public.n)).to(public.dtype) / local.lr)
            self._masks = None if self._seen is None else self._apart(self._mask())

    def loss(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """Return the distance of a candidate, to be differentiated."""
        if not self._plain:
            return super().loss(pictures, labels)
        loss = self._sample_loss(self._leaves, pictures, labels)
        total = loss.new_zeros(())
        for place, gradient in enumerate(torch.autograd.grad(loss, list(self._leaves.values()), create_graph=True)):
            missed = gradient - self._targets[place]
            missed = missed if self._masks is None else missed * self._masks[place]
            total = total + torch.dot(missed.reshape(-1), missed.reshape(-1))
        return total * self._scale

    def losses(self, candidates: Tensor, labels: Tensor) -> list[float]:
        """Return the distance of each of candidates × samples × channels × height × width."""
        if not self._plain:
            return [self.loss(pictures, labels).item() for pictures in candidates]
        weights = {name: leaf.detach() for name, leaf in self._leaves.items()}
        gradients = vmap(grad(self._sample_loss), in_dims=(None, 0, None))(weights, candidates, labels)
        total = torch.zeros(len(candidates), dtype=candidates.dtype)
        for place, name in enumerate(self._names):
            missed = gradients[name] - self._targets[place]
            missed = missed if self._masks is None else missed * self._masks[place]
            total += missed.flatten(1).square().sum(1)
        distances: list[float] = (total * self._scale).tolist()
        return distances

    def _sample_loss(self, weights: dict[str, Tensor], pictures: Tensor, labels: Tensor) -> Tensor:
        logits = functional_call(self._public.module, weights, (self._public.normalised(pictures),))
        return functional.cross_entropy(logits, labels)

    def _mask(self) -> Tensor:
        mask = torch.zeros(self._public.n, dtype=self._public.dtype)
        mask[self._seen] = 1
        return mask

    def _apart(self, vector: Tensor) -> list[Tensor]:
        """Cut a flat vector into the tensors of the model."""
        sizes = [self._leaves[name].numel() for name in self._names]
        parts = torch.split(vector, sizes)
        return [part.view_as(self._leaves[name]) for name, part in zip(self._names, parts, strict=True)]
