"""Flower in a virtual environment of its own, for its pins are not ours; numpy, torch and eris come from this one."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

import numpy

__all__ = ["FLOWER", "flower_environment", "why_not"]

FLOWER = "1.41.0"


def flower_environment(folder: Path, *, extra: str = "") -> str:
    """Make an environment with Flower in a folder, and return its Python."""
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    wanted = f"flwr[{extra}]=={FLOWER}" if extra else f"flwr=={FLOWER}"
    _output(python, "-m", "pip", "install", "--quiet", wanted)
    packages = _output(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
    behind = [Path(numpy.__file__).parents[1], Path(__file__).parents[1] / "src"]  # found after Flower's own packages
    (Path(packages) / "ours.pth").write_text("".join(f"{path}\n" for path in behind))
    return python


def why_not(error: Exception) -> str:
    """Return in a line why Flower is left out."""
    reason = getattr(error, "stderr", None) or error
    return f"Flower is left out: {str(reason).strip()[-400:]}"


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=900).stdout
