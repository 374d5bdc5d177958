"""Who is let in, who is given a shard, and what both sides are told."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from eris.errors import FloorError, Reason, Refused
from eris.protocol.floor import Floor
from eris.transport.authority import Authority
from eris.transport.identity import Refusal
from eris.transport.link import LinkClosed, LinkRefused
from tests.peer.town import after_rounds, settings, town

THREE = ["members=3", "aggregators=2", "rounds=2"]


def test_a_member_that_cannot_be_dialled_is_given_no_shard(tmp_path: Path) -> None:
    plans = []
    with town(tmp_path, settings(*THREE)) as place:
        for name in place.names:
            listen = None if name == "amber" else ("127.0.0.1", 0)
            node = place.node(name, listen=listen, listeners=after_rounds(lambda event: plans.append(event.plan)))
            place.start(name, node.run)
        place.wait()
    assert {plan.assignment for plan in plans} == {(1, 2)}
    assert not plans[0].roster[0].can_aggregate


def test_an_address_nobody_can_reach_is_given_no_shard(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plans = []
    with town(tmp_path, settings(*THREE)) as place, caplog.at_level(logging.INFO, logger="eris"):
        for name in place.names:
            advertise = "127.0.0.2" if name == "birch" else "127.0.0.1"
            node = place.node(name, advertise=advertise, listeners=after_rounds(lambda event: plans.append(event.plan)))
            place.start(name, node.run)
        place.wait()
    assert {plan.assignment for plan in plans} == {(0, 2)}
    assert "birch cannot be dialled at 127.0.0.2" in caplog.text  # at the coordinator
    assert "this peer gets no shard" in caplog.text  # at the peer


def test_with_too_few_aggregators_the_run_says_so(tmp_path: Path) -> None:
    with town(tmp_path, settings(*THREE)) as place:
        nodes = [place.node(name, listen=("127.0.0.1", 0) if name == "amber" else None) for name in place.names]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
        assert place.coordinator.wait(5.0) == "2 aggregators are needed, 1 peers can be dialled"


def test_another_file_is_refused_with_the_reason_on_both_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with town(tmp_path, settings(*THREE)) as place, caplog.at_level(logging.WARNING, logger="eris"):
        node = place.node("amber", config=settings(*THREE, "seed=2"))
        with pytest.raises(Refused, match=r"wrong-run.*another FEDERATION\.toml.*use the same file") as refused:
            node.run()
    assert refused.value.reason is Reason.WRONG_RUN
    assert "call from amber.town" in caplog.text
    assert "another FEDERATION.toml" in caplog.text


def test_a_stranger_is_refused(tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other", "town")
    with town(tmp_path / "town", settings(*THREE)) as place:
        node = place.node("amber", credentials=other.issue("amber"), wait=0.0)
        with pytest.raises(LinkRefused) as refused:
            node.run()
        assert refused.value.reason is Refusal.UNKNOWN_CA
        assert place.coordinator.overview().peers[0].here is False


def test_a_peer_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    with town(tmp_path, settings(*THREE)) as place:
        node = place.node("amber", credentials=place.authority.issue("zinnia"), wait=0.0)
        with pytest.raises(Refused, match="zinnia may not call Join: it is not listed") as refused:
            node.run()
    assert refused.value.reason is Reason.NOT_A_MEMBER


def test_a_coordinator_that_is_not_there_is_waited_for_no_longer_than_said(tmp_path: Path) -> None:
    with town(tmp_path, settings(*THREE)) as place:
        node = place.node("amber", wait=0.3)
        place.coordinator.close()
        with pytest.raises(LinkClosed, match="cannot connect"):
            node.run()


def test_a_plan_below_the_floor_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with town(tmp_path, settings(*THREE), round=20.0) as place:
        strict = place.node("cedar", floor=Floor(max_share=0.4, min_contributors=1))
        for name in ("amber", "birch"):
            place.start(name, place.node(name).run)
        place.start("cedar", strict.run)
        with pytest.raises(FloorError, match=r"would see 50\.0% of the update"):
            place.wait("cedar")
        place.wait("amber", "birch")
    assert sum(account.sent for account in strict.links.clients.accounts(place.names)) == 0
