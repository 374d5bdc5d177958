"""Write requirements.lock: every pin of constraints.txt with the SHA-256 of the file that was tested.

    $ make lock

The files are those of CPython 3.11 on Linux x86-64, torch as its CPU build; `pip install --require-hashes -r
requirements.lock` then installs these bytes or nothing. pip takes no hashes for the checkout itself, so eris comes
afterwards, with `pip install --no-deps .`; and constraints.txt stays without hashes, because one hash in it would turn
the check on for the checkout too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
HEAD = "# Made from constraints.txt by `make lock`, for CPython 3.11 on Linux x86-64 (torch: the CPU build).\n"


def main() -> None:
    """Ask pip which file it would install for every pin, and write down its hash."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        words = ("install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--report", report.name)
        subprocess.run([sys.executable, "-m", "pip", *words, "-r", str(ROOT / "constraints.txt")], check=True)
        chosen = json.loads(Path(report.name).read_text(encoding="utf-8"))["install"]
    lines = {
        canonicalize_name(each["metadata"]["name"]): _line(each["metadata"], each["download_info"]) for each in chosen
    }
    (ROOT / "requirements.lock").write_text(HEAD + "".join(lines[name] for name in sorted(lines)), encoding="utf-8")


def _line(about: dict[str, str], file: dict[str, dict[str, dict[str, str]]]) -> str:
    version = about["version"].partition("+")[0]  # the hash says which build
    return f"{about['name']}=={version} \\\n    --hash=sha256:{file['archive_info']['hashes']['sha256']}\n"


if __name__ == "__main__":
    main()
