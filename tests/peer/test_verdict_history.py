"""A coordinator that is away for a while is asked again: nobody who was behind ends because of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eris.errors import Reason, Refused, RunStopped
from eris.peer import verdict_history
from eris.peer.aggregator_client import ShardResult
from eris.peer.inbox import Inbox
from eris.peer.node import Node
from eris.peer.node_settings import NodeSettings
from eris.peer.rosters import RosterCache
from eris.peer.verdict_history import VerdictHistory
from eris.protocol.messages import Published, Withheld
from eris.protocol.roster import Roster
from eris.transport.bulletins import Bulletin, RunEnd, VerdictBulletin
from eris.transport.calls import (
    BookRequest,
    FetchRequest,
    PlayedRound,
    RosterAnswer,
    RosterRequest,
    RoundsAnswer,
    RoundsRequest,
)
from eris.transport.identity import Refusal
from eris.transport.link import LinkClosed, LinkError, LinkRefused, LinkTimeout
from tests.peer.town import settings, simulated, town
from tests.protocol.test_rounds import world

AWAY = LinkClosed("the coordinator is not available", clean=False)
SLOW = LinkTimeout("deadline", "the coordinator did not answer in time")


class Client:
    """Fails as told, then answers."""

    def __init__(
        self, *failures: LinkError, rounds: tuple[PlayedRound, ...] = (), roster: Roster | None = None
    ) -> None:
        self._failures, self._rounds, self._roster = list(failures), rounds, roster

    def fetch(self, request: FetchRequest, answer: type) -> object:
        if self._failures:
            raise self._failures.pop(0)
        if isinstance(request, RosterRequest):
            assert self._roster is not None
            return RosterAnswer(None, self._roster.encoded)
        assert request == RoundsRequest(0)
        return RoundsAnswer(self._rounds)


class Believer:
    """Takes every seal for good: what seals are worth is tested in tests/adversary."""

    def vouches_for(self, document: object, seal: object) -> object:
        return seal

    def compare(self, seal: object) -> None: ...


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict_history, "_PAUSE", 0.01)


def asking(client: Client, patience: float = 300.0) -> tuple[VerdictHistory, Inbox]:
    inbox = Inbox(NodeSettings("amber", patience=patience))
    return VerdictHistory(client, inbox, RosterCache(client), Believer()), inbox  # type: ignore[arg-type]


def test_it_is_asked_until_it_answers() -> None:
    made = world(2)
    made.settle(rounds=1)
    [(plan, verdict)] = made.verdicts
    rounds = (PlayedRound(plan.encoded, verdict.encoded),)
    [(told, followed)] = asking(Client(AWAY, SLOW, AWAY, rounds=rounds, roster=Roster(plan.roster)))[0].since(0)
    assert (told.digest, followed.digest) == (plan.digest, verdict.digest)


def test_it_is_waited_for_no_longer_than_for_its_bulletins() -> None:
    began = time.monotonic()
    with pytest.raises(RunStopped, match="no word"):
        asking(Client(*[AWAY] * 1000), patience=0.2)[0].since(0)
    assert time.monotonic() - began < 5.0


def test_who_is_refused_or_hears_of_the_end_waits_no_longer() -> None:
    refused = LinkRefused(Refusal.REVOKED, by_us=False)
    with pytest.raises(LinkRefused):
        asking(Client(refused))[0].since(0)
    asks, inbox = asking(Client(*[AWAY] * 1000))
    inbox.failure = refused
    with pytest.raises(LinkRefused):
        asks.since(0)
    asks, inbox = asking(Client(*[AWAY] * 1000))
    inbox.put(RunEnd("interrupted"))
    with pytest.raises(LinkClosed):
        asks.since(0)


def away_at_first(fetch: Callable[..., Any], what: type = RoundsRequest) -> Callable[..., Any]:
    """Let every other question of a kind fail, the first one to begin with."""
    asked: list[FetchRequest] = []

    def sometimes(request: FetchRequest, answer: type) -> Any:
        if isinstance(request, what):
            asked.append(request)
            if len(asked) % 2:
                raise AWAY
        return fetch(request, answer)

    return sometimes


def misses_the_verdict(node: Node) -> None:
    """Let a peer hear the next plan and not the verdict before it."""
    take_up = node._news.take_up

    def heard(bulletin: Bulletin) -> None:
        if not isinstance(bulletin, VerdictBulletin) or bulletin.verdict.round != 1:
            take_up(bulletin)

    node._news.take_up = heard  # type: ignore[method-assign]


def misses_a_shard(node: Node) -> None:
    """Let a peer get one committed shard from nobody, so that it must catch up."""
    take = node._player._take

    def taken(result: ShardResult) -> None:
        if result.shard != 0 or node.member.round != 1:
            take(result)
        else:
            node.member.withhold(Withheld(result.plan, 0, result.peer, Reason.GONE))

    def fetch(*_: object) -> Published:
        raise Refused(Reason.WRONG_DIGEST, "this peer has no shard with this hash")

    node._player._take = taken  # type: ignore[method-assign]
    for peer in range(2):
        node.links.clients.to(peer).fetch = fetch  # type: ignore[method-assign]


@pytest.mark.parametrize("misses", [misses_the_verdict, misses_a_shard])
def test_a_peer_that_is_behind_outlasts_a_coordinator_that_is_away(
    tmp_path: Path, misses: Callable[[Node], None]
) -> None:
    config = settings("members=3", "rounds=3")
    with town(tmp_path, config) as place:
        nodes = [place.node(name) for name in place.names]
        misses(nodes[2])
        nodes[2].line.control.fetch = away_at_first(nodes[2].line.control.fetch)  # type: ignore[method-assign]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
    assert {node.model_digest() for node in nodes} == {simulated(config, tmp_path / "run")}


def test_a_peer_that_has_no_roster_asks_again_and_plays_every_round(tmp_path: Path) -> None:
    config = settings("members=3", "rounds=3")
    with town(tmp_path / "town", config) as place:
        nodes = [place.node(name) for name in place.names]
        nodes[2].line.control.fetch = away_at_first(nodes[2].line.control.fetch, RosterRequest)  # type: ignore[method-assign]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
    assert {node.model_digest() for node in nodes} == {simulated(config, tmp_path / "run")}


def test_a_peer_that_has_no_address_book_in_the_first_round_lives_on(tmp_path: Path) -> None:
    with town(tmp_path, settings("members=3", "rounds=3"), round=2.0) as place:
        nodes = [place.node(name) for name in place.names]
        nodes[2].line.control.fetch = away_at_first(nodes[2].line.control.fetch, BookRequest)  # type: ignore[method-assign]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
    assert len({node.model_digest() for node in nodes}) == 1


def test_a_peer_without_a_reference_outlasts_a_coordinator_that_does_not_hear_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with town(tmp_path, settings("members=3", method="eris+dsc")) as place:
        node = place.node("amber")
        node.member.forget_reference()
        place.close()
        node._admission.ask_for_reference()
    assert node.member.lost_reference
    assert "could not be told" in caplog.text
