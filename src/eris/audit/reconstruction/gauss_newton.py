"""Least squares with the true curvature: Levenberg–Marquardt within the bounds of a picture, for small networks.

A gradient search needs hundreds of steps to learn the curvature that the Jacobian of the residual gives in one. Near
the solution each step squares the error, so a handful of steps reaches the last digit of what was sent. Far from it
smoothness is the better guide: the first attempt starts where `boxed` is after a few steps, which is usually enough,
the second where it ends, and all others from grey. The Jacobian has a row for each matched value and a column for each
pixel; at most three rows for every pixel are used.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from eris.audit.reconstruction.attack import Labels, Mode, Recovered
from eris.audit.reconstruction.boxed import Boxed
from eris.audit.reconstruction.matching import Matching
from eris.audit.reconstruction.observation import UpdateObservation
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.search import SearchResult, best_of, labels_for
from eris.errors import InputError
from eris.seeds import Seed

__all__ = ["GaussNewton"]

_ROWS = 3  # for each pixel
_AT_ONCE = 64  # rows, or columns, of the Jacobian computed at a time
_MOST_VALUES = 1 << 27  # of the Jacobian: 1 GiB in float64
_PATIENCE = 8  # steps within which the match must improve by a tenth, or the search ends


@dataclass(frozen=True)
class GaussNewton:
    """Infer the label from the last layer; find the picture by Levenberg–Marquardt in [0, 1], from `boxed` or grey."""

    steps: int = 60  # in each search
    restarts: int = 3  # searches at most, the first included
    before: tuple[int, ...] = (200, 600)  # steps of `boxed` for the first starts; later starts are grey
    enough: float = 1e-14  # a match this good ends the search; rounding to float32 leaves a tenth of it

    name = "gauss-newton"

    def recover(
        self,
        observation: UpdateObservation,
        public: PublicModel,
        *,
        mode: Mode = "mask-aware",
        seed: Seed,
        labels: Labels | None = None,
    ) -> Recovered:
        """Recover the samples behind an observation."""
        known = labels_for(observation, public, labels, seed)
        matching, targets = Matching(observation, public, mode=mode), torch.from_numpy(known)
        enough = max(self.enough, matching.floor)
        pixels = len(known) * public.shape[0] * public.shape[1] * public.shape[2]
        seen = matching.size
        if (size := pixels * min(seen, _ROWS * pixels)) > _MOST_VALUES:
            raise InputError(
                f"the Jacobian of {pixels} pixels would take {size * 8 >> 20} MiB",
                fix="use boxed, or fewer or smaller pictures",
            )
        rows = torch.from_numpy(seed.child("rows").permutation(seen)[: _ROWS * pixels].copy())

        smooth = iter([Boxed(steps=steps, restarts=1) for steps in self.before])

        def search(own: Seed) -> SearchResult:
            if (boxed := next(smooth, None)) is not None:
                found = boxed.recover(observation, public, mode=mode, seed=own, labels=known)
                start = torch.from_numpy(found.images).to(public.dtype)
            else:
                noise = own.child("start").generator().random((len(known), *public.shape))
                start = torch.from_numpy(0.5 + 0.1 * (noise - 0.5)).to(public.dtype)
            return self._descend(matching, targets, start, rows, enough, damping=1e-2 if boxed is None else 1e-6)

        return best_of(search, seed, restarts=self.restarts, enough=enough).recovered(known)

    def _descend(
        self, matching: Matching, targets: Tensor, pictures: Tensor, rows: Tensor, enough: float, *, damping: float
    ) -> SearchResult:
        """Step until the match is good enough, improves no more, or no damping gives a step that improves it.

        Args:
            matching: measures how far a candidate is from what was seen.
            targets: the labels.
            pictures: where to start.
            rows: which of the matched values are used.
            enough: the match that ends the search.
            damping: of the first step, relative to the mean curvature.
        """
        trace = [_loss(matching, pictures, targets, rows)]
        for _ in range(self.steps):
            missed, jacobian = _linearised(matching, pictures, targets, rows)
            slope, curvature = jacobian.T @ missed, jacobian.T @ jacobian
            flat = pictures.reshape(-1)
            # A pixel at a bound stays there while the gradient pushes it outwards.
            free = ~(((flat <= 0) & (slope > 0)) | ((flat >= 1) & (slope < 0)))
            while damping < 1e8:
                step = _step(curvature, slope, free, damping)
                candidate = (flat - step).clamp(0, 1).view_as(pictures)
                loss = _loss(matching, candidate, targets, rows)
                if loss < trace[-1]:
                    break
                damping *= 4
            else:
                break
            pictures, damping = candidate, max(damping / 10, 1e-14)
            trace.append(loss)
            if loss <= enough or (len(trace) > _PATIENCE and loss > 0.9 * trace[-1 - _PATIENCE]):
                break
        return SearchResult(pictures, matching.loss(pictures, targets).item(), trace)


def _step(curvature: Tensor, slope: Tensor, free: Tensor, damping: float) -> Tensor:
    """Return the step of the free pixels, zero for all others; `damping` is relative to their mean curvature."""
    part = curvature[free][:, free]
    damped = part + damping * part.diagonal().mean() * torch.eye(len(part), dtype=part.dtype)
    step = torch.zeros_like(slope)
    step[free] = torch.linalg.solve(damped, slope[free])
    return step


def _loss(matching: Matching, pictures: Tensor, targets: Tensor, rows: Tensor) -> float:
    missed = matching.residual(pictures, targets).detach()[rows]
    return float(missed @ missed)


def _linearised(matching: Matching, pictures: Tensor, targets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return `rows` of the residual and of its Jacobian in the pixels, by rows or by columns, whichever are fewer."""
    variable = pictures.detach().clone().requires_grad_()
    missed = matching.residual(variable, targets)[rows]
    if len(rows) <= variable.numel():
        return missed.detach(), _slopes(missed, variable)
    # Backward twice is forward: Jᵀu is linear in u, and the gradient of one pixel's entry is that pixel's column of J.
    weights = torch.zeros_like(missed, requires_grad=True)
    (back,) = torch.autograd.grad(missed, variable, weights, create_graph=True)
    return missed.detach(), _slopes(back.reshape(-1), weights).T.contiguous()


def _slopes(values: Tensor, variable: Tensor) -> Tensor:
    """Return the gradient of every value with respect to the variable, one row each."""
    each = torch.eye(len(values), dtype=values.dtype)
    parts = [
        torch.autograd.grad(values, variable, one, retain_graph=True, is_grads_batched=True)[0].flatten(1)
        for one in torch.split(each, _AT_ONCE)
    ]
    return torch.cat(parts)
