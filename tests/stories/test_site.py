"""The documentation site: built strictly and without any network, and asking for nothing from one when it is read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALONE = ["unshare", "--user", "--map-root-user", "--net"]


def alone() -> list[str]:
    """Return what makes a command run without any network, where the system allows it."""
    try:
        allowed = subprocess.run([*ALONE, "true"], capture_output=True, timeout=60).returncode == 0
    except FileNotFoundError:
        return []
    return ALONE if allowed else []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [*alone(), sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return folder


def test_every_page_of_the_menu_is_there(site: Path) -> None:
    menu = re.findall(r": ([\w/.-]+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(menu) > 25
    for page in menu:
        assert (site / f"{page}.html").is_file(), page


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", text):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), f"{page.name}: {tag}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def test_commands_settings_and_names_are_those_of_the_code(site: Path) -> None:
    import eris
    from eris.config import Config

    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for words in ("eris run", "eris certs sign", "--max-share", "--replay"):
        assert words in commands
    settings = (site / "reference" / "configuration.html").read_text(encoding="utf-8")
    for name, field in Config.model_fields.items():
        assert f">[{name}]<" in settings.replace("&#91;", "[") or f"<code>{name}</code>" in settings, (name, field)
    names = (site / "reference" / "python.html").read_text(encoding="utf-8")
    for name in eris.__all__:
        assert re.search(rf'id="eris[\w.]*\.{name}"', names), name


def test_examples_of_docstrings_are_code_and_not_quotations(site: Path) -> None:
    names = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert 'class="language-pycon' in names
    assert "<blockquote>" not in names
