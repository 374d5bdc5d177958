"""What `eris leave` and `eris stop` say before they do it."""

from __future__ import annotations

from typing import Any

import pytest

from eris.cli.networking.outlook import ask, if_one_leaves, if_stopped
from eris.errors import ConfigError
from eris.transport.calls import ControlTraffic, Overview, PeerStatus

NAMES = ("amber", "birch", "cedar", "dogwood")


def status(here: str = "abcd", names: tuple[str, ...] = NAMES, **changes: Any) -> Overview:
    peers = tuple(PeerStatus(name, name[0] in here, False, "", None) for name in names)
    given = {"started": True, "ended": "", **changes}
    return Overview(
        "town", "", "", 0.0, ControlTraffic(), "run", 4, 9, waiting="", lost={}, disagreements=(), peers=peers, **given
    )


def test_who_leaves_hears_whether_the_run_goes_on_waits_or_ends() -> None:
    assert if_one_leaves(status(), "cedar", 3) == (
        "the run continues without cedar from the next round, with amber, birch, dogwood"
    )
    assert if_one_leaves(status("abc"), "cedar", 3) == (
        "the run waits without cedar: 2 are present, 3 are needed; away: dogwood"
    )
    assert if_one_leaves(status("abc", NAMES[:3]), "cedar", 3).startswith(
        "the run ends for all members after 4 of 9 rounds (exit code 14): 2 members are left"
    )
    assert "has not begun" in if_one_leaves(status(started=False), "cedar", 3)
    assert "has ended already" in if_one_leaves(status(ended="finished"), "cedar", 3)


def test_who_stops_a_run_hears_for_whom() -> None:
    assert if_stopped(status("ab")).startswith("the run ends after 4 of 9 rounds for amber, birch (exit code 24)")
    assert if_stopped(status("", started=False)).startswith(
        "the run ends before its first round and no peer is present"
    )
    assert if_stopped(status(ended="finished")) == "the run has ended already (finished)"


def test_where_nobody_can_be_asked_only_yes_will_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(ConfigError, match="give --yes"):
        ask("the run ends", yes=False)
    ask("the run ends", yes=True)
    assert capsys.readouterr().out == "the run ends\n" * 2
