"""Faces: the small crops that scikit-image carries, and the snapshots of 30 people that pyvision carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.data.columns import Found, divided, find, find_all
from eris.data.pictures import decoded
from eris.errors import DataError, MissingExtra

__all__ = ["FACE_SIDE", "aligned", "read_face_crops", "read_face_snapshots"]

FACE_SIDE = 64
_EYES = ((0.34, 0.42), (0.66, 0.42))  # where the eyes end up, as shares of the side: much as in CelebA

Point = tuple[float, float]


def read_face_crops(folder: Path) -> Found:
    """Read `lfw_subset.npy`: 200 grey crops of 25 × 25 pixels, 100 faces, then 100 pieces of background."""
    crops = np.load(find(folder, "lfw_subset.npy"), allow_pickle=False)
    if crops.shape != (200, 25, 25):
        raise DataError(f"lfw_subset.npy has shape {crops.shape}")
    pixels = np.clip(np.rint(crops * 255), 0, 255).astype(np.uint8)
    labels = np.repeat(np.array([1, 0], np.int64), 100)
    return divided({"pixels": pixels, "labels": labels}, 0.2, "lfw")


def read_face_snapshots(folder: Path) -> Found:
    """Read grey pictures named after a person, five digits, and the shot; `coords.txt` says where the eyes are."""
    files = find_all(folder, "csuScrapShots/*.pgm")
    eyes = _eyes(files[0].parent / "coords.txt")
    pixels = np.stack([aligned(decoded(file.read_bytes(), "L"), *eyes[file.stem]) for file in files])
    people = {name: place for place, name in enumerate(sorted({file.stem[:5] for file in files}))}
    labels = np.array([people[file.stem[:5]] for file in files], np.int64)
    return divided({"pixels": pixels, "labels": labels, "ids": labels}, 0.2, "scrapshots")


def aligned(picture: NDArray[np.uint8], left: Point, right: Point, side: int = FACE_SIDE) -> NDArray[np.uint8]:
    """Cut out a square with the eyes in the standard places; beyond a picture's edge, its last pixels are repeated.

    Args:
        left, right: (x, y) of the eyes, the one further left in the picture first.
        side: of the square, in pixels.

    >>> face = np.zeros((80, 80), np.uint8)
    >>> face[28:33, 25:30] = face[28:33, 57:62] = 255
    >>> square = aligned(face, (27, 30), (59, 30), 50)
    >>> square.shape, int(square[21, 17]), int(square[21, 33]), int(square[21, 25])
    ((50, 50), 255, 255, 0)
    """
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise MissingExtra("pillow", "report", "reading pictures") from error
    (first_x, first_y), (second_x, _) = _EYES
    wide = (right[0] - left[0]) / (second_x - first_x)
    if wide <= 0:
        raise DataError(f"the eyes are at {left} and {right}", fix="give the eye that is further left first")
    margin = int(wide) + 1
    corner_x = margin + left[0] + 0.5 - first_x * wide
    corner_y = margin + (left[1] + right[1]) / 2 + 0.5 - first_y * wide
    padded = Image.fromarray(np.pad(picture, margin, mode="edge"))
    box = (corner_x, corner_y, corner_x + wide, corner_y + wide)
    return np.asarray(padded.resize((side, side), Image.Resampling.BILINEAR, box), np.uint8)


def _eyes(path: Path) -> dict[str, tuple[Point, Point]]:
    """Read lines of a name and the places of two eyes."""
    places = {}
    for line in path.read_text(encoding="ascii").splitlines():
        name, *numbers = line.split()
        x1, y1, x2, y2 = (float(number) for number in numbers)
        places[name] = ((x1, y1), (x2, y2))
    return places
