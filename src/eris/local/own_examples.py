"""Turn users' own data, in its usual forms, into batches for a model.

A split may be a dictionary of columns, or anything with a length and samples by number: a torch `Dataset`, a Hugging
Face `Dataset`, a list. A sample, or the batch that a `collate` function makes of several, is

- a dictionary: the entry called labels, label, targets, target or y is the target, the others are inputs by name;
- a tuple: its last part is the target, the parts before are the inputs;
- anything else: its own target, like the tokens of a language model.

>>> inputs, targets = Columns({"age": [30.0, 50.0], "label": [0, 1]}).take(np.array([1]))
>>> inputs["age"], targets
(array([50.], dtype=float32), array([1]))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import DataError
from eris.local.torch_examples import Examples

__all__ = ["Columns", "Items", "JoinedExamples", "LaterExamples", "Ranges", "array_of", "is_items", "split_sample"]

Indices = NDArray[np.int64]
Collate = Callable[[list[Any]], Any]

_TARGETS = ("labels", "label", "targets", "target", "y")
_TOKENS, _MASK, _IGNORED = "input_ids", "attention_mask", -100
_FEW = 8  # members whose samples are kept; a task keeps the tensors of more
_RAGGED = "make all samples equally long, or pad them in a collate function: Federation(…, collate=…)"


class _NamelessExamples:
    """Samples that do not say whom they come from."""

    @property
    def ids(self) -> None:
        """None: the data do not say whom a sample comes from."""
        return


class Columns(_NamelessExamples):
    """A dictionary of arrays of one length."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = {name: array_of(name, column) for name, column in columns.items()}
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) != 1:
            raise DataError(f"the columns have different lengths: {lengths}", fix="give one row for each sample")

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    @property
    def labels(self) -> NDArray[Any] | None:
        """The targets, if they are class numbers."""
        targets = next((self._columns[name] for name in _TARGETS if name in self._columns), None)
        return targets if targets is not None and targets.ndim == 1 and targets.dtype.kind in "iub" else None

    def take(self, indices: Indices) -> tuple[Any, Any]:
        """Return inputs and targets at these places."""
        return split_sample({name: column[indices] for name, column in self._columns.items()})


class Items(_NamelessExamples):
    """Samples by number, batched on demand by `collate` (or by the data's own function, if it has one)."""

    by_batch = True

    def __init__(self, items: Any, collate: Collate | None = None) -> None:
        self._items, self._collate = items, collate or getattr(items, "collate", None)

    def __len__(self) -> int:
        return len(self._items)

    @cached_property
    def labels(self) -> NDArray[Any] | None:
        """The class numbers, if they are known without reading every sample."""
        found = next((getattr(self._items, name) for name in _TARGETS if hasattr(self._items, name)), None)
        columns = getattr(self._items, "column_names", ())
        if found is None and (name := next((name for name in _TARGETS if name in columns), None)):
            found = self._items[name]
        try:
            labels = np.asarray(found)
        except (TypeError, ValueError):
            return None
        return labels if labels.ndim == 1 and labels.dtype.kind in "iub" and len(labels) == len(self) else None

    def take(self, indices: Indices) -> tuple[Any, Any]:
        """Return inputs and targets at these places."""
        samples = [self._items[int(place)] for place in indices]
        if self._collate is not None:
            return split_sample(self._collate(samples))
        return split_sample(_together(samples, "", [int(place) for place in indices]))


class _DividedExamples:
    """Samples that already belong to members, so that nothing remains to be divided."""

    @property
    def labels(self) -> None:
        """None: only a partition would need them."""
        return

    @property
    def ids(self) -> None:
        """None: only a partition would need them."""
        return


class JoinedExamples(_DividedExamples):
    """Several splits, one after another: the data of members that bring their own."""

    def __init__(self, parts: Sequence[Examples]) -> None:
        self._parts = list(parts)
        self.starts: Indices = np.cumsum([0, *(len(part) for part in parts)])  # each start, and the end
        self.by_batch = any(getattr(part, "by_batch", False) for part in parts)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def take(self, indices: Indices) -> tuple[Any, Any]:
        """Return inputs and targets at these places, which may be in several splits."""
        owners: list[int] = (np.searchsorted(self.starts, indices, side="right") - 1).tolist()
        if len(set(owners)) == 1:
            return self._parts[owners[0]].take(indices - self.starts[owners[0]])
        single = [self._parts[o].take(np.array([i - self.starts[o]])) for o, i in zip(owners, indices, strict=True)]
        inputs, targets = (_joined([sample[side] for sample in single]) for side in (0, 1))
        return inputs, targets

    def origin(self, place: int) -> int:
        """Return a sample's number in the split it comes from."""
        return place - int(self.starts[np.searchsorted(self.starts, place, side="right") - 1])


class LaterExamples(_DividedExamples):
    """Samples made when a member trains; those of the last few members are kept."""

    made_later = True

    def __init__(self, make: Callable[[int], Examples], counts: Indices) -> None:
        self._make, self._counts = make, counts
        self.shares = Ranges(np.concatenate([[0], np.cumsum(counts)]))
        self._kept: dict[int, Examples] = {}

    def __len__(self) -> int:
        return int(self.shares.starts[-1])

    def take(self, indices: Indices) -> tuple[Any, Any]:
        """Return inputs and targets at these places, all of one member."""
        member = int(np.searchsorted(self.shares.starts, indices[0], side="right")) - 1
        return self._of(member).take(indices - self.shares.starts[member])

    def origin(self, place: int) -> int:
        """Return a sample's number among its member's samples."""
        return place - int(self.shares.starts[np.searchsorted(self.shares.starts, place, side="right") - 1])

    def _of(self, member: int) -> Examples:
        if member not in self._kept:
            made = self._make(member)
            if len(made) < self._counts[member]:
                raise DataError(
                    f"the function that makes the data made {len(made)} samples, but announced {self._counts[member]}",
                    fix="correct its attribute samples",
                    peer=member,
                )
            self._kept[member] = made
            if len(self._kept) > _FEW:
                del self._kept[next(iter(self._kept))]
        return self._kept[member]


