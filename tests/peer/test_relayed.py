"""Peers that open no port: they wait at relays and dial through proxies, and come to the same model."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from eris.peer.node import Node
from eris.transport.credentials import Credentials
from eris.transport.link import LinkClosed
from eris.transport.relay import RelayServer
from tests.peer.town import Town, after_rounds, settings, simulated, town
from tests.transport.proxies import connect_proxy

LOCAL = ("127.0.0.1", 0)
FIVE = settings("members=5", "aggregators=5", "rounds=6")


def relay_of(place: Town) -> RelayServer:
    return RelayServer(Credentials(place.authority.issue("relay")), LOCAL, listed=[*place.names, "coordinator"])


def play(place: Town, **options: Any) -> dict[str, Node]:
    nodes = {name: place.node(name, listen=None, **options) for name in place.names}
    for name, node in nodes.items():
        place.start(name, node.run)
    place.wait(seconds=120.0)
    return nodes


def assigned(verdicts: list[Any]) -> set[int]:
    return {peer for event in verdicts for peer in event.plan.assignment}


def lost(verdicts: list[Any]) -> int:
    return sum(len(event.verdict.lost_shards) for event in verdicts)


def test_five_peers_behind_a_relay_come_to_the_model_of_the_simulator(tmp_path: Path) -> None:
    verdicts: list[Any] = []
    seen: list[Any] = []
    with town(tmp_path / "town", FIVE) as place, relay_of(place) as relay:

        def look(event: Any) -> None:
            verdicts.append(event)
            if event.plan.round == 2:
                seen.append(place.coordinator.overview())

        nodes = play(place, relays=(relay.address,), listeners=after_rounds(look))
        assert relay.carried > 0
    assert {node.model_digest() for node in nodes.values()} == {simulated(FIVE, tmp_path / "run")}
    assert assigned(verdicts) == {0, 1, 2, 3, 4}
    assert lost(verdicts) == 0
    assert seen[0].ways == (f"relay 127.0.0.1:{relay.address[1]}",)
    assert [peer.way for peer in seen[0].peers] == [0] * 5


def test_a_relay_that_dies_costs_what_its_links_cost(tmp_path: Path) -> None:
    verdicts: list[Any] = []
    with town(tmp_path / "town", FIVE) as place, ExitStack() as stack:
        first, second = (stack.enter_context(relay_of(place)) for _ in range(2))

        def end_one(event: Any) -> None:
            verdicts.append(event)
            if event.plan.round == 1:
                first.close()

        nodes = play(place, relays=(first.address, second.address), listeners=after_rounds(end_one))
        assert second.carried > 0
    assert {node.member.round for node in nodes.values()} == {6}
    assert {node.model_digest() for node in nodes.values()} == {simulated(FIVE, tmp_path / "run")}
    assert lost(verdicts) == 0


def test_a_relay_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    with town(tmp_path / "town", FIVE) as place, relay_of(place) as relay:
        gone = relay_of(place)
        gone.close()
        nodes = play(place, relays=(gone.address, relay.address))
    assert {node.model_digest() for node in nodes.values()} == {simulated(FIVE, tmp_path / "run")}


def test_without_any_relay_a_peer_says_so(tmp_path: Path) -> None:
    with town(tmp_path / "town", FIVE) as place:
        gone = relay_of(place)
        gone.close()
        node = place.node("amber", listen=None, relays=(gone.address,), wait=0.5)
        with pytest.raises(LinkClosed, match=r"no relay accepts this peer: .*cannot connect"):
            node.run()


def test_everything_that_is_dialled_goes_through_the_proxy(tmp_path: Path) -> None:
    with town(tmp_path / "town", FIVE) as place, relay_of(place) as relay, connect_proxy() as (proxy, asked):
        nodes = play(place, relays=(relay.address,), proxy=proxy)
        ports = {int(target.rsplit(":", 1)[1]) for target in asked}
        assert ports == {place.coordinator.address[1], relay.address[1]}
    assert {node.model_digest() for node in nodes.values()} == {simulated(FIVE, tmp_path / "run")}


def test_a_proxy_with_a_password(tmp_path: Path) -> None:
    three = settings("members=3", "aggregators=3", "rounds=2")
    proxied = connect_proxy(authorization="Basic YW5uYTpwYXNzIHdvcmQ=")
    with town(tmp_path / "town", three) as place, relay_of(place) as relay, proxied as (proxy, asked):
        play(place, relays=(relay.address,), proxy=proxy)
        assert asked
