"""Single results added up: how often an attack recovered, or at least identified, what it was after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.audit.binomial import rate_interval
from eris.audit.inversion.finding import RECOVERED, Finding, Task
from eris.audit.likeness import identification, mse, pattern_distance, perceptual_scores
from eris.audit.likeness.identification import Distance

__all__ = ["Entry", "tally"]

Pictures = NDArray[np.float32]
_KEYS = ("defence", "method", "observer", "attack", "mode")


@dataclass(frozen=True, eq=False)
class Entry:
    """A task with what it came to."""

    task: Task
    finding: Finding

    def plain(self) -> dict[str, Any]:
        """Return plain data."""
        return {**self.task.plain(), **self.finding.plain()}


def tally(entries: Sequence[Entry], others: Pictures) -> list[dict[str, Any]]:
    """Return one line for each defence, observer, attack and mode; `others` fill up the candidates."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        groups.setdefault(tuple(getattr(entry.task, key) for key in _KEYS), []).append(entry)
    return [dict(zip(_KEYS, key, strict=True)) | _line(group, others) for key, group in groups.items()]


def _line(group: list[Entry], others: Pictures) -> dict[str, Any]:
    originals = np.concatenate([entry.finding.originals for entry in group])
    images = np.concatenate([entry.finding.images for entry in group])
    scores = {name: np.concatenate([entry.finding.scores[name] for entry in group]) for name in group[0].finding.scores}
    scores |= perceptual_scores(originals, images)
    hits = int((scores["mse"] < RECOVERED).sum())
    return {
        "share": float(np.mean([entry.task.share for entry in group])),
        "pictures": len(originals),
        **{name: {"mean": float(np.mean(v)), "median": float(np.median(v))} for name, v in scores.items()},
        "recovered": _rate(hits, len(originals)),
        "identified": _identified(images, originals, others, mse),
        "identified_by_pattern": _identified(images, originals, others, pattern_distance),  # pale pictures count, too
        "labels": _rate(*_labels(group)),
        "seconds": float(sum(entry.finding.seconds for entry in group)),
    }


def _identified(images: Pictures, originals: Pictures, others: Pictures, distance: Distance) -> dict[str, float]:
    candidates = np.concatenate([originals, others[: max(len(others) - len(originals), 0)]])
    found = identification(images, candidates, np.arange(len(originals)), distance)
    facts = {"rate": found.rate, "low": found.low, "high": found.high}
    return {**facts, "chance": found.chance, "candidates": found.candidates}


def _labels(group: list[Entry]) -> tuple[int, int]:
    """Count labels that were right, whatever picture they were found with."""
    right = total = 0
    for entry in group:
        true, found = entry.finding.labels["true"], list(entry.finding.labels["recovered"])
        total += len(true)
        for label in true:
            if label in found:
                found.remove(label)
                right += 1
    return right, total


def _rate(hits: int, count: int) -> dict[str, float]:
    low, high = rate_interval(hits, count)
    return {"rate": hits / count, "low": low, "high": high}
