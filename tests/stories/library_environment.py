"""An environment with other people's libraries, made once for a checkout: they have pins of their own, and are heavy.

It lies beside what this one has installed (`.venv/libraries-…`), finds numpy, torch and all else there, and is used
again as long as the list below stays the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARIES = (
    "flwr==1.41.0", "jax==0.10.2", "lightning==2.6.6", "mlflow==3.17.2", "scikit-learn==1.9.1", "wandb==0.31.0",
)  # fmt: skip
KEPT = ("torch==2.13.0", "numpy==2.4.6")  # no other is wanted


def library_environment() -> Path:
    """Return the folder of programs of that environment; skip where the libraries cannot be installed."""
    name = hashlib.sha256(" ".join((*LIBRARIES, *KEPT, sys.version)).encode()).hexdigest()[:12]
    home = Path(sys.prefix) / f"libraries-{name}"
    with (Path(sys.prefix) / f"libraries-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be at it
        if not (home / "ready").exists():
            shutil.rmtree(home, ignore_errors=True)
            _make(home)
    return home / "bin"


def environment(programs: Path) -> dict[str, str]:
    """Return the variables for a program of it, with this checkout's eris."""
    path = f"{programs}:{os.environ['PATH']}"
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "PATH": path, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0",
    }  # fmt: skip


def _make(home: Path) -> None:
    venv.create(home, with_pip=True)
    (packages,) = home.glob("lib/python3*/site-packages")
    here = [*site.getsitepackages(), *(path for path in sys.path if path.endswith("site-packages"))]
    (packages / "beside.pth").write_text("\n".join(dict.fromkeys(here)), encoding="utf-8")  # found after its own
    (home / "kept.txt").write_text("\n".join(KEPT), encoding="utf-8")
    command = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", home / "kept.txt", *LIBRARIES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        pytest.skip(f"the libraries cannot be installed here: {done.stderr.strip()[-300:]}")
    program = home / "bin" / "eris"
    program.write_text(f'#!/bin/sh\nexec "{home}/bin/python" -m eris "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    (home / "ready").touch()
