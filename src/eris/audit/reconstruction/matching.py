"""The objective of every attack that searches: how well a candidate explains an observation.

Mask-aware matching compares the candidate's update with what was seen and ignores all else: at the true samples the
squared distance is zero. Zero-filled matching counts unseen coordinates as zeros: at the true samples the distance is
what is hidden there, so its minimum lies elsewhere (unless everything was seen).

Earlier observations of the same samples are matched as well (mask-aware, squared distance): other weights give other
equations for the same pictures.

Rounded values are compared as such (mask-aware, squared distance): if rounded to the nearest, a candidate within half a
unit matches exactly; if rounded at random, every value is weighted by the size of its noise.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from eris.audit.reconstruction.attack import Mode
from eris.audit.reconstruction.observation import UpdateObservation
from eris.audit.reconstruction.public_model import PublicModel
from eris.errors import ConfigError, InputError

__all__ = ["Distance", "Matching", "OneStepMatching", "total_variation"]

Distance = Literal["squared", "cosine"]

_TINY = 1e-12  # keeps the gradient of the total variation finite where neighbours are equal


class Matching:
    """Measures how far a candidate is from one observation, relative to the length of what was seen.

    Args:
        observation: what was seen.
        public: computes what a candidate would have sent.
        mode: whether unseen values are ignored (`mask-aware`) or count as zeros (`zero-filled`).
        distance: ‖·‖², or one minus the cosine.
    """

    def __init__(
        self,
        observation: UpdateObservation,
        public: PublicModel,
        *,
        mode: Mode = "mask-aware",
        distance: Distance = "squared",
    ) -> None:
        if mode not in ("mask-aware", "zero-filled"):
            raise ConfigError(f"there is no mode {mode!r}", fix="use mask-aware or zero-filled")
        if not observation.seen.size:
            raise InputError("nothing was seen, so there is nothing to match", fix="look from another observer")
        self._observation, self._public, self._distance = observation, public, distance
        values = observation.values if mode == "mask-aware" else observation.filled(public.n)
        everything = mode == "zero-filled" or observation.seen.size == public.n
        self._seen = None if everything else torch.from_numpy(observation.seen.copy())
        self._target = torch.from_numpy(values.copy()).to(public.dtype)
        self._rounding = observation.rounding if mode == "mask-aware" and distance == "squared" else None
        self._slack, self._weights = self._known_rounding()
        target = self._target if self._weights is None else self._target * self._weights
        self._length = max(float(target.norm()), 1e-30)
        together = mode == "mask-aware" and distance == "squared"
        self._earlier = [Matching(part, public.at(part.model)) for part in (observation.earlier if together else ())]

    @property
    def size(self) -> int:
        """The number of matched values, over all rounds."""
        return self._target.numel() + sum(part.size for part in self._earlier)

    @property
    def noise_ratio(self) -> float:
        """The noise on each value, relative to the length of what was seen."""
        rounding = self._rounding
        by_coin = rounding.deviation if rounding is not None and rounding.at_random else 0.0
        return math.hypot(self._observation.handling.noise, by_coin) / self._length

    @property
    def floor(self) -> float:
        """The squared distance that noise alone leaves at the true samples: a closer match fits noise."""
        return self._target.numel() * self.noise_ratio**2 + sum(part.floor for part in self._earlier)

    def residual(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """Return the candidate's update minus what was seen, relative to the length of the latter."""
        missed = self._shown(pictures, labels) - self._target
        if self._slack is not None:
            missed = missed - missed.clamp(-self._slack, self._slack)
        missed = (missed if self._weights is None else missed * self._weights) / self._length
        return torch.cat([missed, *(part.residual(pictures, labels) for part in self._earlier)])

    def loss(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """Return the distance of a candidate: ‖·‖² relative to what was seen, or one minus the cosine."""
        if self._distance == "squared":
            residual = self.residual(pictures, labels)
            return torch.dot(residual, residual)
        shown = self._shown(pictures, labels)
        lengths = shown.norm().clamp(min=1e-30) * self._length
        distance: Tensor = 1 - torch.dot(shown, self._target) / lengths
        return distance

    def _known_rounding(self) -> tuple[Tensor | None, Tensor | None]:
        """Return how far a value may be off without a penalty, and the weight of each value; None where not rounded."""
        if self._rounding is None:
            return None, None
        units = torch.from_numpy(self._rounding.units.copy()).to(self._public.dtype)
        return (None, units.min() / units) if self._rounding.at_random else (units / 2, None)

    def _shown(self, pictures: Tensor, labels: Tensor) -> Tensor:
        update = self._public.update(pictures, labels, self._observation.local, self._observation.handling)
        return update if self._seen is None else update[self._seen]


def total_variation(pictures: Tensor) -> Tensor:
    """Return the mean absolute difference of neighbours, down and across, smoothed near zero."""
    down, across = pictures.diff(dim=-2), pictures.diff(dim=-1)
    return (down.square() + _TINY).sqrt().mean() + (across.square() + _TINY).sqrt().mean()


class OneStepMatching(Matching):
    """The squared distance of `Matching`, faster where a member made one plain step on all its samples, the usual case.

    The update is then the gradient, and the distance can be computed tensor by tensor, without building vectors as long
    as the model. An evolutionary search needs no gradients and judges a whole population at once. Anything but one
    plain step is left to `Matching`.
    """

    def __init__(self, observation: UpdateObservation, public: PublicModel, *, mode: Mode = "mask-aware") -> None:
        super().__init__(observation, public, mode=mode)
        local, handling = observation.local, observation.handling
        whole = local.steps == 1 and local.batch >= local.samples and not (handling.clip or handling.sample_clip)
        whole = whole and not self._earlier
        exact = self._rounding is None
        self._plain = whole and exact and next(public.module.buffers(), None) is None
        if self._plain:
            self._names = [tensor.name for tensor in public.spec.vector_tensors if tensor.role == "trainable"]
            self._leaves = {name: public.weights[name].detach().clone().requires_grad_() for name in self._names}
            self._scale = (local.lr / self._length) ** 2
            self._targets = self._apart(torch.from_numpy(observation.filled(public.n)).to(public.dtype) / local.lr)
            self._masks = None if self._seen is None else self._apart(self._mask())

    def loss(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """Return the distance of a candidate, differentiable."""
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
        """Return the distance of each candidate in candidates × samples × channels × height × width."""
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
        """Split a flat vector into the tensors of the model."""
        sizes = [self._leaves[name].numel() for name in self._names]
        parts = torch.split(vector, sizes)
        return [part.view_as(self._leaves[name]) for name, part in zip(self._names, parts, strict=True)]
