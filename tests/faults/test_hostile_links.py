"""Damaged streams over real TLS, slow ones, and links without end: the aggregator goes on as if nobody were there."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eris.cli.networking.allocator import keep_few_arenas
from eris.peer import framing
from eris.peer import shard_server as server_module
from eris.peer.shard_server import ShardServer
from eris.transport.authority import Authority
from eris.transport.credentials import Credentials
from eris.transport.link import LinkError, LinkLimits
from eris.transport.link_listener import LinkListener
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import dial
from eris.wire.frame import HEADER_BYTES, LONGEST_CHUNK
from tests.faults.scene import HOSTILE, Scene, name, number, spoken_by_member
from tests.faults.script import mutate
from tests.faults.test_hostile_bytes import ROOM, peak_memory

LIMITS = LinkLimits(HEADER_BYTES, LONGEST_CHUNK, connect=20.0, handshake=20.0, idle=1.0)


class Gate:
    """An aggregator that really listens, and credentials of everybody."""

    def __init__(self, folder: Path) -> None:
        authority = Authority.create(folder / "ca", "gate")
        self._folders = {peer: authority.issue(name(peer)) for peer in range(4)}
        self.scene = Scene(cut=3600.0, patience=5.0)  # one round, however long the attack
        self.listener = LinkListener(self.credentials(0), ("127.0.0.1", 0), limits=LIMITS)
        snapshot = self.scene.member(0).snapshot
        self.server = ShardServer(self.scene.shared, peer_of=number, find=lambda digest: None, snapshot=snapshot)
        self.server.serve(self.listener)

    def credentials(self, peer: int) -> Credentials:
        return Credentials(self._folders[peer])

    def link(self, peer: int) -> StreamLink:
        return dial(self.listener.address, self.credentials(peer), expected=name(0), limits=LIMITS)

    def contribute(self, peer: int) -> None:
        """Do what an honest member does."""
        deadline = time.monotonic() + 5.0
        with self.link(peer) as link:
            framing.send_upload(link, self.scene.uploads[peer], self.scene.recipe, deadline)
            framing.receive_receipt(link, deadline)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setattr(server_module, "_BEHIND", 0.0)
    logging.getLogger("eris").setLevel(logging.CRITICAL)
    made = Gate(tmp_path)
    yield made
    made.server.close()
    logging.getLogger("eris").setLevel(logging.NOTSET)


def throw(gate: Gate, data: bytes) -> None:
    """Send bytes as they are, through the encryption and past the frames, and hear what comes until the end."""
    from eris.transport.patience import Patience

    link = gate.link(HOSTILE)
    patience = Patience(deadline=time.monotonic() + 5.0)
    with contextlib.suppress(LinkError):
        link._stream.write(memoryview(data), patience)
        link._stream.flush(patience)
    link._stream.finish()
    link._stream.wake()
    link.close()


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_damaged_streams_over_tls_cost_nobody_else_anything(gate: Gate, count: int) -> None:
    chance, honest, threads = random.Random(11), spoken_by_member(gate.scene), threading.active_count()
    keep_few_arenas()  # as every peer's process does
    for attempt in range(count):
        throw(gate, mutate(bytes(honest.data), honest.frames, chance))
        if attempt % 100 == 50:
            gate.contribute(1)  # again and again: the same receipt
        if attempt == count // 10:
            before = peak_memory()
    assert peak_memory() - before < ROOM
    for peer in (1, 2):
        gate.contribute(peer)
    manifest = gate.scene.conclude(0).manifest
    assert set(manifest.contributors) >= {0, 1, 2}
    until = time.monotonic() + 5.0
    while len(gate.server._every_link()) > 1 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(gate.server._every_link()) <= 1
    assert threading.active_count() < threads + 5


def test_a_slow_loris_holds_nothing_but_its_own_link(gate: Gate) -> None:
    link = gate.link(HOSTILE)
    honest = spoken_by_member(gate.scene)
    trickle = threading.Thread(target=_trickle, args=(link, bytes(honest.data)), daemon=True)
    trickle.start()
    began = time.monotonic()
    for peer in (1, 2):
        gate.contribute(peer)
    assert time.monotonic() - began < 2.0
    trickle.join(10.0)
    link.close()
    assert not trickle.is_alive()  # less than 64 KiB in the idle time: the link was ended
    assert gate.scene.conclude(0).manifest.contributors == (0, 1, 2)


def _trickle(link: StreamLink, data: bytes) -> None:
    from eris.transport.patience import Patience

    with contextlib.suppress(LinkError):
        for place in range(len(data)):
            patience = Patience(deadline=time.monotonic() + 5.0)
            link._stream.write(memoryview(data[place : place + 1]), patience)
            link._stream.flush(patience)
            time.sleep(0.05)


def test_a_peer_has_one_link_however_often_it_dials(gate: Gate) -> None:
    links = [gate.link(HOSTILE) for _ in range(30)]
    gate.contribute(1)
    until = time.monotonic() + 5.0
    while len(gate.server._every_link()) > 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert len([link for link in gate.server._every_link() if link.peer.name == name(HOSTILE)]) == 1
    for link in links:
        link.close()


def test_who_waits_for_a_shard_and_dials_again_is_served_at_once(gate: Gate) -> None:
    threads, links = threading.active_count(), []
    for _ in range(20):
        link = gate.link(HOSTILE)
        framing.ask_for_shard(link, gate.scene.plan, 0, time.monotonic() + 5.0)  # which nobody can have yet
        links.append(link)
    until = time.monotonic() + 2.0
    while len(gate.server._every_link()) > 1 and time.monotonic() < until:
        time.sleep(0.02)
    assert len(gate.server._every_link()) == 1  # the others' threads do not wait for the shard any more
    assert threading.active_count() <= threads + 4  # the loop, and who keeps a thread to spare
    gate.contribute(HOSTILE)
    for link in links:
        link.close()
