"""Documents that can go stale, held to the repository they describe."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from typer import Typer
from typer.main import get_group

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
names = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@dataclass(frozen=True)
class Block:
    """A piece of a page between fences, and why it is not run, if it says so."""

    language: str
    text: str
    excuse: str

    @property
    def runs(self) -> bool:
        return self.language in ("console", "python") and not self.excuse

    @property
    def commands(self) -> list[str]:
        """The command lines of eris in it."""
        lines = re.sub(r"\\\n\s*", "", self.text).splitlines()
        return [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?eris [a-z]", line)]


def blocks(page: Path) -> list[Block]:
    found = re.findall(
        r"(?:<!-- not run: ([^>]+?) -->\n)?^```(\w*)[^\n]*\n(.*?)^```$",
        page.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    return [Block(language, text, excuse) for excuse, language, text in found]


@names
def test_a_command_that_is_not_run_says_why_and_is_one_that_eris_understands(page: Path) -> None:
    from eris import cli

    app = Typer()
    for verb in cli._verbs():
        verb.register(app)
    for block in blocks(page):
        if not block.commands or block.runs:
            continue
        assert block.excuse or block.language in ("yaml", "ini"), f"{page.name}: {block.commands[0]}"
        for line in block.commands:
            command, words = get_group(app), shlex.split(line, comments=True)[1:]
            while hasattr(command, "commands"):
                name, *words = words
                assert name in command.commands, f"{page.name}: {line}"
                command = command.commands[name]
            command.make_context(name, [word for word in words if word != "&"])


@names
def test_settings_that_a_page_shows_can_be_read(page: Path) -> None:
    for block in blocks(page):
        if block.language == "toml":
            assert tomllib.loads(block.text)
        elif block.language == "yaml":
            assert yaml.safe_load(block.text)


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


def test_every_page_has_its_place_in_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = set(re.findall(r": ([\w/.-]+\.md)$", site, re.MULTILINE))
    made = set(runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]())
    written = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert nav == made | written


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


def test_every_hop_of_a_round_is_where_the_architecture_says() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    hops = re.findall(r"^\| \d+ \| `(.+?)` \| `(.+?)` \|", page, re.MULTILINE)
    assert len(hops) > 20
    for file, name in hops:
        path = ROOT / "src" / "eris" / file
        assert path.exists(), f"docs/architecture.md names {file}"
        for part in name.split("."):
            assert re.search(rf"^\s*(?:def|class) {part}\b", path.read_text(encoding="utf-8"), re.MULTILINE), name


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
