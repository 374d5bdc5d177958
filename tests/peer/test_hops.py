"""The way of one round through the code, as docs/architecture.md tells it, leads through names that are there."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path

import eris.peer

ROOT = Path(__file__).parents[2]
HOP = re.compile(r"^\| \d+ \| `peer/(\w+)\.py` \| `([\w.]+)` \|", re.MULTILINE)


def test_every_hop_of_a_real_round_is_where_the_page_says() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    hops = HOP.findall(page)
    assert len(hops) >= 10
    for module, name in hops:
        reduce(getattr, name.split("."), importlib.import_module(f"eris.peer.{module}"))


def test_the_package_says_what_every_file_is_for() -> None:
    said = set(re.findall(r"\w+", eris.peer.__doc__ or ""))
    files = {path.stem for path in Path(eris.peer.__file__).parent.glob("*.py")} - {"__init__"}
    assert files <= said