class Ranges(Sequence[Indices]):
    """Each member's places when they are contiguous: one array of bounds instead of an array for each member."""

    def __init__(self, starts: Indices) -> None:
        self.starts = starts  # each start, and the end

    def __len__(self) -> int:
        return self.starts.size - 1

    def __getitem__(self, member: Any) -> Any:
        if not 0 <= member < len(self):
            raise IndexError(member)
        return np.arange(self.starts[member], self.starts[member + 1])


def is_items(data: Any) -> bool:
    """Return whether something has a length and can be indexed by sample, and is not an array."""
    return hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, np.ndarray | str | bytes)


def split_sample(batch: Any) -> tuple[Any, Any]:
    """Return the inputs and targets of a batch."""
    if isinstance(batch, Mapping):
        return _split_names(dict(batch))
    if isinstance(batch, tuple | list) and len(batch) > 1:
        *inputs, targets = batch
        return (inputs[0] if len(inputs) == 1 else tuple(inputs)), targets
    alone = batch[0] if isinstance(batch, tuple | list) and batch else batch
    return alone, alone


def _split_names(batch: dict[str, Any]) -> tuple[Any, Any]:
    for name in _TARGETS:
        if name in batch:
            targets = batch.pop(name)
            return batch, targets
    if _TOKENS not in batch:
        return batch, batch
    if _MASK not in batch:
        return batch, batch[_TOKENS]
    targets = batch[_TOKENS].clone() if hasattr(batch[_TOKENS], "clone") else batch[_TOKENS].copy()
    targets[batch[_MASK] == 0] = _IGNORED  # padding is not learned
    return batch, targets


def array_of(name: str, values: Any) -> NDArray[Any]:
    """Return values in the form a network takes: real numbers as float32, whole numbers unchanged or as int64.

    >>> array_of("x", [[1.0, 2.0], [3.0]])
    Traceback (most recent call last):
    ...
    eris.errors.DataError: x: sample 1 has 1 values, but sample 0 has 2 [sample=1]: make all samples equally long, ...
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values)
    except ValueError:
        raise _ragged(name, list(values), range(len(values))) from None
    if array.dtype.kind not in "fiub":
        raise _no_numbers(name, values, array)
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    return array if array.dtype.kind == "b" or array.dtype == np.uint8 else array.astype(np.int64, copy=False)


def _together(samples: list[Any], name: str, places: Sequence[int]) -> Any:
    """Stack samples into a batch: dictionaries by name, tuples by place, the rest along a new first dimension."""
    first = samples[0]
    if isinstance(first, Mapping):
        for place, sample in zip(places, samples, strict=True):
            if not isinstance(sample, Mapping) or set(sample) != set(first):
                raise DataError(
                    f"sample {place} has different keys than sample {places[0]} ({', '.join(map(str, first))})",
                    fix="give every sample the same keys",
                    sample=place,
                )
        return {key: _together([sample[key] for sample in samples], str(key), places) for key in first}
    if isinstance(first, tuple):
        parts = zip(*samples, strict=False)
        return tuple(_together(list(part), _named(name, number), places) for number, part in enumerate(parts))
    if hasattr(first, "detach"):
        samples = [sample.detach().cpu().numpy() for sample in samples]
    shapes = [np.shape(sample) if not isinstance(sample, list) else None for sample in samples]
    if len(set(shapes)) > 1:
        raise _ragged(name, samples, places)
    try:
        return array_of(name or "the samples", samples)
    except DataError as error:
        if "sample" in error.where:
            raise _ragged(name, samples, places) from None
        raise


def _named(name: str, number: int) -> str:
    return f"{name}.{number}" if name else ("inputs", "targets")[number] if number < 2 else str(number)


def _ragged(name: str, samples: Sequence[Any], places: Sequence[int]) -> DataError:
    sizes = [len(sample) if hasattr(sample, "__len__") else 1 for sample in samples]
    odd = next((number for number, size in enumerate(sizes) if size != sizes[0]), 0)
    what = f"{name}: " if name else ""
    if sizes[odd] == sizes[0]:
        return DataError(f"{what}the samples are not equally long", fix=_RAGGED)
    return DataError(
        f"{what}sample {places[odd]} has {sizes[odd]} values, but sample {places[0]} has {sizes[0]}",
        fix=_RAGGED,
        sample=places[odd],
    )


def _no_numbers(name: str, values: Any, array: NDArray[Any]) -> DataError:
    if array.dtype.kind == "O" and array.ndim == 1 and all(hasattr(value, "__len__") for value in array[:2]):
        return _ragged(name, list(values), range(len(values)))
    kind = "text" if array.dtype.kind in "US" else str(array.dtype)
    return DataError(f"{name} holds {kind}, not numbers", fix="convert it to numbers, or leave it out of the samples")


def _joined(parts: list[Any]) -> Any:
    first = parts[0]
    if isinstance(first, Mapping):
        return {name: _joined([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple):
        return tuple(_joined(list(part)) for part in zip(*parts, strict=True))
    if hasattr(first, "detach"):
        import torch

        return torch.cat(parts)
    return np.concatenate(parts)
