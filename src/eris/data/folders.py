"""Sets that stay folders of pictures, with one sub-folder for each class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from eris.data.catalogue import CatalogueEntry
from eris.data.columns import divided
from eris.data.dataset import Dataset
from eris.data.pictures import ImageFiles, labelled_files
from eris.errors import DataError

__all__ = ["folder_dataset"]


def folder_dataset(entry: CatalogueEntry, folder: Path, size: int) -> Dataset[ImageFiles]:
    """Read train/CLASS and val/CLASS (or test/CLASS); a folder of classes alone is divided 4 : 1 by a fixed seed.

    `entry` describes the set; pictures are scaled and cut to `size` × `size`.
    """
    if (folder / "train").is_dir():
        return _official(entry, folder, size)
    classes, files, labels = labelled_files(folder)
    parts = divided({"places": np.arange(len(files)), "labels": labels}, 0.2, entry.name)
    splits = []
    for split in ("train", "test"):
        places = np.asarray(parts[split]["places"])
        chosen = [files[place] for place in places]
        splits.append(ImageFiles(chosen, labels[places], entry.mean, entry.std, size, ids=labels[places]))
    return Dataset(entry.name, "local files", classes, *splits)


def _official(entry: CatalogueEntry, folder: Path, size: int) -> Dataset[ImageFiles]:
    held = folder / "val" if (folder / "val").is_dir() else folder / "test"
    classes, files, labels = labelled_files(folder / "train")
    other, held_files, held_labels = labelled_files(held)
    if other != classes:
        raise DataError(
            f"train/ has {len(classes)} classes, {held.name}/ has {len(other)}, and their names differ",
            fix="give both the same class folders",
        )
    train = ImageFiles(files, labels, entry.mean, entry.std, size)
    test = ImageFiles(held_files, held_labels, entry.mean, entry.std, size)
    return Dataset(entry.name, "local files", classes, train, test)
