"""What people see while a federation is at work."""

from __future__ import annotations

import io
import json
import logging

from rich.console import Console

from eris.cli.networking.live_view import LiveView, PeerLines, facts_of
from eris.cli.networking.logs import JsonLines, start_logging
from eris.errors import Reason, Refused
from eris.peer.federation import Federation
from tests.peer.town import settings

ROUND = {
    "event": "round",
    "peer": "amber",
    "round": 1,
    "train_loss": 0.5,
    "accuracy": 0.964,
    "bytes_up": {"member": 1000, "aggregator": 500},
    "bytes_down": {"member": 2000, "aggregator": 250},
    "lost_shards": 1,
    "late": [2],
    "shards": 3,
    "peers": 3,
    "seconds": {"round": 0.25},
}
START = {"event": "start", "peer": "amber", "round": 0, "resumed": False, "pid": 17}


def test_a_round_in_a_line() -> None:
    assert facts_of(ROUND) == "2/3 shards  2/3 peers  ↑ 1.50 kB  ↓ 2.25 kB  250 ms  accuracy 96.4 %"


def test_a_terminal_shows_the_bar_and_every_peer() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, legacy_windows=False)
    with LiveView(("amber", "birch"), 4, console) as view:
        for notice in (START, {**START, "peer": "birch", "pid": 18}, ROUND):
            view(notice)
        view.gone("birch")
        console.print(view._drawn())
    shown = screen.getvalue()
    for word in ("round", "2/4", "amber", "17", "training", "birch", "gone", "1.50 kB", "2/3 shards"):
        assert word in shown, word


def test_elsewhere_it_is_a_line_a_round_of_the_first_peer_that_is_there() -> None:
    lines = io.StringIO()
    with LiveView(("amber", "birch"), 4, Console(file=lines, width=120)) as view:
        view(ROUND)
        view({**ROUND, "peer": "birch"})
        view.gone("amber")
        view({**ROUND, "peer": "birch", "round": 2})
        view({"event": "listening", "port": 1})  # of the coordinator: nothing to see
    assert [line.split("  ")[0] for line in lines.getvalue().splitlines()] == ["round 2/4", "round 3/4"]


def test_a_peer_says_where_it_goes_on() -> None:
    federation = Federation({"name": "a", "coordinator": "b:1", "peers": ("amber", "birch")}, settings("members=2"))
    said = io.StringIO()
    lines = PeerLines(federation, Console(file=said, width=200))
    lines({**START, "resumed": True, "round": 7})
    lines(ROUND)
    assert "going on with round 7" in said.getvalue()
    assert "round 2/4  2/3 shards" in said.getvalue()


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
