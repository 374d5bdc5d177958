"""Rank-one completion: recover the input of a fully connected layer at batch one from some values of its gradient.

At batch one the gradient of a linear layer is δ hᵀ, with one number δ_i for each output and one h_j for each input, and
that of its bias is δ. Any seen value gives one product δ_i h_j and links a row to a column: within one connected
component all δ and h follow from one of them up to a common factor, and a seen bias gives the factor. If the first
layer is fully connected, h is the picture itself: no search, no iteration.

>>> delta, h = np.array([2.0, -1.0, 0.5]), np.array([0.1, 0.2, 0.3, 0.4])
>>> seen = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], bool)  # half of the values, no row entire
>>> found = complete(np.where(seen, np.outer(delta, h), np.nan), np.array([2.0, np.nan, np.nan]))
>>> found.columns.round(9).tolist(), found.rows.round(9).tolist()
([0.1, 0.2, 0.3, 0.4], [2.0, -1.0, 0.5])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from eris.audit.reconstruction.attack import Labels, Mode, Recovered
from eris.audit.reconstruction.observation import UpdateObservation
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.search import labels_for
from eris.errors import InputError
from eris.local.spec import TensorSpec
from eris.seeds import Seed

__all__ = ["Completion", "RankOne", "complete"]

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Completion:
    """The factors as far as they follow from what was seen; NaN where they do not."""

    rows: Numbers  # δ
    columns: Numbers  # h


def complete(matrix: Numbers, bias: Numbers) -> Completion:
    """Return δ and h of a matrix δ hᵀ and a bias δ of which some values were seen (the others are NaN).

    Known factors are propagated from rows to columns and back along seen values, each time from the largest of them,
    because division by a small one would amplify its error.
    """
    rows, columns = bias.astype(np.float64).copy(), np.full(matrix.shape[1], np.nan)
    while True:
        fresh = _carried(matrix, rows, columns)
        back = _carried(matrix.T, columns, rows)
        if not fresh and not back:
            return Completion(rows, columns)


def _carried(matrix: Numbers, known: Numbers, wanted: Numbers) -> int:
    """Fill in `wanted` for each column that a row with a `known` factor reaches; return how many were new."""
    usable = np.isfinite(matrix) & (np.abs(np.nan_to_num(known)) > 0)[:, None] & np.isnan(wanted)[None, :]
    columns = np.flatnonzero(usable.any(axis=0))
    strength = np.where(usable, np.abs(np.nan_to_num(known))[:, None], -1.0)[:, columns]
    best = strength.argmax(axis=0)
    wanted[columns] = matrix[best, columns] / known[best]
    return int(columns.size)


@dataclass(frozen=True)
class RankOne:
    """Read the picture from the first layer's gradient, if that layer is fully connected and there was one sample."""

    name = "rank-one"

    def recover(
        self,
        observation: UpdateObservation,
        public: PublicModel,
        *,
        mode: Mode = "mask-aware",
        seed: Seed,
        labels: Labels | None = None,
    ) -> Recovered:
        """Recover the sample behind an observation; pixels that do not follow from what was seen stay grey."""
        if observation.local.samples != 1 or observation.local.steps != 1:
            raise InputError(
                f"{observation.local.samples} samples in {observation.local.steps} steps add up to more than one rank",
                fix="use boxed or inverting-gradients",
            )
        weight, bias = _first_layer(public)
        gradient = np.full(public.n, 0.0 if mode == "zero-filled" else np.nan)
        gradient[observation.seen] = observation.gradient
        slices = public.spec.slices
        found = complete(gradient[slices[weight.name]].reshape(weight.shape), gradient[slices[bias.name]])
        picture = public.pictures(torch.from_numpy(found.columns).to(public.dtype).view(public.shape))
        values = np.nan_to_num(picture.numpy().clip(0, 1), nan=0.5).astype(np.float32)
        return Recovered(values[None], labels_for(observation, public, labels, seed))


def _first_layer(public: PublicModel) -> tuple[TensorSpec, TensorSpec]:
    trainable = [tensor for tensor in public.spec.vector_tensors if tensor.role == "trainable"]
    weight, bias = trainable[0], trainable[1] if len(trainable) > 1 else None
    pixels = int(np.prod(public.shape))
    if len(weight.shape) != 2 or weight.shape[1] != pixels or bias is None or bias.shape != weight.shape[:1]:
        raise InputError(
            f"the first layer {weight.name} {weight.shape} is not a linear layer of all pixels with a bias",
            fix="use boxed or inverting-gradients",
        )
    return weight, bias
