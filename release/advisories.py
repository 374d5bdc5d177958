"""Ask a public database whether anything in requirements.lock has a known advisory.

    $ make advisories

Not part of the tests: the answer depends on the day and on a database out in the world. It ends with 0 if every package
was looked up and none has one, 1 if one has, and 3 if not all could be looked up: silence is no good news.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"


def main() -> int:
    """Look up every package and say what was found."""
    options = ("--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json", "-r", str(LOCK))
    done = subprocess.run([sys.executable, "-m", "pip_audit", *options], capture_output=True, text=True)
    try:
        entries = json.loads(done.stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError):
        print(f"the database of advisories cannot be reached: {done.stderr.strip().splitlines()[-1:]}")
        return 3
    return verdict(entries)


def verdict(entries: list[dict[str, object]]) -> int:
    """Say in words and as an exit code what pip-audit found."""
    found = [entry for entry in entries if entry.get("vulns")]
    for entry in found:
        names = ", ".join(str(each["id"]) for each in entry["vulns"])  # type: ignore[attr-defined]
        print(f"{entry['name']} {entry['version']}: {names}")
    if found:
        return 1
    skipped = [entry for entry in entries if "skip_reason" in entry]
    if skipped:
        print(f"{len(skipped)} of {len(entries)} packages could not be looked up, e.g. {skipped[0]['skip_reason']}")
        return 3
    print(f"none of {len(entries)} packages has a known advisory")
    return 0


if __name__ == "__main__":
    sys.exit(main())
