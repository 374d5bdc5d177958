"""Write a CycloneDX software bill of materials beside the wheel: what users install with eris, pinned and with hashes.

$ make wheel
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dependencies import RUNTIME_EXTRAS, closure
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Hand the lines of requirements.lock that users need to cyclonedx-py."""
    wanted = closure("eris-fl", frozenset(RUNTIME_EXTRAS))
    entries = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    kept = [line for line in entries if canonicalize_name(line.partition("==")[0]) in wanted]
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / "eris-fl.cdx.json"
    out.parent.mkdir(exist_ok=True)
    words = ("requirements", "-", "--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library")
    options = ("--output-reproducible", "--output-format", "JSON", "--output-file", str(out))
    subprocess.run(
        [sys.executable, "-W", "ignore:The Component", "-m", "cyclonedx_py", *words, *options],
        input="\n".join(kept),
        text=True,
        check=True,
    )


if __name__ == "__main__":
    main()
