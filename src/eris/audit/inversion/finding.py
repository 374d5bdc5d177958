"""What an attack found from one sighting, scored by the truth, and kept in a file so that it is never sought again."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from eris.atomic_file import write_atomically
from eris.audit.inversion.attack import Labels, Recovered
from eris.audit.likeness import mse, psnr, ssim
from eris.errors import ConfigError
from eris.protocol.canonical import sayable

__all__ = ["Finding", "Task", "keep", "kept", "scored"]

Pictures = NDArray[np.float32]

RECOVERED = 1e-3  # a mean squared difference below this is a picture nobody would tell from the original


@dataclass(frozen=True)
class Task:
    """One thing to do: an attack on one sighting. `key` tells the settings behind it from all others."""

    defence: str
    method: str
    observer: str
    attack: str
    mode: str
    victim: int
    share: float
    settings: str  # all that the result depends on

    @property
    def key(self) -> str:
        """A digest of everything that decides the result."""
        return sha256(
            json.dumps([self.observer, self.attack, self.mode, self.victim, self.settings]).encode()
        ).hexdigest()

    @property
    def name(self) -> str:
        """The name of its file, without folder and ending."""
        parts = (self.defence, self.observer, self.attack, self.mode, str(self.victim))
        return "--".join("".join(c if c.isalnum() or c in "+.=-" else "_" for c in part) for part in parts)

    def plain(self) -> dict[str, Any]:
        """Return plain data without what only the file needs."""
        names = ("defence", "method", "observer", "attack", "mode", "victim", "share")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class Finding:
    """The victim's pictures beside what was recovered of each."""

    originals: Pictures = field(repr=False)
    images: Pictures = field(repr=False)
    scores: dict[str, list[float]]
    labels: dict[str, list[int]]
    loss: float
    seconds: float

    def plain(self) -> dict[str, Any]:
        """Return plain data without the pictures."""
        return {"scores": self.scores, "labels": self.labels, "loss": self.loss, "seconds": round(self.seconds, 2)}


def scored(originals: Pictures, labels: Labels, recovered: Recovered, seconds: float) -> Finding:
    """Put each original beside the recovered picture that is most like it, no picture twice, and score the pairs."""
    chosen = _paired(originals, recovered.images)
    images = recovered.images[chosen]
    scores = {"mse": mse(originals, images).tolist(), "psnr": psnr(originals, images).tolist()}
    if min(originals.shape[-2:]) >= 11:
        scores["ssim"] = ssim(originals, images).tolist()
    found = {"true": labels.tolist(), "recovered": recovered.labels[chosen].tolist()}
    return Finding(originals, images, scores, found, recovered.loss, seconds)


def keep(path: Path, task: Task, finding: Finding) -> None:
    """Write a finding to its file, whole or not at all."""
    facts = json.dumps(sayable({"key": task.key, **task.plain(), **finding.plain()}))
    content = io.BytesIO()
    np.savez_compressed(content, originals=finding.originals, images=finding.images, facts=np.array(facts))
    write_atomically(path, content.getvalue())


def kept(path: Path, task: Task) -> Finding | None:
    """Return the finding of an earlier call, or None; refuse one that was made with other settings."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        facts = json.loads(str(arrays["facts"]))
        originals, images = arrays["originals"], arrays["images"]
    if facts["key"] != task.key:
        raise ConfigError("this folder has results with other settings", fix="choose another --out", path=path)
    scores = {name: [_number(value) for value in values] for name, values in facts["scores"].items()}
    return Finding(originals, images, scores, facts["labels"], _number(facts["loss"]), facts["seconds"])


def _number(value: float | None) -> float:
    return float("inf") if value is None else float(value)


def _paired(originals: Pictures, images: Pictures) -> NDArray[np.int64]:
    """Return for each original the place of its partner: the pairing with the least difference in all."""
    if len(originals) == len(images) == 1:
        return np.zeros(1, np.int64)
    from scipy.optimize import linear_sum_assignment

    costs = np.stack([mse(np.broadcast_to(original, images.shape), images) for original in originals])
    return cast("NDArray[np.int64]", linear_sum_assignment(costs)[1].astype(np.int64))
