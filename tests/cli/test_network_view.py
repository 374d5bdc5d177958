"""What people see while a federation is at work."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from eris.cli.networking.event_lines import SPOKEN, event_line, read_event_line
from eris.cli.networking.live_view import LiveView, PeerLines, facts_of, presence_of
from eris.cli.networking.logs import JsonLines, start_logging
from eris.errors import Reason, Refused
from eris.events import (
    CoordinatorListening,
    Event,
    MemberTrained,
    RoleBytes,
    RoundEnded,
    RoundStarted,
    RoundTraffic,
    RunCourseChanged,
    RunEnded,
    RunStarted,
    VerdictWritten,
)
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import Deadlines, RoundPlan
from eris.protocol.verdict import GENESIS, ShardVerdict, Verdict

START = RunStarted("run", "eris", rounds=4, first_round=0, members=3, aggregators=3, n=10, chain="")
ROUND = RoundEnded(
    1,
    {"train_loss": 0.5, "accuracy": 0.964, "largest_share": 0.3},
    RoundTraffic(RoleBytes(1000, 2000), RoleBytes(500, 250), 1500, float("nan"), 0.25),
    {"round": 0.25},
    lost_shards=1,
)


def verdict() -> VerdictWritten:
    """Return how a round of three ended, with a lost shard and somebody who was late."""
    plan = RoundPlan(
        run="run", epoch=0, round=1, chain=GENESIS, spec="", participants=(0, 1, 2), assignment=(0, 1, 2),
        roster=tuple(RosterEntry(number, f"peer-{number}", 1.0) for number in range(3)), deadlines=Deadlines(1.0, 2.0),
    )  # fmt: skip
    shards = tuple(
        ShardVerdict(shard, shard, "" if shard else "ab" * 32, (0, 1), "" if shard < 2 else "too-few")
        for shard in range(3)
    )
    return VerdictWritten(1, plan, Verdict("run", 0, 1, plan.digest, GENESIS, shards, late=(2,)))


def test_a_round_in_a_line() -> None:
    assert presence_of(verdict()) == "2/3 shards  2/3 peers"
    assert facts_of(ROUND) == "↑ 1.50 kB  ↓ 2.25 kB  250 ms  accuracy 96.4 %"


def test_a_terminal_shows_the_bar_and_every_peer() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, legacy_windows=False)
    with LiveView({"amber": 17, "birch": 18}, 4, console) as view:
        for peer, event in (("amber", START), ("birch", START), ("amber", verdict()), ("amber", ROUND)):
            view(peer, event)
        view.gone("birch")
        console.print(view._drawn())
    shown = screen.getvalue()
    for word in ("round", "2/4", "amber", "17", "training", "birch", "gone", "1.50 kB", "2/3 shards"):
        assert word in shown, word


def test_elsewhere_it_is_a_line_a_round_of_the_first_peer_that_is_there() -> None:
    lines = io.StringIO()
    with LiveView({"amber": 17, "birch": 18}, 4, Console(file=lines, width=120)) as view:
        view("amber", ROUND)
        view("birch", ROUND)
        view.gone("amber")
        view("birch", replace(ROUND, round=2))
        view("coordinator", CoordinatorListening("127.0.0.1:1", "ab"))  # nothing to see
    assert [line.split("  ")[0] for line in lines.getvalue().splitlines()] == ["round 2/4", "round 3/4"]


def test_a_peer_says_where_it_goes_on() -> None:
    said = io.StringIO()
    lines = PeerLines("amber", Console(file=said, width=200))
    for event in (replace(START, first_round=7), verdict(), ROUND):
        lines(event)
    assert "amber is here" in said.getvalue()
    assert "continuing with round 7" in said.getvalue()
    assert "round 2/4  2/3 shards  2/3 peers" in said.getvalue()


@pytest.mark.parametrize("kind", SPOKEN)
def test_what_a_child_says_its_parent_hears(kind: type[Event]) -> None:
    spoken = [
        START,
        RoundStarted(1, (0, 1), (0, 1), model=np.zeros(3, np.float32)),
        MemberTrained(1, 0, 10, 2.0, float("nan"), 0.1),
        verdict(),
        ROUND,
        RunCourseChanged("waiting", "waiting for birch (for 60 s)"),
        RunEnded(2, False, "ab", 1.0, "stopped by birch"),
        CoordinatorListening("127.0.0.1:7443", "ab"),
    ]
    [event] = [event for event in spoken if type(event) is kind]
    line = event_line(event, "amber")
    peer, heard = read_event_line(line)
    assert (peer, type(heard)) == ("amber", kind)
    assert event_line(heard, peer) == line  # but for what has no word in JSON, and the values
    assert 'model"' not in line


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", '{"event": "Sent", "peer": "amber"}', '{"event": "RunEnded", "peer": "a"}']
)
def test_other_lines_of_a_child_are_no_events(line: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        read_event_line(line)


def test_logs_for_machines_say_where_it_happened(capsys) -> None:  # type: ignore[no-untyped-def]
    start_logging(as_json=True, quiet=False, context=lambda: {"run": "r", "round": 4, "peer": "amber"})
    log = logging.getLogger("eris.peer.test")
    try:
        log.warning("a part was refused: %s", Refused(Reason.LATE, "too late", shard=3, round=3))
        try:
            raise ValueError("odd")
        except ValueError:
            log.exception("local training failed")
    finally:
        eris = logging.getLogger("eris")
        eris.handlers.clear()
        eris.propagate = True
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert {key: first[key] for key in ("level", "logger", "run", "round", "shard", "peer")} == {
        "level": "warning", "logger": "eris.peer.test", "run": "r", "round": 3, "shard": 3, "peer": "amber",
    }  # fmt: skip
    assert "ValueError: odd" in second["traceback"]
    assert JsonLines(dict).format(logging.LogRecord("eris", 20, "", 0, "plain", None, None))
