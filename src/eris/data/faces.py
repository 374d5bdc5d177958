"""Faces: the small crops that scikit-image carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from eris.data.columns import Found, divided, find
from eris.errors import DataError

__all__ = ["read_face_crops"]


def read_face_crops(folder: Path) -> Found:
    """Read `lfw_subset.npy`: 200 grey crops of 25 × 25 pixels, 100 faces, then 100 pieces of background."""
    crops = np.load(find(folder, "lfw_subset.npy"), allow_pickle=False)
    if crops.shape != (200, 25, 25):
        raise DataError(f"lfw_subset.npy has shape {crops.shape}")
    pixels = np.clip(np.rint(crops * 255), 0, 255).astype(np.uint8)
    labels = np.repeat(np.array([1, 0], np.int64), 100)
    return divided({"pixels": pixels, "labels": labels}, 0.2, "lfw")
