"""Every exit code has its paragraph, every error its code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eris import errors
from eris.cli.exit_code import ExitCode, code_of
from eris.errors import ConfigError, ErisError, FloorError, MissingExtra, Reason, Refused, RunStopped, TaskError
from eris.transport.identity import Refusal
from eris.transport.link import LinkClosed, LinkRefused, LinkTimeout

PAGE = (Path(__file__).parents[2] / "docs" / "exit-codes.md").read_text(encoding="utf-8")


def test_the_page_has_a_paragraph_for_each_and_no_other() -> None:
    sections = re.findall(r"^### (\d+) ([A-Z ]+)\n\n(.+)", PAGE, re.MULTILINE)
    assert {int(number): name.replace(" ", "_") for number, name, _ in sections} == {c.value: c.name for c in ExitCode}
    assert all(len(text) > 40 for _, _, text in sections)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), ExitCode.USAGE),
        (LinkClosed("x", clean=False), ExitCode.UNREACHABLE),
        (LinkTimeout("connect", "x"), ExitCode.UNREACHABLE),
        (LinkRefused(Refusal.REVOKED, by_us=False), ExitCode.TURNED_AWAY),
        (Refused(Reason.WRONG_RUN, "x"), ExitCode.REFUSED),
        (FloorError("x"), ExitCode.BELOW_FLOOR),
        (RunStopped("x"), ExitCode.STOPPED),
        (TaskError("x"), ExitCode.TASK_FAILED),
        (MissingExtra("torch", "torch", "x"), ExitCode.MISSING_EXTRA),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ErisError) else value.name,
)
def test_errors_have_their_codes(error: ErisError, code: ExitCode) -> None:
    assert code_of(error) is code


def test_only_wrong_settings_and_inputs_share_the_code_of_usage() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__ if name not in ("Reason", "ErisError", "MissingExtra")]
    made = [kind(Reason.LATE, "x") if kind is Refused else kind("x") for kind in kinds]
    usage = {type(error).__name__ for error in made if code_of(error) is ExitCode.USAGE}
    assert usage == {"ConfigError", "InputError", "ModelError", "PlanError", "SpecError"}
