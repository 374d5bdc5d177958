"""Least squares with the true curvature: Levenberg–Marquardt within the bounds of a picture, for small networks.

A gradient search needs hundreds of steps to learn the curvature that the Jacobian of the residual gives in one. Near
the solution each step squares the error, so a handful of steps reaches the last digit of what was sent. The search
starts twice near the mean pixel of the data set, which everybody knows from the normalisation: a digit is mostly dark,
and from grey most searches end elsewhere. If that leads nowhere, smoothness is the better guide: the third start is
where `boxed` is after 400 steps. The Jacobian has a row for each matched value and a column for each pixel; at most
three rows for every pixel are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, repeat

import torch
from torch import Tensor

from eris.audit.reconstruction.boxed import Boxed
from eris.audit.reconstruction.matching import Matching
from eris.audit.reconstruction.search import LabelledSearch, SearchProblem, SearchResult
from eris.errors import InputError
from eris.seeds import Seed

__all__ = ["GaussNewton"]

_ROWS = 3  # for each pixel
_AT_ONCE = 64  # rows, or columns, of the Jacobian computed at a time
_MOST_VALUES = 1 << 27  # of the Jacobian: 1 GiB in float64
_EXACT = 1e-14  # a match this good ends the search
_PATIENCE = 8  # steps within which the match must improve by a tenth, or the search ends


@dataclass(frozen=True)
class GaussNewton(LabelledSearch):
    """Infer the label from the last layer; find the picture by Levenberg–Marquardt in [0, 1], from the mean or `boxed`.

    `before` has the steps of `boxed` before each of the first starts, 0 for none; later starts have none.
    """

    steps: int = 60  # in each search
    restarts: int = 3  # searches at most, the first included
    before: tuple[int, ...] = (0, 0, 400)
    enough: float = 1e-9  # a match this good needs no further start; rounding to float32 leaves less

    name = "gauss-newton"

    def searching(self, problem: SearchProblem, seed: Seed) -> Callable[[Seed], SearchResult]:
        """Return the search from one start."""
        pixels, seen = math.prod(problem.shape), problem.matching.size
        if (size := pixels * min(seen, _ROWS * pixels)) > _MOST_VALUES:
            raise InputError(
                f"the Jacobian of {pixels} pixels would take {size * 8 >> 20} MiB",
                fix="use boxed, or fewer or smaller pictures",
            )
        rows = torch.from_numpy(seed.child("rows").permutation(seen)[: _ROWS * pixels].copy())
        matching = problem.matching
        # Curvature fits noise as gladly as pictures, so under noise the smoothest start comes first.
        before = chain(self.before[::-1] if matching.noise_ratio else self.before, repeat(0))
        enough = max(_EXACT, matching.floor)

        def search(own: Seed) -> SearchResult:
            steps = next(before)
            start = _smooth(problem, steps, own) if steps else _near_mean(problem, own)
            damping = 1e-6 if steps else 1e-2
            return self._descend(matching, problem.targets, start, rows, enough, damping=damping)

        return search

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
            if trace[-1] <= enough or (len(trace) > _PATIENCE and trace[-1] > 0.9 * trace[-1 - _PATIENCE]):
                break
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
        return SearchResult(pictures, matching.loss(pictures, targets).item(), trace)


def _smooth(problem: SearchProblem, steps: int, seed: Seed) -> Tensor:
    """Return the pictures that `boxed` has after so many steps."""
    boxed = Boxed(steps=steps, restarts=1)
    found = boxed.recover(problem.observation, problem.public, mode=problem.mode, seed=seed, labels=problem.labels)
    return torch.from_numpy(found.images).to(problem.public.dtype)


def _near_mean(problem: SearchProblem, seed: Seed) -> Tensor:
    """Return pictures around the data set's mean pixel, but not at it: those of one batch would stay equal."""
    noise = torch.from_numpy(seed.child("start").generator().random(problem.shape)).to(problem.public.dtype)
    return (problem.public.mean + 0.1 * (noise - 0.5)).clamp(0, 1)


def _step(curvature: Tensor, slope: Tensor, free: Tensor, damping: float) -> Tensor:
    """Return the step of the free pixels, zero for all others; `damping` is relative to their mean curvature."""
    part = curvature[free][:, free]
    damped = part + damping * part.diagonal().mean() * torch.eye(len(part), dtype=part.dtype)
    step = torch.zeros_like(slope)
    step[free] = torch.linalg.solve_ex(damped, slope[free])[0]  # singular: not finite, so more damping is tried
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
