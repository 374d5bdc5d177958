"""docs/threat-model.md: what it calls prevented or detected has a test, and who may call what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "threat-model.md"


def lines_of(section: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [line for line in re.split(r"\n(?=- \*\*)", text.strip()) if line.startswith("- **")]


@pytest.mark.parametrize("section", ["Prevented", "Detected"])
def test_every_line_names_its_test(section: str) -> None:
    lines = lines_of(section)
    assert len(lines) > 5
    for line in lines:
        linked = re.findall(r"\]\(\.\./(tests/[a-z_/]+\.py)\)", line)
        assert linked, line
        assert all((PAGE.parents[1] / test).exists() for test in linked), linked
