"""A round takes few turns: a receipt leaves with its shard, a plan with its verdict, and nobody dials all at once."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from eris.aggregate.encoding import FixedPoint
from eris.errors import Refused
from eris.peer import aggregator_client, framing
from eris.peer.aggregator_client import AggregatorClient, Delivery, DialTurns
from eris.peer.shard_server import ShardServer
from eris.peer.shared_aggregator import SharedAggregator
from eris.protocol.messages import Upload
from eris.protocol.round_plan import Deadlines, RoundPlan
from eris.transport.bulletins import PlanBulletin, RoundsDone, VerdictBulletin
from eris.transport.calls import PeerRecord, Posted
from eris.transport.link import LinkLimits
from eris.transport.link_listener import LinkListener
from eris.transport.link_loop import LinkLoop
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import Plaintext, dial
from eris.wire import HEADER_BYTES
from eris.wire.schema import peek
from tests.peer.town import settings, town
from tests.protocol.test_rounds import recipe, world
from tests.protocol.world import World, pretend_to_train

LIMITS = LinkLimits(HEADER_BYTES, 1 << 20, connect=20.0, handshake=20.0, idle=20.0)
SHARD = 1  # peer 1 aggregates it


class Aggregating:
    """A round of five members, and a server that aggregates one of its shards."""

    def __init__(self, made: World) -> None:
        assert made.coordinator is not None
        self.recipe, self.plan = made.recipe, made.coordinator.plan(0.0)
        self.uploads = dict(self._trained(made, self.plan))
        self.shared = SharedAggregator(made.peers[1].aggregator, lambda outcome, round: None)
        self.shared.begin(self.plan)
        self.listener = LinkListener(Plaintext("peer-1"), ("127.0.0.1", 0), limits=LIMITS)
        self.server = ShardServer(
            self.shared,
            peer_of=lambda name: int(name.removeprefix("peer-")),
            find=lambda digest: None,
            snapshot=lambda: pytest.fail("nobody asked"),
        )
        self.server.serve(self.listener)

    @staticmethod
    def _trained(made: World, plan: RoundPlan) -> Iterator[tuple[int, Upload]]:
        for number, peer in made.peers.items():
            peer.member.begin(plan)
            result = pretend_to_train(peer.member.start(), number, 0)
            yield number, next(one for one in peer.member.contribute(result) if one.shard == SHARD)

    def send_and_ask(self, member: int) -> StreamLink:
        """Send a member's part and, behind it, ask for the shard, as a peer does."""
        link = dial(self.listener.address, Plaintext(f"peer-{member}"), expected="peer-1", limits=LIMITS)
        until = time.monotonic() + 20.0
        framing.send_upload(link, self.uploads[member], self.recipe, until, more=True)
        framing.ask_for_shard(link, self.plan, SHARD, until)
        return link

    def has_part(self, member: int) -> None:
        """Wait until the part of a member is in."""
        until = time.monotonic() + 20.0
        while member not in self.shared._aggregator._shards[SHARD].headers:
            assert time.monotonic() < until
            time.sleep(0.002)


@contextmanager
def aggregating(contribute: float, *, masked: bool = False) -> Iterator[Aggregating]:
    made = recipe(2)
    if masked:
        made = replace(made, encoding=FixedPoint(), unmaskers=1)
    round = Aggregating(world(2, made=made, deadlines=Deadlines(contribute, 2 * contribute)))
    try:
        yield round
    finally:
        round.server.close()


def test_a_receipt_leaves_together_with_the_shard_that_is_asked_for_behind_it() -> None:
    with aggregating(contribute=1000.0) as round, round.send_and_ask(0) as link:
        round.has_part(0)
        time.sleep(0.2)
        assert link.pull(1) == 0
        for member in (1, 2, 3, 4):
            round.shared.receive(round.uploads[member], member)
        until = time.monotonic() + 20.0
        assert framing.receive_receipt(link, until).member == 0
        published = framing.receive_published(link, round.recipe, until, round=0)
    assert tuple(published.manifest.contributors) == (0, 1, 2, 3, 4)


def test_a_receipt_waits_for_a_twentieth_of_the_time_to_contribute_and_no_longer() -> None:
    with aggregating(contribute=20.0) as round:
        began = time.monotonic()
        with round.send_and_ask(0) as link:
            assert framing.receive_receipt(link, began + 20.0).member == 0
            took = time.monotonic() - began
            assert link.pull(1) == 0  # the shard is not cut: four members are missing
    assert 1.0 <= took < 15.0


def test_the_receipt_of_a_masked_part_is_not_held_back() -> None:
    """It is the member's proof that its pads may be asked for, so no aggregator may sit on it until it has cut."""
    with aggregating(contribute=1000.0, masked=True) as round, round.send_and_ask(0) as link:
        receipt = framing.receive_receipt(link, time.monotonic() + 20.0, aggregator=1)  # held back, it would take 50 s
        assert (receipt.member, receipt.shard, bool(receipt.signature)) == (0, SHARD, True)
        assert link.pull(1) == 0  # nothing is cut yet


