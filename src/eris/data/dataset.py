"""The data set: two splits, the names of its classes, and where it came from.

Pictures stay bytes, as they were published; `Images.take` hands out normalised float32. Texts stay strings.

>>> pixels = np.zeros((4, 28, 28), np.uint8)
>>> digits = Images(pixels, np.array([0, 1, 0, 1]), mean=(0.1307,), std=(0.3081,))
>>> inputs, labels = digits.take(np.array([1, 3]))
>>> inputs.shape, inputs.dtype, labels.tolist()
((2, 1, 28, 28), dtype('float32'), [1, 1])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from eris.errors import DataError

__all__ = ["ArrayExamples", "Dataset", "Images", "Indices", "Labels", "Texts"]

Indices = NDArray[np.int64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class ArrayExamples:
    """Your own data as arrays: inputs and targets that a model takes as they are.

    `ids` say who each sample comes from (writer, speaker, hospital; numbers or names), for a natural partition.

    >>> ArrayExamples(np.zeros((3, 8)), np.array([0, 1, 0]), np.array(["north", "south", "north"])).labels.tolist()
    [0, 1, 0]
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    ids: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        _require_equal_lengths(len(self.inputs), len(self.targets), None if self.ids is None else len(self.ids))

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        return f"ArrayExamples({len(self)} × {self.inputs.shape[1:]} {self.inputs.dtype})"

    @property
    def labels(self) -> Labels | None:
        """The targets, if they are class numbers; None for a regression or for sequences."""
        targets = np.asarray(self.targets)
        return targets if targets.ndim == 1 and targets.dtype.kind in "iub" else None

    def take(self, indices: Indices) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the inputs and targets at these places."""
        return self.inputs[indices], self.targets[indices]


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Pictures as bytes (N × height × width, grey; or N × height × width × channels) with labels and, perhaps, ids."""

    pixels: NDArray[np.uint8]
    labels: Labels
    mean: tuple[float, ...]
    std: tuple[float, ...]
    ids: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        _require_equal_lengths(len(self.pixels), len(self.labels), None if self.ids is None else len(self.ids))
        if self.pixels.dtype != np.uint8 or self.pixels.ndim not in (3, 4):
            raise DataError(f"pictures are {self.pixels.dtype}{self.pixels.shape}", fix="use bytes, N × H × W (× C)")
        if not len(self.mean) == len(self.std) == self.channels:
            raise DataError(
                f"pictures have {self.channels} channels, but mean is {self.mean} and std is {self.std}",
                fix="give one mean and one std for each channel",
            )

    def __len__(self) -> int:
        return len(self.pixels)

    def __repr__(self) -> str:
        return f"Images({len(self)} × {'×'.join(map(str, self.pixels.shape[1:]))})"

    @property
    def channels(self) -> int:
        """1 for grey, 3 for colour."""
        return 1 if self.pixels.ndim == 3 else int(self.pixels.shape[3])

    def take(self, indices: Indices) -> tuple[NDArray[np.float32], Labels]:
        """Return N × C × H × W normalised values, (byte/255 − mean)/std, and the labels at these places."""
        chosen = self.pixels[indices]
        if chosen.ndim == 3:
            return self._values[0][chosen][:, None], self.labels[indices]
        inputs = np.empty((len(chosen), self.channels, *chosen.shape[1:3]), np.float32)
        for channel, values in enumerate(self._values):
            inputs[:, channel] = values[chosen[..., channel]]
        return inputs, self.labels[indices]

    @cached_property
    def _values(self) -> list[NDArray[np.float32]]:
        # A byte has 256 values, so normalising is a table lookup; each entry is rounded once from float64.
        levels = np.arange(256, dtype=np.float64) / 255
        return [((levels - mean) / std).astype(np.float32) for mean, std in zip(self.mean, self.std, strict=True)]


@dataclass(frozen=True, eq=False, repr=False)
class Texts:
    """Texts with labels (classification) or with summaries (generation), and, perhaps, ids."""

    texts: Sequence[str]
    labels: Labels | None = None
    summaries: Sequence[str] | None = None
    ids: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if (self.labels is None) == (self.summaries is None):
            raise DataError("texts have both labels and summaries, or neither", fix="give one of the two")
        lengths = [len(self.texts)] + [
            len(part) for part in (self.labels, self.summaries, self.ids) if part is not None
        ]
        _require_equal_lengths(*lengths)

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"Texts({len(self)} {'labelled' if self.labels is not None else 'with summaries'})"


class _Split(Protocol):
    @property
    def labels(self) -> Labels | None: ...

    @property
    def ids(self) -> NDArray[Any] | None: ...

    def __len__(self) -> int: ...


Split = TypeVar("Split", bound=_Split, covariant=True)


@dataclass(frozen=True, eq=False)
class Dataset(Generic[Split]):
    """A named data set with a train and a test split; `source` says where its bytes came from."""

    name: str
    source: str
    classes: tuple[str, ...]
    train: Split
    test: Split

    @property
    def synthetic(self) -> bool:
        """Whether it was made up; such a set is called synthetic in its name."""
        return "synthetic" in self.name

    def counts(self, split: str = "train") -> list[int]:
        """Return how many samples of a split each class has."""
        labels = self._labels(split)
        return [int(count) for count in np.bincount(labels, minlength=len(self.classes))]

    def _labels(self, split: str) -> Labels:
        labels = (self.train if split == "train" else self.test).labels
        if labels is None:
            raise DataError(f"{self.name} has no classes", fix="use a partition that does not look at labels (iid)")
        return labels


def _require_equal_lengths(*lengths: int | None) -> None:
    if len({length for length in lengths if length is not None}) > 1:
        raise DataError(
            f"parts of a data set have different lengths: {lengths}", fix="give one entry for each sample in each part"
        )
