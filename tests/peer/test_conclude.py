"""How a peer gets what a verdict committed and it lacks, whoever will not give it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from eris.errors import Reason, Refused, RunStopped
from eris.events import EventStream
from eris.peer.aggregator_client import ShardResult
from eris.peer.catch_up import CatchUp, NoCheckpoints
from eris.peer.inbox import Inbox
from eris.peer.node_settings import NodeSettings
from eris.protocol.member import Member
from eris.protocol.messages import Published, Withheld
from eris.protocol.verdict import Verdict
from eris.transport.link import LinkTimeout
from tests.peer.town import settings, simulated, town
from tests.protocol.test_rounds import world
from tests.protocol.world import World

VICTIM, HOSTILE = 3, 1  # peer 1 aggregates shard 1
Fetch = Callable[[int, str, float], Published]


def lacking(made: World, shard: int) -> Verdict:
    """Play a round in which the victim is not sent one shard, up to its verdict; return that."""
    victim = made.peers[VICTIM].member
    honest = victim.receive
    victim.receive = lambda p: None if p.manifest.shard == shard else honest(p)  # type: ignore[method-assign]
    heard: list[Verdict] = []
    made._conclude = lambda peer, verdict: (  # type: ignore[method-assign]
        heard.append(verdict) if peer == VICTIM else World._conclude(made, peer, verdict)
    )
    made._begin = lambda peer, plan: (  # type: ignore[method-assign]
        None if peer == VICTIM and plan.round else World._begin(made, peer, plan)
    )
    made.settle(rounds=1)
    victim.receive = honest  # type: ignore[method-assign]
    return heard[0]


def following(member: Member, fetch: Fetch, *, connect: float) -> CatchUp:
    """Return what ends the rounds of a member whose clients fetch as told."""
    clients: Any = SimpleNamespace(
        to=lambda peer: SimpleNamespace(fetch=lambda digest, round, deadline: fetch(peer, digest, deadline)),
        book=SimpleNamespace(dialable=lambda but: [peer for peer in range(5) if peer != but]),
    )
    federation: Any = SimpleNamespace(settings=SimpleNamespace(connect=connect), peers=["peer"] * 5)
    nothing, inbox = cast(Any, None), Inbox(NodeSettings("peer-3"))
    return CatchUp(
        federation, member, nothing, nothing, inbox, clients, NoCheckpoints(), EventStream(), nothing, nothing
    )


def silent_until(deadline: float) -> Published:
    time.sleep(max(0.0, deadline - time.monotonic()))
    raise LinkTimeout("deadline", "nothing came")


@pytest.mark.parametrize("silent", [{HOSTILE}, {0, HOSTILE}])
def test_who_stays_silent_uses_up_its_own_time_only(silent: set[int]) -> None:
    made = world(3)
    verdict, asked = lacking(made, shard=1), []

    def fetch(peer: int, digest: str, deadline: float) -> Published:
        asked.append(peer)
        found = made.peers[peer].member.serve(digest)
        if peer in silent or time.monotonic() >= deadline or found is None:
            return silent_until(deadline)
        return found

    member = made.peers[VICTIM].member
    following(member, fetch, connect=0.1).conclude(verdict, time.monotonic() + 0.2)
    assert np.array_equal(member.replica.model, made.peers[0].member.replica.model)
    assert HOSTILE not in asked  # it had the whole round


def test_another_shard_than_the_one_asked_for_is_not_taken_for_it() -> None:
    made = world(3)
    verdict = lacking(made, shard=1)

    def fetch(peer: int, digest: str, deadline: float) -> Published:
        del deadline
        found = made.peers[peer].member.serve(digest if peer else verdict.shards[2].hash)
        assert found is not None
        return found

    member = made.peers[VICTIM].member
    following(member, fetch, connect=0.1).conclude(verdict, time.monotonic() + 0.2)
    assert np.array_equal(member.replica.model, made.peers[0].member.replica.model)


@pytest.mark.parametrize("last", [False, True])
def test_who_gets_a_committed_shard_from_nobody_takes_a_snapshot(
    tmp_path: Path, last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings("members=4", "rounds=3", "data.name=synthetic-clouds", "local.keep_state=true")
    round = 2 if last else 1
    with town(tmp_path, config, connect=5.0) as place:
        sessions = {name: place.session(name) for name in place.names}
        victim = sessions["dogwood"].node
        honest, taken = victim._player._take, threading.Event()

        def take(result: ShardResult) -> None:
            if result.shard != 0 or victim.member.round != round:
                honest(result)
            else:
                victim.member.withhold(Withheld(result.plan, 0, result.peer, Reason.GONE))

        def fetch(*_: object) -> Published:
            raise Refused(Reason.WRONG_DIGEST, "this peer has no shard with this hash")

        restore = victim.member.restore
        monkeypatch.setattr(victim._player, "_take", take)
        monkeypatch.setattr(victim.links.clients.to(0), "fetch", fetch)
        monkeypatch.setattr(victim.links.clients.to(1), "fetch", fetch)
        monkeypatch.setattr(victim.links.clients.to(2), "fetch", fetch)
        monkeypatch.setattr(victim.member, "restore", lambda *a, **o: (restore(*a, **o), taken.set()))
        if last:  # who has finished must not be gone before it is asked
            monkeypatch.setattr(sessions["amber"].node, "close", _after(taken, sessions["amber"].node.close))
        for name, session in sessions.items():
            place.start(name, session.run)
        place.wait()
        digests = {session.node.model_digest() for session in sessions.values()}
        verdicts = (tmp_path / "peers" / "dogwood" / "verdicts.jsonl").read_text().splitlines()
    assert taken.is_set()
    assert digests == {simulated(config, tmp_path / "run")}
    assert len(verdicts) == 3


def _after(event: threading.Event, close: Callable[[], None]) -> Callable[[], None]:
    def wait_and_close() -> None:
        event.wait(5.0)
        close()

    return wait_and_close


def test_who_has_left_and_lacks_a_shard_of_its_last_round_ends_as_one_that_left(tmp_path: Path) -> None:
    with town(tmp_path, settings("members=4", "rounds=6")) as place:
        nodes = {name: place.node(name) for name in place.names}
        leaver, ended = nodes["dogwood"], dict[str, str]()

        def leave(point: str, facts: dict[str, Any]) -> None:
            if (point, facts.get("round")) == ("plan", 1):  # early: the next round is planned without it for certain
                leaver.line.control.leave(for_good=True)
                leaver._catch_up.conclude = in_vain  # type: ignore[method-assign]

        def in_vain(verdict: Verdict, deadline: float, *, stated: str) -> None:
            del deadline, stated
            while leaver._book.number("dogwood") is not None:  # until the others have begun a round without it
                time.sleep(0.01)
            raise RunStopped("no peer can supply a committed shard", round=verdict.round)

        leaver.fault_points.listener = leave
        for name, node in nodes.items():
            place.start(name, lambda name=name, node=node: ended.update({name: node.run()}))
        place.wait()
    assert ended == dict.fromkeys(("amber", "birch", "cedar"), "finished") | {"dogwood": "left"}
