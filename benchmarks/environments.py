"""Other frameworks, each in a virtual environment of its own, for their pins are not ours.

Numpy, torch and eris come from this one, wherever the framework brings none.
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

import numpy

__all__ = ["FLOWER", "PFL", "flower_environment", "pfl_environment", "why_not"]

FLOWER = "1.41.0"
PFL = "0.6.0"


def flower_environment(folder: Path, *, extra: str = "") -> str:
    """Make an environment with Flower in a folder, and return its Python."""
    return _environment(folder, f"flwr[{extra}]=={FLOWER}" if extra else f"flwr=={FLOWER}")


def pfl_environment(folder: Path) -> str:
    """Make an environment with pfl-research in a folder, and return its Python."""
    return _environment(folder, f"pfl=={PFL}")


def why_not(error: Exception, name: str = "Flower") -> str:
    """Return in a line why a framework is left out."""
    reason = getattr(error, "stderr", None) or error
    return f"{name} is left out: {str(reason).strip()[-400:]}"


def _environment(folder: Path, requirement: str) -> str:
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    _output(python, "-m", "pip", "install", "--quiet", requirement)
    packages = _output(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
    behind = [Path(numpy.__file__).parents[1], Path(__file__).parents[1] / "src"]  # found after its own packages
    (Path(packages) / "ours.pth").write_text("".join(f"{path}\n" for path in behind))
    return python


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=900).stdout
