"""Every state a run can be in, with its reason, on every surface that shows one."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.console import Console

from eris.cli.live_table import live_table
from eris.cli.networking.event_lines import event_line, read_event_line
from eris.cli.networking.live_view import LiveView, PeerLines
from eris.cli.status import _show
from eris.events import Event, RunCourseChanged, RunEnded, RunStarted, RunState
from eris.peer.gauges import PeerGauges
from eris.transport.calls import ControlTraffic, Overview
from eris.web.live_facts import LiveFacts
from eris.wire.schema import plain
from tests.peer.test_gauges import scraped

ENDS = {RunState.FINISHED: "finished", RunState.STOPPED: "stopped by olive", RunState.FAILED: "no word of cedar"}
WHY = "because of birch"


def course(state: RunState) -> Event:
    """What a peer tells when a run comes to be in a state."""
    if state in ENDS:
        return RunEnded(3, state is RunState.FINISHED, "ab", 1.0, ENDS[state])
    return RunCourseChanged(state, WHY)


def printed(say: Callable[[Console], object]) -> str:
    console = Console(file=io.StringIO(), width=200)
    say(console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def terminal(state: RunState) -> str:
    """`eris join`: a line."""

    def say(console: Console) -> None:
        lines = PeerLines("amber", console)
        lines(RunCourseChanged(RunState.WAITING, "for all"))
        lines(course(state))

    return printed(say)


def table(state: RunState) -> str:
    """`eris up`: the row of a peer."""

    def say(console: Console) -> None:
        view = LiveView({"amber": 7}, 9, console)
        view("amber", course(state))
        console.print(view._drawn())

    return printed(say)


def facts(state: RunState) -> LiveFacts:
    found = LiveFacts("town", ["amber"])
    found(RunStarted("run", "eris", 9, 0, 3, 3, 100, "–"))
    found(course(state))
    return found


def page(state: RunState) -> str:
    """The live page: what its stream carries."""
    return json.dumps(facts(state).whole()["run"])


def watch(state: RunState) -> str:
    """`eris watch`, and a live table in a terminal."""
    return printed(lambda console: console.print(live_table(facts(state).whole())))


def lines(state: RunState) -> str:
    """`--json`: an event that reads back as it was."""
    event = course(state)
    line = event_line(event, "amber")
    assert read_event_line(line) == ("amber", event)
    return f"{line} {event.state}"  # type: ignore[attr-defined]


def status(state: RunState) -> str:
    """`eris status`, for people and as JSON."""
    said = Overview(
        "town", "ab" * 32, "0.2", 1.0, ControlTraffic(0, 0, 0), "run", 1, 9, True, ENDS.get(state, ""), "",
        lost={}, disagreements=(), peers=(), ways=(), state=state.value, why=ENDS.get(state, WHY), expires=0.0,
    )  # fmt: skip
    answer: dict[str, Any] = {
        **plain(said),
        "coordinator": "coordinator",
        "coordinator_at": "localhost:7443",
        "term": 0,
    }
    assert (answer["state"], answer["why"]) == (state.value, ENDS.get(state, WHY))
    return printed(lambda console: _show(answer, console)) + str(answer["state"])


@pytest.fixture
def gauges() -> Iterator[PeerGauges]:
    made = PeerGauges("town", "amber", 0)
    yield made
    made.close()


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("surface", [table, page, watch, lines, status])
def test_a_state_is_shown_with_its_reason(surface: Callable[[RunState], str], state: RunState) -> None:
    shown = surface(state)
    why = ENDS.get(state, WHY)
    assert state.value in shown or (surface is table and why in shown)
    assert why in shown or surface is table  # a row has room for a word


@pytest.mark.parametrize("state", [RunState.TRAINING, RunState.WAITING, RunState.DEGRADED])
def test_a_peers_terminal_says_it_when_it_changes(state: RunState) -> None:
    assert f"{state}: {WHY}" in terminal(state)


@pytest.mark.parametrize("state", RunState)
def test_prometheus_is_told_one_state_at_a_time(gauges: PeerGauges, state: RunState) -> None:
    gauges(course(state))
    values = {name: value for name, value in scraped(gauges.port).items() if name.startswith("eris_run_state")}
    assert [name for name, value in values.items() if value == 1] == [
        f'eris_run_state{{federation="town",peer="amber",state="{state.value}"}}'
    ]
    assert len(values) == len(RunState)