def test_a_verdict_and_the_next_plan_are_one_answer(tmp_path: Path) -> None:
    """Whoever waits at the board hears of both at once; the last verdict has no plan behind it."""
    heard, rounds = list[list[type]](), 6
    with town(tmp_path / "town", settings("members=3", f"rounds={rounds}")) as place:
        board, over = place.coordinator.board, threading.Event()

        def listen() -> None:
            known, after = board.identity, -1
            while not over.is_set():
                known, posted = board.read(known, after, seconds=0.5)
                after = max([after, *(one.sequence for one in posted)])
                heard.append(kinds_of(posted))

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        for node in [place.node(name) for name in place.names]:
            place.start(node.settings.name, node.run)
        place.wait()
        over.set()
        listener.join(10.0)
    told = [kinds for kinds in heard if VerdictBulletin in kinds]
    assert told == [[VerdictBulletin, PlanBulletin]] * (rounds - 1) + [[VerdictBulletin, RoundsDone]]


TOLD = (PlanBulletin, VerdictBulletin, RoundsDone)


def kinds_of(posted: list[Posted]) -> list[type]:
    """Return what was posted, of what everybody must hear about rounds."""
    found = list[type]()
    for one, kind in product(posted, TOLD):
        with suppress(Refused):  # it is something else
            peek(kind, one.bulletin)
            found.append(kind)
    return found


class OnePlace:
    """An address book in which everybody has the same address."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    def place(self, peer: int) -> PeerRecord:
        return PeerRecord(peer, f"peer-{peer}", self.address, b"")

    def roster(self) -> dict[str, str]:
        return {}


@contextmanager
def dialling(peers: int, address: tuple[str, int], loop: LinkLoop) -> Iterator[None]:
    """Let one peer dial so many others at once."""
    made, book = world(2), OnePlace(address)
    assert made.coordinator is not None
    plan, dials = made.coordinator.plan(0.0), DialTurns(loop)
    with ExitStack() as stack:
        stack.callback(loop.close)
        for peer in range(peers):
            client = AggregatorClient(
                peer, book, Plaintext("me"), made.recipe, LIMITS, lambda result: None, loop=loop, dials=dials
            )  # type: ignore[arg-type]
            stack.callback(client.close)
            client.go(Delivery(plan, (), (SHARD,), time.monotonic() + 60.0))
        yield


def test_a_peer_dials_four_others_at_a_time() -> None:
    """Nobody answers the greeting, so a dial lasts until the other side hangs up; then comes the next."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=32) as door,
        ExitStack() as open_lines,
        dialling(10, door.getsockname(), LinkLoop()),
    ):
        door.settimeout(20.0)
        lines = [open_lines.enter_context(door.accept()[0]) for _ in range(4)]
        for _ in range(3):
            door.settimeout(0.3)
            with pytest.raises(TimeoutError):
                door.accept()
            lines.pop(0).close()
            door.settimeout(20.0)
            lines.append(open_lines.enter_context(door.accept()[0]))
        assert len(lines) == aggregator_client._DIALS == 4


class Noting(LinkLoop):
    """A loop that notes how long the clients put off their next attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.put_off: dict[object, float] = {}  # by client, the first time

    def at(self, moment: float, work: Any) -> None:
        if getattr(work, "__name__", "") == "_try":
            self.put_off.setdefault(work.__self__, moment - time.monotonic())
        super().at(moment, work)


def test_those_who_are_turned_away_come_back_at_different_times() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        with dialling(30, taken.getsockname(), loop := Noting()):
            until = time.monotonic() + 20.0
            while len(loop.put_off) < 30:
                assert time.monotonic() < until
                time.sleep(0.005)
    first, pause = list(loop.put_off.values()), aggregator_client._FIRST_PAUSE
    assert max(first) - min(first) > pause / 2  # half to one and a half pauses are possible


def test_a_machine_without_threads_delays_a_dial_and_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, dialled, tries = LinkLoop("test"), queue.Queue[int](), list[Any]()
    monkeypatch.setattr(aggregator_client, "_LONGEST_PAUSE", 0.05)
    hand_over = loop.hand_over

    def sometimes(work: Any) -> None:
        tries.append(work)
        if len(tries) <= 2:
            raise RuntimeError("can't start new thread")
        hand_over(work)

    monkeypatch.setattr(loop, "hand_over", sometimes)
    dials = DialTurns(loop)
    try:
        for number in range(6):  # more than are dialled at a time
            loop.post(partial(dials.go, partial(dialled.put, number)))
        assert sorted(dialled.get(timeout=5.0) for _ in range(6)) == list(range(6))
    finally:
        loop.close()
