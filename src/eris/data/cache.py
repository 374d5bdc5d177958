"""Where fetched sets are kept: ``$ERIS_DATA``, or ``eris`` in the user's cache folder.

Each set has a folder with one file for each column and a manifest with their sizes and blake3 digests, which are
checked whenever the set is loaded. A set appears under its name only when it is complete.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from blake3 import blake3

from eris.data.columns import Column, Found
from eris.errors import DataError

__all__ = [
    "CacheManifest",
    "cache_folder",
    "checked_folder",
    "keep_folder",
    "manifest_of",
    "read_columns",
    "workspace",
    "write_columns",
]

_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class CacheManifest:
    """What is in a set's folder, and where it came from."""

    name: str
    source: str
    edition: str
    samples: dict[str, int]
    digest: str = ""
    checked: str = ""  # against the known digest, or against counts and statistics
    folder: str = ""  # for sets that stay where they are
    files: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(size for size, _ in self.files.values())


def cache_folder() -> Path:
    """Return the folder of all fetched sets."""
    if chosen := os.environ.get("ERIS_DATA"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "eris" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "eris"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eris"


@contextmanager
def workspace() -> Iterator[Path]:
    """Provide a temporary folder inside the cache, on the same disk, so that moving is renaming."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".work-", dir=cache_folder(), ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def write_columns(manifest: CacheManifest, found: Found) -> CacheManifest:
    """Store a set, replacing an older one of the same name."""
    with workspace() as folder:
        fresh = folder / manifest.name
        fresh.mkdir()
        for split, columns in found.items():
            for name, column in columns.items():
                _write(fresh / f"{split}_{name}", column)
        return keep_folder(manifest, fresh)


def keep_folder(manifest: CacheManifest, fresh: Path) -> CacheManifest:
    """Move a finished folder of files into the cache, replacing an older one of the same name."""
    paths = [path for path in sorted(fresh.rglob("*")) if path.is_file()]
    files = {path.relative_to(fresh).as_posix(): (path.stat().st_size, _digest(path)) for path in paths}
    complete = CacheManifest(**{**asdict(manifest), "files": files})
    (fresh / _MANIFEST).write_text(json.dumps(asdict(complete), indent=2) + "\n", encoding="utf-8")
    target = cache_folder() / manifest.name
    with workspace() as folder:
        if target.exists():
            target.rename(folder / "replaced")
        fresh.rename(target)
    return complete


def manifest_of(name: str) -> CacheManifest | None:
    """Return the manifest of a set; None if the set is not in the cache."""
    path = cache_folder() / name / _MANIFEST
    try:
        content = json.loads(path.read_bytes())
        files = {file: (int(size), str(digest)) for file, (size, digest) in content.pop("files").items()}
        return CacheManifest(**content, files=files)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise DataError(f"the manifest of {name} is damaged", fix=f"`eris data get {name} --force`") from error


def read_columns(manifest: CacheManifest) -> Found:
    """Return a set from the cache after checking every file; arrays are mapped, not read."""
    found: Found = {}
    folder = checked_folder(manifest)
    for file in manifest.files:
        split, _, column = Path(file).stem.partition("_")
        found.setdefault(split, {})[column] = _read(folder / file)
    return found


def checked_folder(manifest: CacheManifest) -> Path:
    """Return a folder from the cache after checking every file in it."""
    folder = cache_folder() / manifest.name
    for file, (size, digest) in manifest.files.items():
        path = folder / file
        if not path.is_file() or path.stat().st_size != size or _digest(path) != digest:
            raise DataError(f"{manifest.name}/{file} is damaged", fix=f"`eris data get {manifest.name} --force`")
    return folder


def _write(stem: Path, column: Column) -> None:
    if isinstance(column, np.ndarray):
        np.save(stem.with_suffix(".npy"), column, allow_pickle=False)
    else:
        stem.with_suffix(".json").write_text(json.dumps(column, ensure_ascii=True), encoding="ascii")


def _read(path: Path) -> Column:
    if path.suffix == ".npy":
        array: Column = np.load(path, mmap_mode="r", allow_pickle=False)
        return array
    texts: list[str] = json.loads(path.read_bytes())
    return texts


def _digest(path: Path) -> str:
    return blake3().update_mmap(path).hexdigest()
