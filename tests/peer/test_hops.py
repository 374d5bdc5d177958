"""The way of one round through the code, as docs/architecture.md tells it, leads through names that are there."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path
from types import ModuleType

import pytest

import eris.coordinate
import eris.peer

ROOT = Path(__file__).parents[2]
HOP = re.compile(r"^\| (\d+) \| `([\w/]+)\.py` \| `([\w.]+)` \|", re.MULTILINE)
BEFORE = {"Simulated": 22, "In the network": 30}  # hops of version 0.1


def hops(way: str) -> list[tuple[str, str, str]]:
    """Return number, module and name of each hop that the page tells of one way through a round."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.split(f"**{way}**")[1].split("\n\n")[1]
    return HOP.findall(table)


@pytest.mark.parametrize("way", ["By messages", "Simulated", "In the network"])
def test_every_hop_of_a_round_is_where_the_page_says(way: str) -> None:
    found = hops(way)
    assert [int(number) for number, _, _ in found] == list(range(1, len(found) + 1))
    assert 10 <= len(found) < BEFORE.get(way, 22)
    for _, module, name in found:
        reduce(getattr, name.split("."), importlib.import_module(f"eris.{module.replace('/', '.')}"))


@pytest.mark.parametrize("package", [eris.peer, eris.coordinate])
def test_the_package_says_what_every_file_is_for(package: ModuleType) -> None:
    said = set(re.findall(r"\w+", package.__doc__ or ""))
    files = {path.stem for path in Path(str(package.__file__)).parent.glob("*.py")} - {"__init__"}
    assert files <= said
