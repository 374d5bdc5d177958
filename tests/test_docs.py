"""Documents that can go stale, held to the repository they describe."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
names = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@names
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name != "index.md":
            assert f"({page.relative_to(ROOT / 'docs')})" in index, f"docs/index.md does not list {page.name}"


def test_the_programs_of_the_readme_run(tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert programs
    for program in programs:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr


def test_make_knows_every_target_that_documents_mention() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for page in PAGES:
        mentioned = set(re.findall(r"(?:`|\$ )make ([a-z][a-z-]*)", page.read_text(encoding="utf-8")))
        assert mentioned <= targets, f"{page.name} mentions make {sorted(mentioned - targets)}"


def test_the_architecture_names_every_part_of_the_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    layers = page[page.index("## The layers") : page.index("## What moves when")]
    parts = {path.stem for path in (ROOT / "src" / "eris").iterdir() if path.suffix in ("", ".py")}
    for part in sorted(parts - {"__init__", "__pycache__", "__main__"}):
        assert f"`{part}`" in layers, f"docs/architecture.md does not say what eris.{part} is for"


def test_every_layer_is_in_the_rule() -> None:
    rule = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for path in (ROOT / "src" / "eris").iterdir():
        if path.suffix in ("", ".py") and not path.stem.startswith("__"):
            assert re.search(rf"\beris\.{path.stem}\b", rule), f"pyproject.toml has no layer for eris.{path.stem}"


def test_the_citation_names_the_paper_and_the_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version
    assert f"version: {version[1]}" in citation
    assert "arXiv:2602.08617" in citation
