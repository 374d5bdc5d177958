"""Score recovered pictures against the originals: job by job (kept in files, so none is repeated) and summarised."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from eris.atomic_file import write_atomically
from eris.audit.intervals import rate_interval
from eris.audit.reconstruction.attack import Labels, Recovered
from eris.audit.similarity import identification, mse, pattern_distance, perceptual_scores, psnr, ssim
from eris.audit.similarity.identification import Distance
from eris.errors import ConfigError
from eris.plain_json import sayable

__all__ = ["ReconstructionJob", "ReconstructionScores", "ScoredJob", "keep", "kept", "scored", "summarise"]

Pictures = NDArray[np.float32]

RECOVERED = 1e-3  # below this mean squared difference nobody can tell a picture from the original


@dataclass(frozen=True)
class ReconstructionJob:
    """One attack on what one observer saw of one victim; jobs with the same `key` have the same result."""

    defence: str  # its label
    method: str
    observer: str
    attack: str
    mode: str  # mask-aware or zero-filled
    victim: int
    share: float  # of the victim's update that was seen
    settings: str  # everything else that the result depends on

    @property
    def key(self) -> str:
        """A digest of everything that decides the result."""
        return sha256(
            json.dumps([self.observer, self.attack, self.mode, self.victim, self.settings]).encode()
        ).hexdigest()

    @property
    def name(self) -> str:
        """The name of the job's file, without folder and suffix."""
        parts = (self.defence, self.observer, self.attack, self.mode, str(self.victim))
        return "--".join("".join(c if c.isalnum() or c in "+.=-" else "_" for c in part) for part in parts)

    def plain(self) -> dict[str, Any]:
        """Return plain data, without the settings."""
        names = ("defence", "method", "observer", "attack", "mode", "victim", "share")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class ReconstructionScores:
    """The victim's pictures, what was recovered of each, and the scores."""

    originals: Pictures = field(repr=False)
    images: Pictures = field(repr=False)  # recovered, in the order of the originals
    scores: dict[str, list[float]]  # by score, one value for each picture
    labels: dict[str, list[int]]  # "true" and "recovered", in the same order
    loss: float  # of the final match
    seconds: float  # that the attack took

    def plain(self) -> dict[str, Any]:
        """Return plain data without the pictures."""
        return {"scores": self.scores, "labels": self.labels, "loss": self.loss, "seconds": round(self.seconds, 2)}


def scored(originals: Pictures, labels: Labels, recovered: Recovered, seconds: float) -> ReconstructionScores:
    """Pair each original with a recovered picture, none used twice, so that they differ least in total; score them.

    `labels` are the originals', `seconds` the time that the attack took.
    """
    chosen = _paired(originals, recovered.images)
    images = recovered.images[chosen]
    scores = {"mse": mse(originals, images).tolist(), "psnr": psnr(originals, images).tolist()}
    if min(originals.shape[-2:]) >= 11:
        scores["ssim"] = ssim(originals, images).tolist()
    found = {"true": labels.tolist(), "recovered": recovered.labels[chosen].tolist()}
    return ReconstructionScores(originals, images, scores, found, recovered.loss, seconds)


def keep(path: Path, job: ReconstructionJob, scores: ReconstructionScores) -> None:
    """Write the scores of a job to its file, atomically."""
    facts = json.dumps(sayable({"key": job.key, **job.plain(), **scores.plain()}))
    content = io.BytesIO()
    np.savez_compressed(content, originals=scores.originals, images=scores.images, facts=np.array(facts))
    write_atomically(path, content.getvalue())


def kept(path: Path, job: ReconstructionJob) -> ReconstructionScores | None:
    """Return the scores that `keep` wrote, or None; refuse a file that was made with other settings."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        facts = json.loads(str(arrays["facts"]))
        originals, images = arrays["originals"], arrays["images"]
    if facts["key"] != job.key:
        raise ConfigError("this folder has results with other settings", fix="choose another --out", path=path)
    scores = {name: [_number(value) for value in values] for name, values in facts["scores"].items()}
    return ReconstructionScores(originals, images, scores, facts["labels"], _number(facts["loss"]), facts["seconds"])


def _number(value: float | None) -> float:
    return float("inf") if value is None else float(value)


def _paired(originals: Pictures, images: Pictures) -> NDArray[np.int64]:
    """Return the index of each original's partner, in the pairing with the least total difference."""
    if len(originals) == len(images) == 1:
        return np.zeros(1, np.int64)
    from scipy.optimize import linear_sum_assignment

    costs = np.stack([mse(np.broadcast_to(original, images.shape), images) for original in originals])
    return cast("NDArray[np.int64]", linear_sum_assignment(costs)[1].astype(np.int64))


_KEYS = ("defence", "method", "observer", "attack", "mode")


@dataclass(frozen=True, eq=False)
class ScoredJob:
    """A job with its scores."""

    job: ReconstructionJob
    scores: ReconstructionScores

    def plain(self) -> dict[str, Any]:
        """Return plain data."""
        return {**self.job.plain(), **self.scores.plain()}


def summarise(entries: Sequence[ScoredJob], others: Pictures) -> list[dict[str, Any]]:
    """Return one summary for each defence, observer, attack and mode.

    Identification chooses among the originals, filled up with `others` to as many candidates as there are of those.
    """
    groups: dict[tuple[str, ...], list[ScoredJob]] = {}
    for entry in entries:
        groups.setdefault(tuple(getattr(entry.job, key) for key in _KEYS), []).append(entry)
    return [dict(zip(_KEYS, key, strict=True)) | _line(group, others) for key, group in groups.items()]


def _line(group: list[ScoredJob], others: Pictures) -> dict[str, Any]:
    originals = np.concatenate([entry.scores.originals for entry in group])
    images = np.concatenate([entry.scores.images for entry in group])
    scores = {name: np.concatenate([entry.scores.scores[name] for entry in group]) for name in group[0].scores.scores}
    scores |= perceptual_scores(originals, images)
    hits = int((scores["mse"] < RECOVERED).sum())
    return {
        "share": float(np.mean([entry.job.share for entry in group])),
        "pictures": len(originals),
        **{name: {"mean": float(np.mean(v)), "median": float(np.median(v))} for name, v in scores.items()},
        "recovered": _rate(hits, len(originals)),
        "identified": _identified(images, originals, others, mse),
        "identified_by_pattern": _identified(images, originals, others, pattern_distance),  # also finds pale pictures
        "labels": _rate(*_labels(group)),
        "seconds": float(sum(entry.scores.seconds for entry in group)),
    }


def _identified(images: Pictures, originals: Pictures, others: Pictures, distance: Distance) -> dict[str, float]:
    candidates = np.concatenate([originals, others[: max(len(others) - len(originals), 0)]])
    found = identification(images, candidates, np.arange(len(originals)), distance)
    facts = {"rate": found.rate, "low": found.low, "high": found.high}
    return {**facts, "chance": found.chance, "candidates": found.candidates}


def _labels(group: list[ScoredJob]) -> tuple[int, int]:
    """Return how many labels are right, whatever picture they came with, and how many there are."""
    right = total = 0
    for entry in group:
        true, found = entry.scores.labels["true"], list(entry.scores.labels["recovered"])
        total += len(true)
        for label in true:
            if label in found:
                found.remove(label)
                right += 1
    return right, total


def _rate(hits: int, count: int) -> dict[str, float]:
    low, high = rate_interval(hits, count)
    return {"rate": hits / count, "low": low, "high": high}
