"""docs/notebooks as stored: what a reader sees without running them names the attack that eris has now."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from eris.audit.attacks.by_name import ATTACKS, STRONGEST

BOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
_ONE_SCORE = {name for name, attack in ATTACKS.usable().items() if len(getattr(attack, "weights", ())) == 1}
SURPASSED = set(ATTACKS) - _ONE_SCORE - {STRONGEST}  # single scores bear names, such as loss, that any text may hold
RESULT = re.compile(r"\d%\s+([\w-]+):?\s+(?:AUC )?[01]\.\d\d\b")  # a share, the attack, its AUC


def printed(path: Path) -> Iterator[str]:
    """Yield the texts of the stored outputs, without the codes of a terminal."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            text = "".join(output.get("text", output.get("data", {}).get("text/plain", [])))
            yield re.sub(r"\x1b\[[\d;]*m", "", text)


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_no_stored_output_is_of_an_attack_that_was_surpassed(path: Path) -> None:
    said = "\n".join(printed(path))
    assert not SURPASSED & set(re.findall(r"[\w-]+", said))
    assert set(RESULT.findall(said)) <= {STRONGEST, "paper"}


def test_what_an_aggregator_learns_is_shown_by_the_strongest_attack() -> None:
    [path] = [path for path in BOOKS if path.stem == "what-does-an-aggregator-learn"]
    assert RESULT.findall("\n".join(printed(path))) == 3 * [STRONGEST]  # a server, a shard, a masked shard
