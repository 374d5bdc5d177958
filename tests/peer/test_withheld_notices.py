"""A peer reports on a round only after the coordinator has heard which of its own shards it withholds, and why."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from eris.errors import Reason, Refused
from eris.peer.reporter import Reporter
from eris.peer.shared_aggregator import SharedAggregator
from eris.peer.shared_unmasker import SharedUnmasker
from eris.protocol.messages import Published, Withheld
from eris.protocol.unmasker import Cut
from tests.peer.test_course import Changed, fail
from tests.peer.town import Town, settings, town

SLOW = 0.4  # seconds that a notice is on its way: all reports would be there before it


@pytest.fixture(autouse=True)
def _slow_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Reporter.tell

    def tell(self: Reporter, outcome: Published | Withheld, round: int) -> None:
        if isinstance(outcome, Withheld):
            time.sleep(SLOW)
        told(self, outcome, round)

    monkeypatch.setattr(Reporter, "tell", tell)


def played(place: Town, **tasks: Any) -> Town:
    for name in place.names:
        place.start(name, place.node(name, task=tasks.get(name)).run)
    place.wait()
    return place


def too_few(folder: Path) -> set[str]:
    with town(folder, settings("members=3", "rounds=1", "server.min_contributors=3")) as place:
        played(place, cedar=Changed(place.task(), train=fail))
        return set(place.coordinator.coordinator.lost_reasons)


def test_a_withheld_shard_is_lost_for_the_reason_that_its_aggregator_gives(tmp_path: Path) -> None:
    assert too_few(tmp_path) == {"too-few"}


def test_a_report_that_does_not_wait_loses_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: without the wait, the test above fails."""
    monkeypatch.setattr(SharedAggregator, "wait_until_told", lambda self, deadline: None)
    assert "not published" in too_few(tmp_path)


def test_a_shard_that_was_not_unmasked_gets_another_pair_however_late_its_notice_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: SharedUnmasker, cut: Cut, deadline: float) -> None:
        raise Refused(Reason.WRONG_SHARD, "this peer is not an unmasker in this round", shard=cut.shard)

    monkeypatch.setattr(SharedUnmasker, "unmask", refuse)
    config = settings("members=4", "aggregators=4", "rounds=1", method="eris+masked")
    with town(tmp_path, config, round=4.0) as place:
        clock = played(place).coordinator.coordinator
        assert set(clock.lost_reasons) == {Reason.UNMASK.value}
        assert set(clock._moved) == {0, 1, 2, 3}
