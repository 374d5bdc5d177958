"""Known facts about a data set: a copy that does not match them is not that set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eris.data.columns import Column, Found
from eris.errors import DataError

__all__ = ["Facts"]

_TOLERANCE = 2e-4  # published means have four digits


@dataclass(frozen=True, slots=True)
class Facts:
    """Counts and statistics that every copy of one edition of a set shares."""

    train: int
    test: int
    edition: str = "all of it"
    train_classes: tuple[int, ...] = ()
    test_classes: tuple[int, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    distinct_texts: int | None = None
    digest: str = ""  # of the content in the official order; another order is fine, it is only noted

    def check(self, found: Found) -> None:
        """Refuse a set that does not match."""
        for split, expected, classes in (
            ("train", self.train, self.train_classes),
            ("test", self.test, self.test_classes),
        ):
            count = {len(column) for column in found[split].values()}
            _require(count == {expected}, f"{split} has {sorted(count)} samples instead of {expected}")
            if classes:
                _check_classes(split, found[split]["labels"], classes)
        self._check_pixels(found["train"].get("pixels"))
        self._check_texts(found)

    def _check_pixels(self, pixels: Column | None) -> None:
        if not self.mean:
            return
        assert isinstance(pixels, np.ndarray)
        planes = pixels.reshape(-1, len(self.mean))
        for channel, (mean, std) in enumerate(zip(self.mean, self.std, strict=True)):
            counts = np.bincount(planes[:, channel], minlength=256)
            measured, deviation = _moments(counts)
            fits = abs(measured - mean) < _TOLERANCE and abs(deviation - std) < _TOLERANCE
            _require(fits, f"channel {channel} has mean {measured:.4f} ± {deviation:.4f} instead of {mean} ± {std}")

    def _check_texts(self, found: Found) -> None:
        if self.distinct_texts is not None:
            distinct = len({text for split in found.values() for text in split["texts"]})
            _require(distinct == self.distinct_texts, f"{distinct} distinct texts instead of {self.distinct_texts}")


def _check_classes(split: str, labels: Column, classes: tuple[int, ...]) -> None:
    assert isinstance(labels, np.ndarray)
    _require(labels.min() >= 0 and labels.max() < len(classes), f"{split} has labels beyond 0 … {len(classes) - 1}")
    counts = np.bincount(labels, minlength=len(classes)).tolist()
    _require(counts == list(classes), f"{split} has {counts} samples of each class instead of {list(classes)}")


def _moments(counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[float, float]:
    levels, total = np.arange(256) / 255, counts.sum()
    mean = float((counts * levels).sum() / total)
    return mean, float(np.sqrt((counts * (levels - mean) ** 2).sum() / total))


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise DataError(f"not what it claims to be: {otherwise}")
