"""Pictures in files: decoding, and folders with one sub-folder for each class.

Large folders (ImageNet, LFW) are not copied into the cache; `ImageFiles` decodes what is taken, when it is taken.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.data.dataset import Images, Indices, Labels
from eris.errors import DataError, MissingExtra

__all__ = ["ImageFiles", "decoded", "labelled_files"]

_SUFFIXES = {".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".webp"}


def decoded(content: bytes, mode: str, size: int | None = None) -> NDArray[np.uint8]:
    """Decode a picture; with a size, scale its shorter side to it and cut out the middle square.

    `mode` is Pillow's: L for grey, RGB for colours.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError as error:
        raise MissingExtra("pillow", "report", "reading pictures") from error
    try:
        with Image.open(io.BytesIO(content)) as image:
            picture = image.convert(mode)
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"a picture cannot be decoded: {error}") from error
    return np.asarray(picture if size is None else _square(picture, size), np.uint8)


def _square(picture: Any, size: int) -> Any:
    from PIL import Image

    scale = size / min(picture.size)
    width, height = (max(size, round(side * scale)) for side in picture.size)
    left, top = (width - size) // 2, (height - size) // 2
    scaled = picture.resize((width, height), Image.Resampling.BILINEAR)
    return scaled.crop((left, top, left + size, top + size))


def labelled_files(folder: Path) -> tuple[tuple[str, ...], list[Path], Labels]:
    """Return class names, picture files and labels of a folder with one sub-folder for each class."""
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        pictures = sorted(path for path in (folder / name).iterdir() if path.suffix.lower() in _SUFFIXES)
        files += pictures
        labels += [label] * len(pictures)
    if not files:
        raise DataError(f"{folder.name}/ has no class folders with pictures")
    return tuple(classes), files, np.array(labels, np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class ImageFiles:
    """Pictures that stay in their files, in colour, cut to squares of `size` pixels when they are taken."""

    files: Sequence[Path]
    labels: Labels
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    ids: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.files)

    def __repr__(self) -> str:
        return f"ImageFiles({len(self)} × {self.size}×{self.size}×3)"

    def take(self, indices: Indices) -> tuple[NDArray[np.float32], Labels]:
        """Return N × 3 × size × size normalised values and the labels at these places."""
        pictures = [decoded(self.files[place].read_bytes(), "RGB", self.size) for place in indices]
        pixels = np.stack(pictures) if pictures else np.zeros((0, self.size, self.size, 3), np.uint8)
        chosen = Images(pixels, self.labels[indices], self.mean, self.std)
        return chosen.take(np.arange(len(pixels)))
