"""What everybody must hear comes across the wire as it was said, and what is no bulletin is noticed and passed over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eris.errors import Refused, RunStopped
from eris.peer.inbox import Inbox
from eris.peer.node_settings import NodeSettings
from eris.protocol.messages import Wanted
from eris.protocol.roster import Roster
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.transport.bulletins import (
    Bulletin,
    PeerGone,
    PeerIdle,
    PlanBulletin,
    Revoked,
    RoundsDone,
    RunCourse,
    RunEnd,
    VerdictBulletin,
    decode_bulletin,
    plan_order,
)
from eris.wire.schema import encode
from tests.peer.town import settings, simulated, town
from tests.protocol.documents import PLAN, VERDICT
from tests.protocol.test_rounds import world


@pytest.fixture(scope="module")
def pairs() -> list[tuple[RoundPlan, Verdict]]:
    made = world(2)
    made.settle(rounds=2)
    return list(made.verdicts)


def bulletins(pairs: list[tuple[RoundPlan, Verdict]]) -> list[Bulletin]:
    plan, verdict = pairs[0]
    return [
        PlanBulletin(plan, "ab" * 32, (1, 3), "board-2"),
        VerdictBulletin(verdict),
        PeerGone(2),
        PeerIdle(1),
        RunEnd("finished"),
        Revoked(b"-----BEGIN X509 CRL-----"),
        RoundsDone(plan, "board-2"),
        RunCourse("waiting", "for amber"),
    ]


def known(pairs: list[tuple[RoundPlan, Verdict]]) -> Callable[[str], Roster]:
    return {Roster(plan.roster).digest: Roster(plan.roster) for plan, _ in pairs}.__getitem__


def test_every_bulletin_is_read_as_it_was_written(pairs: list[tuple[RoundPlan, Verdict]]) -> None:
    for bulletin in bulletins(pairs):
        assert decode_bulletin(encode(bulletin), known(pairs)) == bulletin


def test_golden_bytes() -> None:
    """Peers of this version, on other machines, come to the same ones; plans and verdicts have goldens of their own."""
    assert [encode(b).hex() for b in (PeerGone(2), PeerIdle(300), RunEnd("finished"), Revoked(b"list"))] == [
        "e503924202",
        "e5039243cd012c",
        "e5039244a866696e6973686564",
        "e5039245c4046c697374",
    ]
    plan, verdict = encode(PlanBulletin(PLAN, "ab" * 32, (1, 3), "b-2")), encode(VerdictBulletin(VERDICT))
    assert plan.hex() == f"e5039640c5{len(PLAN.encoded):04x}{PLAN.encoded.hex()}c420{'ab' * 32}c4010aa3622d32c0"
    assert verdict.hex() == f"e5039341c5{len(VERDICT.encoded):04x}{VERDICT.encoded.hex()}c0"


@pytest.mark.parametrize(
    "bulletin",
    [b"", b"rumour", encode(PeerGone(2))[:-1], encode(RunEnd("x")) + b"x", encode(Wanted()), b'{"how":"finished"}'],
)
def test_what_is_no_bulletin_is_not_read(bulletin: bytes) -> None:
    with pytest.raises(Refused):
        decode_bulletin(bulletin, Roster)
    assert plan_order(bulletin) is None


def test_plans_are_put_in_order_before_they_are_read(pairs: list[tuple[RoundPlan, Verdict]]) -> None:
    plan = pairs[1][0]
    assert plan_order(encode(PlanBulletin(plan))) == plan.when
    assert plan_order(encode(RunEnd("finished"))) is None


def test_the_inbox_looks_ahead(pairs: list[tuple[RoundPlan, Verdict]]) -> None:
    (first, verdict), (second, _) = pairs
    inbox = Inbox(NodeSettings("amber"))
    assert not inbox.is_over(first)
    inbox.put(VerdictBulletin(verdict))
    assert inbox.is_over(first)
    assert not inbox.is_over(second)
    assert not inbox.is_stale(first)
    inbox.put(PlanBulletin(second))
    assert inbox.is_stale(first)
    assert not inbox.is_stale(second)
    assert inbox.next(0) == VerdictBulletin(verdict)
    inbox.put_back(RunEnd("enough"))
    assert inbox.has_end()
    assert [inbox.next(0), inbox.next(0)] == [RunEnd("enough"), PlanBulletin(second)]
    inbox.heard = time.monotonic() - 301.0
    with pytest.raises(RunStopped, match="no word from the coordinator for 300 s"):
        inbox.next(0)


def test_a_rumour_costs_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "eris.peer.news")
    config = settings("members=3", "rounds=2")
    with town(tmp_path / "town", config) as place:
        place.coordinator.board.post(b"a rumour")
        place.coordinator.board.post(encode(VerdictBulletin(VERDICT))[:-1])
        nodes = [place.node(name) for name in place.names]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
    assert {node.model_digest() for node in nodes} == {simulated(config, tmp_path / "run")}
    assert caplog.text.count("that is not a bulletin") == 2 * len(nodes)
