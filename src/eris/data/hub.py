"""Fetch data sets from the Hugging Face hub, as the parquet files that it makes of every set."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from eris.data.packages import Progress, run_with_limit
from eris.errors import DataError

__all__ = ["Hub"]

# Run in a separate process: a time limit can end it, and its imports stay out of this process.
_DOWNLOAD = """
import sys
from huggingface_hub import snapshot_download
repository, revision, folder, *patterns = sys.argv[1:]
snapshot_download(repository, repo_type="dataset", revision=revision, local_dir=folder, allow_patterns=patterns)
"""


@dataclass(frozen=True, slots=True)
class Hub:
    """One configuration of one set."""

    repository: str
    configuration: str
    megabytes: float

    def __str__(self) -> str:
        return f"hub {self.repository}"

    def fetch(self, folder: Path, progress: Progress) -> Path:
        """Download the train and test splits into `folder`."""
        for package in ("huggingface_hub", "pyarrow"):
            if importlib.util.find_spec(package) is None:
                raise DataError(f"the package {package} is not installed (pip install 'eris-fl[hub]')")
        if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
            raise DataError("HF_HUB_OFFLINE is set, so the hub is not asked")
        content = folder / "content"
        content.mkdir()
        patterns = [f"{self.configuration}/{split}/*.parquet" for split in ("train", "test")]
        command = [sys.executable, "-c", _DOWNLOAD, self.repository, "refs/convert/parquet", str(content), *patterns]
        run_with_limit(command, folder, progress, f"fetching {self}", self.megabytes * 1e6)
        return content
