"""Samples on their way into a model.

Where they come from is not decided here: anything with a length and `take` will do. What a member needs is turned into
tensors once and kept, up to a budget of memory; beyond it the least recently used is made again when needed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Batch", "Chosen", "Examples", "TensorCache", "batches_of"]

Indices = NDArray[np.int64]
Batch = tuple[Tensor, Tensor]


class Examples(Protocol):
    """A split of a data set, ready for a model."""

    def __len__(self) -> int: ...

    def take(self, indices: Indices) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return inputs and targets at these places."""
        ...


class Chosen:
    """Some samples of a split, as a split of their own."""

    def __init__(self, examples: Examples, places: Indices) -> None:
        self._examples, self._places = examples, places

    def __len__(self) -> int:
        return len(self._places)

    def take(self, indices: Indices) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return inputs and targets at these places of the choice."""
        return self._examples.take(self._places[indices])


class TensorCache:
    """Tensors of the places asked for, the most recently used kept up to `budget` bytes."""

    def __init__(self, budget: int) -> None:
        self._budget, self._used = budget, 0
        self._kept: OrderedDict[tuple[str, int], Batch] = OrderedDict()

    def get(self, key: tuple[str, int], examples: Examples, places: Indices) -> Batch:
        """Return the tensors under `key`, made from `places` if they are not at hand."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        inputs, targets = examples.take(places)
        batch = (_tensor(inputs), _tensor(targets))
        self._kept[key] = batch
        self._used += _bytes(batch)
        while self._used > self._budget and len(self._kept) > 1:
            self._used -= _bytes(self._kept.popitem(last=False)[1])
        return batch


def batches_of(examples: Examples, size: int) -> Iterator[tuple[int, Indices]]:
    """Walk through a split in order: the number of the first sample of each batch, and its places."""
    for start in range(0, len(examples), size):
        yield start, np.arange(start, min(start + size, len(examples)))


def _tensor(array: NDArray[Any]) -> Tensor:
    # A copy into torch's own memory: its alignment is fixed, numpy's is not, and matrix kernels look at it.
    return torch.from_numpy(np.ascontiguousarray(array)).clone()


def _bytes(batch: Batch) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in batch)
