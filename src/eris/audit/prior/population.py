"""Matching many candidates at once: a search by evolution judges a whole population, and slopes are not asked for."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from eris.audit.inversion.attack import Mode
from eris.audit.inversion.matching import Matching
from eris.audit.inversion.public_model import PublicModel
from eris.audit.inversion.sight import Sight

__all__ = ["PopulationMatching"]


class PopulationMatching(Matching):
    """The squared distance of every candidate of a population, three times as fast as one by one."""

    def __init__(self, sight: Sight, public: PublicModel, *, mode: Mode = "mask-aware") -> None:
        super().__init__(sight, public, mode=mode)
        local, handling = sight.local, sight.handling
        clipped = handling.clip or handling.sample_clip
        buffers = next(public.module.buffers(), None) is not None
        self._at_once = local.steps == 1 and local.batch >= local.samples and not clipped and not buffers
        self._names = [tensor.name for tensor in public.spec.vector_tensors if tensor.role == "trainable"]
        self._weights = {name: tensor.detach() for name, tensor in public.weights.items()}

    def losses(self, candidates: Tensor, labels: Tensor) -> list[float]:
        """Return the distance of each of candidates × samples × channels × height × width."""
        if not self._at_once:
            return [self.loss(pictures, labels).item() for pictures in candidates]
        gradients = vmap(grad(self._sample_loss), in_dims=(None, 0, None))(self._weights, candidates, labels)
        updates = torch.cat([gradients[name].flatten(1) for name in self._names], 1) * self._sight.local.lr
        shown = updates if self._seen is None else updates[:, self._seen]
        distances: list[float] = ((shown - self._target) / self._length).square().sum(1).tolist()
        return distances

    def _sample_loss(self, weights: dict[str, Tensor], pictures: Tensor, labels: Tensor) -> Tensor:
        logits = functional_call(self._public.module, weights, (self._public.normalised(pictures),))
        return functional.cross_entropy(logits, labels)
