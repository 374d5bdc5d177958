"""Turn samples into tensors for a model.

Samples may come from anything with a length and a method `take`. The inputs and targets that `take` returns are arrays
or tensors, or dictionaries and tuples of them: a *nest*. A member's samples are turned into tensors once and kept, up
to a memory budget; beyond it, the least recently used are made again when needed. Samples that should be taken anew for
every batch (a torch `Dataset`: padding and augmentation belong to the batch) say so with `by_batch = True`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "Batch",
    "Chosen",
    "DrawnSamples",
    "Examples",
    "HeldSamples",
    "MemberSamples",
    "Nest",
    "TensorCache",
    "batches_of",
    "count_of",
    "leaves",
    "mapped",
    "tensors_at",
]

Indices = NDArray[np.int64]
Nest = Any  # a tensor, or a dictionary or a tuple of nests
Batch = tuple[Nest, Nest]


class Examples(Protocol):
    """A split of a data set, ready for a model."""

    def __len__(self) -> int: ...

    def take(self, indices: Indices) -> tuple[Any, Any]:
        """Return inputs and targets at these places."""
        ...


class Chosen:
    """Some samples of a split, as a split themselves."""

    def __init__(self, examples: Examples, places: Indices) -> None:
        self.source, self._places = examples, places

    def __len__(self) -> int:
        return len(self._places)

    @property
    def by_batch(self) -> bool:
        """Whether they are taken anew for every batch."""
        return getattr(self.source, "by_batch", False)

    def take(self, indices: Indices) -> tuple[Any, Any]:
        """Return inputs and targets at these places of the choice."""
        return self.source.take(self._places[indices])

    def origin(self, place: int) -> int:
        """Return a sample's number in the split it was chosen from."""
        return int(self._places[place])


class TensorCache:
    """Makes tensors of samples, and keeps the most recently used up to `budget` bytes."""

    def __init__(self, budget: int) -> None:
        self._budget, self._used = budget, 0
        self._kept: OrderedDict[tuple[str, int], Batch] = OrderedDict()

    def get(self, key: tuple[str, int], examples: Examples, places: Indices) -> Batch:
        """Return the tensors kept under `key`, or make them from the samples at `places`."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        batch = tensors_at(examples, places)
        if getattr(examples, "by_batch", False):
            return batch
        self._kept[key] = batch
        self._used += _bytes(batch)
        while self._used > self._budget and len(self._kept) > 1:
            self._used -= _bytes(self._kept.popitem(last=False)[1])
        return batch


class MemberSamples(Protocol):
    """A member's samples while it trains."""

    def __len__(self) -> int: ...

    def at(self, places: Indices | Tensor | None) -> Batch:
        """Return the batch of these samples (places in the member's own list), or of all."""
        ...


class HeldSamples:
    """Samples kept in memory as tensors."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._plain = isinstance(batch[0], Tensor) and isinstance(batch[1], Tensor)

    def __len__(self) -> int:
        return count_of(self._batch)

    def at(self, places: Indices | Tensor | None) -> Batch:
        """Return some of the samples, or all of them without a copy."""
        if places is None:
            return self._batch
        inputs, targets = self._batch
        if self._plain:
            return inputs[places], targets[places]
        return mapped(inputs, lambda part: part[places]), mapped(targets, lambda part: part[places])


class DrawnSamples:
    """Samples taken from their source when a batch needs them."""

    def __init__(self, examples: Examples, places: Indices) -> None:
        self._examples, self._places = examples, places

    def __len__(self) -> int:
        return len(self._places)

    def at(self, places: Indices | Tensor | None) -> Batch:
        """Take a batch."""
        return tensors_at(self._examples, self._places if places is None else self._places[np.asarray(places)])


def tensors_at(examples: Examples, places: Indices) -> Batch:
    """Take samples and return them as tensors."""
    inputs, targets = examples.take(places)
    return mapped(inputs, _tensor), mapped(targets, _tensor)


def batches_of(examples: Examples, size: int) -> Iterator[tuple[int, Indices]]:
    """Yield a split's batches in order: the number of the first sample, and the places of all."""
    for start in range(0, len(examples), size):
        yield start, np.arange(start, min(start + size, len(examples)))


def mapped(nest: Nest, change: Callable[[Any], Any]) -> Nest:
    """Return a nest of the same form with every leaf changed.

    >>> mapped({"a": 1, "b": (2, 3)}, lambda leaf: 10 * leaf)
    {'a': 10, 'b': (20, 30)}
    """
    if isinstance(nest, Mapping):
        return {name: mapped(part, change) for name, part in nest.items()}
    return tuple(mapped(part, change) for part in nest) if isinstance(nest, tuple | list) else change(nest)


def leaves(nest: Nest, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nest with their names, such as ``mask`` or ``pair.0``."""
    if isinstance(nest, Mapping):
        for key, part in nest.items():
            yield from leaves(part, f"{name}.{key}" if name else str(key))
    elif isinstance(nest, tuple | list):
        for place, part in enumerate(nest):
            yield from leaves(part, f"{name}.{place}" if name else str(place))
    else:
        yield name, nest


def count_of(batch: Batch) -> int:
    """Return how many samples a batch has."""
    targets = batch[1]
    return len(targets) if isinstance(targets, Tensor) else len(next(leaves(batch))[1])


def _tensor(part: Any) -> Tensor:
    if isinstance(part, Tensor):
        return part
    # Copied into torch's own memory: its alignment is fixed, numpy's is not, and matrix kernels depend on it.
    return torch.from_numpy(np.ascontiguousarray(part)).clone()


def _bytes(batch: Batch) -> int:
    return sum(tensor.numel() * tensor.element_size() for _, tensor in leaves(batch))
