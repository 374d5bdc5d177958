"""Infer labels from the gradient of the last layer, without any search.

For one sample the gradient of the last bias is p − y: negative at the label and nowhere else. Every row of the last
weight's gradient is that number times the features, so where features are not negative (sigmoid, ReLU) one seen value
of a row reveals its sign. For a batch the rows add up: compared with what noise pictures give, a row says how many
samples had its label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from eris.audit.reconstruction.attack import Labels
from eris.audit.reconstruction.observation import UpdateObservation
from eris.audit.reconstruction.public_model import PublicModel
from eris.errors import InputError
from eris.local.spec import Vector
from eris.seeds import Seed

__all__ = ["infer_labels", "open_labels"]

Numbers = NDArray[np.float64]

_PROBES = 16  # noise pictures to compare with


def infer_labels(observation: UpdateObservation, public: PublicModel, count: int, *, seed: Seed) -> Labels:
    """Return the labels of `count` samples, ascending.

    For one sample the label is exact as soon as one value of its row was seen (if features are not negative, or if it
    is the bias). Rows of which nothing was seen get the labels that the others leave. Of several rounds the first
    counts: the better a model knows the pictures, the less what they do to it resembles what noise does. `seed` draws
    that noise.
    """
    last = _LastLayer.of(public)
    if observation.earlier:
        observation = observation.earlier[0]
        public = public.at(observation.model)
    rows = last.rows(observation.seen, observation.gradient)
    if count == 1:
        return np.array([int(np.argmin(rows))], np.int64)
    # Several steps lead away from the public model, but a label's own row keeps its sign.
    base, drop = _expected(last, public, observation, seed)
    counts = np.where(drop > 0, count * (base - rows) / np.where(drop > 0, drop, 1.0), np.nan)
    return _rounded(counts, count)


def open_labels(observation: UpdateObservation, public: PublicModel) -> Labels:
    """Return the labels that one sample may have, the likeliest first: one, unless nothing of its row was seen."""
    last = _LastLayer.of(public)
    observation = observation.earlier[0] if observation.earlier else observation
    rows = last.rows(observation.seen, observation.gradient)
    if rows.min() < 0:
        return np.array([int(np.argmin(rows))], np.int64)
    return np.flatnonzero(rows == 0)


@dataclass(frozen=True)
class _LastLayer:
    """The places of the last layer's weight and bias in the flat vector."""

    weight: slice
    bias: slice | None
    classes: int  # rows of the weight

    @classmethod
    def of(cls, public: PublicModel) -> _LastLayer:
        """Find the last matrix with a row for each class, and the bias that follows it."""
        tensors = [tensor for tensor in public.spec.vector_tensors if tensor.role == "trainable"]
        matrices = [tensor for tensor in tensors if len(tensor.shape) == 2 and tensor.shape[0] == public.classes]
        if not matrices:
            raise InputError(
                "the network does not end in a linear layer with a row for each class", fix="give the labels"
            )
        after = tensors[tensors.index(matrices[-1]) + 1 :]
        bias = next((tensor.name for tensor in after if tensor.shape == (public.classes,)), None)
        slices = public.spec.slices
        return cls(slices[matrices[-1].name], slices[bias] if bias else None, public.classes)

    def rows(self, seen: NDArray[np.int64], values: Vector) -> Numbers:
        """Sum what was seen of each row; where its bias was seen, return that alone, which says more."""
        inside = (seen >= self.weight.start) & (seen < self.weight.stop)
        width = (self.weight.stop - self.weight.start) // self.classes
        row = (seen[inside] - self.weight.start) // width
        sums = np.zeros(self.classes)
        np.add.at(sums, row, values[inside].astype(np.float64))
        if self.bias is not None:
            inside = (seen >= self.bias.start) & (seen < self.bias.stop)
            sums[seen[inside] - self.bias.start] = values[inside]
        return sums


def _expected(
    last: _LastLayer, public: PublicModel, observation: UpdateObservation, seed: Seed
) -> tuple[Numbers, Numbers]:
    """Return each row's sum for noise pictures with another label, and how much lower it is with the row's own.

    Only the values that were seen are added up; `seed` draws the noise.
    """
    noise = seed.child("probes").generator().random((_PROBES, *public.shape))
    pictures = torch.from_numpy(noise).to(public.dtype)
    table = np.stack([_sums_for(label, last, public, observation, pictures) for label in range(public.classes)])
    own = np.diag(table)
    others = (table.sum(axis=0) - own) / max(public.classes - 1, 1)
    return others, others - own


def _sums_for(
    label: int, last: _LastLayer, public: PublicModel, observation: UpdateObservation, pictures: torch.Tensor
) -> Numbers:
    labels = torch.full((len(pictures),), label)
    gradient = public.gradient(pictures, labels).detach().numpy().astype(np.float32)
    return last.rows(observation.seen, gradient[observation.seen])


def _rounded(counts: Numbers, total: int) -> Labels:
    """Round estimated counts to labels: known ones first, then by largest remainder; unseen classes share the rest."""
    known = np.nan_to_num(np.clip(counts, 0, total))
    unseen = np.isnan(counts)
    known[unseen] = max(total - known.sum(), 0.0) / max(unseen.sum(), 1)
    known *= total / max(known.sum(), 1e-30)
    whole = np.floor(known).astype(np.int64)
    for place in np.argsort(-(known - whole), kind="stable")[: total - int(whole.sum())]:
        whole[place] += 1
    return np.repeat(np.arange(len(whole)), whole).astype(np.int64)
