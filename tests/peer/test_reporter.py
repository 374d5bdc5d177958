"""What a peer says of a round in which it sends nothing: nobody waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eris.errors import Refused
from eris.events import VerdictWritten
from eris.peer.node import Node
from eris.peer.preflight import first_plan
from eris.protocol.messages import Idle
from eris.protocol.verdict import Verdict
from eris.transport.bulletins import PeerIdle
from eris.transport.identity import PeerIdentity
from eris.transport.link import LinkClosed
from eris.wire.schema import encode
from tests.peer.town import Town, after_rounds, settings, town

ROUND = 40.0  # seconds; aggregators would wait for three quarters of it


def breaks(node: Node) -> None:
    """Let this peer's training code fail in round 1."""
    train = node.training.task.train

    def sometimes(*arguments: Any, round: int, **options: Any) -> Any:
        if round == 1:
            raise ValueError("no data today")
        return train(*arguments, round=round, **options)

    node.training.task.train = sometimes  # type: ignore[method-assign]


def loses_its_reference(node: Node) -> None:
    """Let this peer come into round 1 without a reference, and the coordinator not hear that it asks for one."""
    begin, join, asked = node.member.begin, node.line.control.join, []

    def forgetful(plan: Any) -> None:
        begin(plan)
        if plan.round == 1:
            node.member.forget_reference()

    def away(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments)
        if len(asked) == 2:
            raise LinkClosed("the coordinator is not available", clean=False)
        return join(*arguments, **options)

    node.member.begin = forgetful  # type: ignore[method-assign]
    node.line.control.join = away  # type: ignore[method-assign]


def play(place: Town, fault: Callable[[Node], None]) -> list[Verdict]:
    """Let all play, birch with the fault, and return the verdicts."""
    verdicts: list[VerdictWritten] = []
    for name in place.names:
        node = place.node(name, listeners=after_rounds(verdicts.append) if name == "amber" else ())
        if name == "birch":
            fault(node)
        place.start(name, node.run)
    place.wait()
    return [event.verdict for event in verdicts]


@pytest.mark.parametrize(("fault", "method"), [(breaks, "eris"), (loses_its_reference, "eris+dsc")])
def test_nobody_waits_for_who_sends_nothing(tmp_path: Path, fault: Callable[[Node], None], method: str) -> None:
    with town(tmp_path, settings("members=3", "rounds=4", method=method), round=ROUND) as place:
        began = time.monotonic()
        verdicts = play(place, fault)
        assert time.monotonic() - began < ROUND / 2
    without = [verdict.round for verdict in verdicts if verdict.missing(1)]
    assert without[0] == 1
    assert 3 not in without  # it is back
    assert not any(verdict.lost_shards for verdict in verdicts)


def test_all_hear_once_of_who_sits_out_and_only_of_the_round_in_flight(tmp_path: Path) -> None:
    with town(tmp_path, settings("members=3", "rounds=1")) as place:
        node, birch = place.node("birch"), PeerIdentity("birch")
        with pytest.raises(Refused, match="not begun"):
            place.coordinator.report(birch, {"idle": first_plan(place.federation(), node.recipe).digest})
        plans: list[str] = []

        def hold(plan: Any) -> Any:
            plans.append(plan.digest)
            for digest in ("ff" * 32, plan.digest, plan.digest):
                place.coordinator.report(birch, Idle(digest))
            return train(plan)

        train = node.training.train
        node.training.train = hold  # type: ignore[method-assign]
        for name in ("amber", "cedar"):
            place.start(name, place.node(name).run)
        place.start("birch", node.run)
        place.wait()
        told = [posted.bulletin for posted in place.coordinator.board.after(-1, seconds=0)]
    assert len(plans) == 1
    assert told.count(encode(PeerIdle(1))) == 1
