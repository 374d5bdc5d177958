"""Every page that tells people to type something: its programs and commands, in order, in one empty folder a page.

Six pages have tests of their own, because more is known of what they must come to: run.md, first-hour.md, extend.md,
bring-your-own.md, flower.md and three-machines.md. A block that cannot be run says why in a comment above it
(tests/test_docs.py holds it to that).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import ROOT, Block, blocks

ELSEWHERE = {"run.md", "first-hour.md", "extend.md", "bring-your-own.md", "three-machines.md", "flower.md"}
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if page.name not in ELSEWHERE and any(block.runs for block in blocks(page))
)


def script_of(block: Block, number: int, folder: Path) -> str:
    """Return the lines of shell that do what a block shows."""
    if block.language == "python":
        (folder / f"program-{number}.py").write_text(block.text, encoding="utf-8")
        return f"python program-{number}.py"
    return "\n".join(line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ "))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_works_as_it_stands(page: Path, tmp_path: Path) -> None:
    script = "set -euo pipefail\n" + "\n".join(
        script_of(block, number, tmp_path) for number, block in enumerate(blocks(page)) if block.runs
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, script + done.stdout + done.stderr
