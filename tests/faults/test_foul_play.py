"""Peers and coordinators that play foul over a real network: proved and excluded, or refused by whoever is meant."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.errors import CheckpointError, ConfigError, FloorError
from eris.peer.framing import HashQuestion
from eris.peer.node import Node
from eris.peer.shard_server import ShardServer
from eris.protocol.coordinator import Coordinator
from eris.protocol.floor import Floor
from eris.protocol.member import Member, Snapshot
from eris.protocol.messages import Published, payload_hash
from eris.transport.link import Link, LinkError
from tests.peer.town import Town, settings, town

CHEAT = 1  # birch


def double_dealing(node: Node) -> None:
    """Let a peer publish one mean to some members and another one, as well signed, to the rest."""
    honest, served = ShardServer._send, []

    def send(server: ShardServer, link: Link, question: Any, found: Published, deadline: float) -> None:
        if server is not node.links.server or isinstance(question, HashQuestion):
            return honest(server, link, question, found, deadline)
        served.append(question)
        if len(served) % 2:
            return honest(server, link, question, found, deadline)
        values = found.values + np.float32(1)
        manifest = replace(found.manifest, hash=payload_hash(values, found.buffers), signature="")
        signed = replace(manifest, signature=node._book.sign(manifest.signed_bytes))
        return honest(server, link, question, Published(signed, values, found.buffers), deadline)

    ShardServer._send = send  # type: ignore[method-assign]


def test_an_aggregator_that_signs_two_means_is_proved_and_excluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings("members=5", "aggregators=3", "rounds=4")
    monkeypatch.setattr(ShardServer, "_send", ShardServer._send)  # put back afterwards
    with town(tmp_path, config, round=20.0) as place:
        nodes = [place.node(name) for name in place.names]
        double_dealing(nodes[CHEAT])
        for name, node in zip(place.names, nodes, strict=True):
            place.start(name, node.run)
        place.wait()
        coordinator = place.coordinator.coordinator
        assert coordinator is not None
        proof = coordinator.excluded[CHEAT]
        assert proof.aggregator == CHEAT
        assert proof.first.digest != proof.second.digest
        honest = [node for number, node in enumerate(nodes) if number != CHEAT]
        assert len({node.model_digest() for node in honest}) == 1
        assert coordinator.lost_reasons["equivocation"] == 1


@pytest.mark.parametrize("friend", ["every shard", "fewer aggregators"])
def test_a_coordinator_that_lets_a_friend_see_more_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, friend: str
) -> None:
    config = settings("members=4", "aggregators=4", "rounds=3")
    owners = (0, 0, 0, 0) if friend == "every shard" else (0, 1, 0, 1)
    monkeypatch.setattr(Coordinator, "_assignment", lambda self, present: (owners, ()))
    with town(tmp_path, config, round=5.0) as place:
        floor = Floor(min_aggregators=4, max_share=0.3, min_contributors=1)
        nodes = {name: place.node(name, floor=floor) for name in place.names}
        for name, node in nodes.items():
            place.start(name, node.run)
        for name in place.names:
            with pytest.raises(FloorError):
                place.wait(name)
        assert all(account.sent == 0 for node in nodes.values() for account in node.links.clients.accounts(place.names))


def test_a_peer_whose_model_is_another_one_is_told_so(tmp_path: Path) -> None:
    config = settings("members=4", "aggregators=2", "rounds=6")
    with town(tmp_path, config, checkpoint_every=2) as place:
        nodes = {name: place.node(name) for name in place.names}
        odd = nodes["dogwood"]

        def spoil(point: str, facts: dict[str, Any]) -> None:
            if (point, facts.get("round")) == ("stepped", 2):
                odd.member.replica.model += np.float32(1)  # as a poisoned snapshot would

        odd.fault_points.listener = spoil
        for name, node in nodes.items():
            place.start(name, node.run)
        with pytest.raises(CheckpointError, match="not the one that most others hold"):
            place.wait("dogwood")
        place.wait("amber", "birch", "cedar")
        assert len({nodes[name].model_digest() for name in ("amber", "birch", "cedar")}) == 1


def test_a_poisoned_snapshot_is_noticed_in_the_first_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint is near: that somebody came back is reason enough for all to say what they hold."""
    config = settings("members=4", "aggregators=2", "rounds=100000")
    honest = Member.snapshot

    def poisoned(member: Member) -> Snapshot:
        found = honest(member)
        return Snapshot(found.round, found.chain, {**found.state, "model": found.state["model"] + np.float32(1)})

    monkeypatch.setattr(Member, "snapshot", poisoned)
    with town(tmp_path, config, checkpoint_every=1000) as place:
        gone = threading.Event()
        nodes = {name: place.node(name) for name in place.names}
        nodes["dogwood"].fault_points.listener = lambda point, facts: gone.set() if facts.get("round") == 3 else None
        for name, node in nodes.items():
            place.start(name, node.run)
        assert gone.wait(60.0)
        nodes["dogwood"].stop("enough")
        place.wait("dogwood")
        back = place.node("dogwood")
        place.start("dogwood", back.run)
        with pytest.raises(CheckpointError, match="not the one that most others hold"):
            place.wait("dogwood")
        place.coordinator._run.end("enough")
        place.wait("amber", "birch", "cedar")
        assert back.member.round > 3


def test_ends_that_a_person_must_mend_have_a_sentence(tmp_path: Path) -> None:
    place = Town(tmp_path, settings("members=3", "aggregators=3"))
    taken = place.coordinator.address
    with pytest.raises(ConfigError, match="cannot listen"):
        place.node("amber", listen=taken).run()
    with pytest.raises(ConfigError, match="another process works in this folder"):
        place.open_coordinator()
    place.close()
    with pytest.raises(LinkError, match="cannot connect"):
        place.node("birch", wait=0.5).run()


def test_a_peer_that_is_started_twice_is_told_so(tmp_path: Path) -> None:
    with town(tmp_path, settings("members=3", "aggregators=3")) as place:
        place.start("amber", place.session("amber").run)  # the others are awaited
        while not (tmp_path / "peers" / "amber" / "lock").exists():
            time.sleep(0.05)
        with pytest.raises(ConfigError, match="another process works in this folder"):
            place.session("amber").run()
        place.coordinator._run.end("enough")
        place.wait("amber")
        again = place.session("amber")
        place.start("amber", again.run)
        place.wait("amber")


def test_a_folder_that_cannot_be_written_ends_with_a_sentence(tmp_path: Path) -> None:
    from eris.atomic_file import write_atomically

    with pytest.raises(CheckpointError, match="cannot be written"):
        write_atomically(tmp_path / "not there" / "checkpoint", b"x")
    assert list(tmp_path.iterdir()) == []
