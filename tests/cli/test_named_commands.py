"""Whatever an error, a docstring or a page calls a command is one, with the options it is given there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.main import get_group

import eris
from eris import cli

ROOT = Path(__file__).parents[2]
SOURCE = Path(eris.__file__).parent
TEXTS = [*sorted(SOURCE.rglob("*.py")), *sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]

NAMED = re.compile(r"(?<!no )`eris ([a-z][^`\n]*)`")  # "no `eris …`": a page may say what there is not
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@pytest.fixture(scope="module")
def commands() -> Any:
    app = Typer()
    for verb in cli._verbs():
        verb.register(app)
    return get_group(app)


def wrong_in(text: str, commands: Any) -> list[str]:
    """Return the commands that a text names and that eris would not understand."""
    wrong = []
    for line in NAMED.findall(text):
        command, words = commands, line.split()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        known = {"--help", *(option for each in command.params for option in (*each.opts, *each.secondary_opts))}
        of_a_group = hasattr(command, "commands")  # `eris audit` is fine, `eris audit nothing` is not
        if command is commands or (of_a_group and words) or not {*OPTION.findall(line)} <= known:
            wrong.append(line)
    return wrong


def test_a_command_that_is_not_there_is_found(commands: Any) -> None:
    text = "`eris resume`, `eris run --show-model`, `eris audit nothing`, `eris run --resume DIR`, `eris audit`"
    assert wrong_in(text, commands) == ["resume", "run --show-model", "audit nothing"]


def test_every_command_that_is_named_somewhere_is_there(commands: Any) -> None:
    found = {path.name: wrong for path in TEXTS if (wrong := wrong_in(path.read_text(encoding="utf-8"), commands))}
    assert found == {}
