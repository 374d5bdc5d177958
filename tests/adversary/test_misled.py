"""Parties that mislead: about who is where, what a run begins with, what was received, and how it ends."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.cli.exit_code import ExitCode, code_of_end
from eris.compose import initial_seed
from eris.coordinate.attendance import Attendance
from eris.coordinate.run import CoordinatorRun
from eris.errors import Reason, Refused
from eris.peer.inbox import Inbox
from eris.peer.node import Node
from eris.peer.node_settings import NodeSettings
from eris.peer.shard_server import ShardServer
from eris.protocol.messages import Published
from eris.transport.authority import Authority
from eris.transport.bulletins import PeerIdle, Revoked, RunEnd
from eris.transport.calls import PLACE_PURPOSE, BookAnswer
from eris.transport.credentials import Credentials
from eris.wire.frame import Header
from eris.wire.schema import encode
from tests.peer.test_start import Elsewhere
from tests.peer.town import Town, after_rounds, settings, simulated, town

CONFIG = settings("members=4", "aggregators=4", "rounds=3", "server.min_contributors=2")
FRIEND, VICTIM = 1, 3  # birch, dogwood


def play(place: Town, **options: Any) -> dict[str, Node]:
    nodes = {name: place.node(name, **options) for name in place.names}
    for name, node in nodes.items():
        place.start(name, node.run)
    return nodes


def told_otherwise(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Let coordinators hand out other address books than they have."""
    honest = Attendance.book

    def book(attendance: Attendance, board: str, edition: int) -> BookAnswer:
        answer = honest(attendance, board, edition)
        return replace(answer, records=change(answer.records))

    patch.setattr(Attendance, "book", book)


def test_prevented_a_friend_in_another_peers_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevented: a book that gives the friend's address and certificate under somebody else's number sends it nothing.

    The floor counts shards by number. Believed, the friend would have received its own shard and the victim's.
    """

    def swapped(records: Any) -> Any:
        friend = next((record for record in records if record.peer == FRIEND), None)
        return tuple(replace(friend, peer=VICTIM) if r.peer == VICTIM and friend else r for r in records)

    told_otherwise(monkeypatch, swapped)
    received: set[tuple[str, int]] = set()
    honest = ShardServer._take

    def take(server: ShardServer, link: Any, first: Header) -> None:
        received.add((names[server], first.shard))
        honest(server, link, first)

    monkeypatch.setattr(ShardServer, "_take", take)
    with town(tmp_path, CONFIG, round=4.0, connect=1.0) as place:
        nodes = {name: place.node(name) for name in place.names}
        names = {node.links.server: name for name, node in nodes.items()}
        for name, node in nodes.items():
            place.start(name, node.run)
        place.wait(*[name for name in place.names if name != place.names[VICTIM]])
    assert {shard for name, shard in received if name == place.names[FRIEND]} == {FRIEND}


@pytest.mark.parametrize("lie", ["another address", "an address it has left", "a relay"])
def test_prevented_a_coordinator_that_has_members_knock_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevented: a member dials no place that its peer did not sign, or has replaced; what it would send stays here."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        place_of_it = elsewhere.getsockname()
        threading.Thread(target=_listen, args=(elsewhere, heard), daemon=True).start()

        def lied(record: Any) -> Any:
            if lie == "a relay":
                return replace(record, address=None, relays=(place_of_it,))
            if lie == "another address":
                return replace(record, address=place_of_it)
            old = replace(record, address=place_of_it, counter=record.counter - 1)
            signed = victim.sign(PLACE_PURPOSE, encode(old.place(digest)))  # it was there once, and said so
            return replace(old, signature=signed.hex())

        def records(told: Any) -> Any:
            if lie != "an address it has left":
                return tuple(lied(r) if r.peer == VICTIM else r for r in told)
            return told  # first the truth, or nobody could know that it was replaced

        told_otherwise(monkeypatch, records)
        with town(tmp_path, CONFIG, round=4.0, connect=1.0) as place:
            victim, digest = Credentials(place.credentials[place.names[VICTIM]]), place.federation().digest
            nodes = play(place)
            place.wait()
            assert place.coordinator.coordinator is not None
            if lie == "an address it has left":
                book = nodes[place.names[FRIEND]]._book
                book._records[VICTIM] = lied(book._records[VICTIM])
                with pytest.raises(Refused, match="has replaced since"):
                    book.place(VICTIM)
            else:
                assert sum(place.coordinator.coordinator.lost_reasons.values()) >= 1
                assert "did not sign" in caplog.text
    assert not heard


def _listen(server: socket.socket, heard: list[bytes]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        connection.settimeout(0.5)
        data = b""
        try:
            while chunk := connection.recv(1 << 16):
                data += chunk
        except OSError:
            pass
        if data:  # a coordinator that looks whether a port is open says nothing
            heard.append(data)
        connection.close()


def test_prevented_a_first_model_that_a_friend_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevented: a coordinator names the first model, its friend hands it out; nobody trains on what one peer has."""
    trained: dict[str, list[float]] = {}
    with town(tmp_path, CONFIG, round=6.0) as place:
        friend, usual = place.names[FRIEND], place.task().initial(initial_seed(CONFIG.seed))
        nodes = {
            name: place.node(name, task=Watched(place.task(), 7.0 if name == friend else 0.0, usual, trained, name))
            for name in place.names
        }
        monkeypatch.setattr(CoordinatorRun, "_initial", lambda run, plan: nodes[friend]._admission._initial)
        nodes[friend]._catch_up.snapshot = nodes[friend].member.snapshot  # type: ignore[method-assign]
        for name, node in nodes.items():
            place.start(name, node.run)
        for name in place.names:
            if name != friend:  # where round 0 was over before one had asked all, it goes on from its own model
                with contextlib.suppress(Refused):
                    place.wait(name)
        refused = [error for name, error in place.failures.items() if name != friend]
    assert refused
    assert all(isinstance(error, Refused) and error.reason is Reason.WRONG_DIGEST for error in refused)
    assert all("1 of 4 peers have (more than half must)" in str(error) for error in refused)
    assert all(far < 3.0 for name, distances in trained.items() if name != friend for far in distances)


class Watched(Elsewhere):
    """A task that notes how far from the usual first model it is asked to train."""

    def __init__(self, task: Any, off: float, usual: Any, trained: dict[str, list[float]], name: str) -> None:
        super().__init__(task, off)
        self._usual, self._trained, self._name = usual, trained, name

    def train(self, member: int, model: Any, *arguments: Any, **options: Any) -> Any:
        if options["round"] == 0:  # whoever misses rounds takes a snapshot later: see "Neither" in the threat model
            self._trained.setdefault(self._name, []).append(float(np.abs(model - self._usual).max()))
        return self._task.train(member, model, *arguments, **options)


def test_prevented_a_false_conflict_that_would_cost_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevented: who sent one part only does not believe that there was another, and keeps its reference.

    Believed, all members would have lost theirs in every round, and sat out every second one.
    """
    config = settings("members=4", "aggregators=4", "rounds=6", "server.min_contributors=2", method="eris+dsc")
    with town(tmp_path / "town", config) as place:
        nodes = {name: place.node(name) for name in place.names}
        liar = nodes[place.names[FRIEND]]
        honest = liar.links.aggregator.filled

        def filled(*given: Any) -> Any:
            if honest(*given) is None:
                return None
            plan = liar.links.aggregator.plan
            if plan is not None and plan.round == 0:  # this it may say: who was just started may have sent before
                return honest(*given)
            raise Refused(Reason.CONFLICT, "you sent another one before")

        liar.links.aggregator.filled = filled  # type: ignore[method-assign]
        for name, node in nodes.items():
            place.start(name, node.run)
        place.wait()
        coordinator = place.coordinator.coordinator
        assert coordinator is not None
        assert coordinator.reference_epoch == 0
        assert {node.member.reference_epoch for node in nodes.values()} == {0}
    assert len({node.model_digest() for node in nodes.values()}) == 1
    assert "claims to hold another part of ours of shard 1, which we never sent" in caplog.text


def test_detected_an_aggregator_that_leaves_a_member_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Detected by whom it harms: it has a receipt, and its log says so. Receipts are not signed: nobody is excluded."""
    caplog.set_level(logging.ERROR)
    with town(tmp_path, CONFIG) as place:
        nodes = {name: place.node(name) for name in place.names}
        liar = nodes[place.names[FRIEND]]
        role = liar.links.aggregator._aggregator
        honest = role._cut

        def cut(shard: Any, plan: Any) -> Any:
            outcome = honest(shard, plan)
            if not isinstance(outcome, Published):
                return outcome
            others = tuple(peer for peer in outcome.manifest.contributors if peer != VICTIM)
            c = float(role.recipe.scale(plan, others))
            manifest = replace(outcome.manifest, contributors=others, c=c, signature="")
            signed = replace(manifest, signature=liar._book.sign(manifest.signed_bytes))
            return Published(signed, outcome.values, outcome.buffers)

        role._cut = cut  # type: ignore[method-assign]
        for name, node in nodes.items():
            place.start(name, node.run)
        place.wait()
    assert f"peer {FRIEND} gave a receipt for our part of shard {FRIEND}, and left it out" in caplog.text


def test_prevented_revocations_that_the_ca_did_not_sign(tmp_path: Path) -> None:
    """Prevented: a list of another CA, or an older one, changes nothing."""
    stranger = Authority.create(tmp_path / "other", "town")
    for name in ("amber", "birch"):
        stranger.issue(name)
        stranger.revoke(name)
    false = (tmp_path / "other" / "revoked.pem").read_bytes()
    with town(tmp_path / "town", CONFIG) as place:
        older = (tmp_path / "town" / "ca" / "revoked.pem").read_bytes()

        def lie(event: Any) -> None:
            for data in (false, older):
                place.coordinator._run._post(Revoked(data))

        nodes = [place.node(name, listeners=after_rounds(lie) if name == "cedar" else ()) for name in place.names]
        for name, node in zip(place.names, nodes, strict=True):
            place.start(name, node.run)
        place.wait()
        assert {node.credentials.revocations.number for node in nodes} == {1}
    assert {node.model_digest() for node in nodes} == {simulated(CONFIG, tmp_path / "run")}


def test_prevented_an_end_that_is_called_the_finish(tmp_path: Path) -> None:
    """Prevented: a coordinator can end a run, but not have anybody take what there is for the result."""
    with town(tmp_path, CONFIG) as place:

        def lie(event: Any) -> None:
            place.coordinator._run._post(RunEnd("finished"))

        for name in place.names:
            session = place.session(name, listeners=after_rounds(lie) if name == "cedar" else ())
            place.start(name, session.run)
        place.wait()
        summaries = [
            json.loads((tmp_path / "peers" / name / "summary.json").read_text(encoding="utf-8")) for name in place.names
        ]
    early = [summary for summary in summaries if summary["rounds"] < CONFIG.rounds]
    assert early
    for summary in early:
        assert (summary["finished"], summary["state"]) == (False, "failed")
        assert f"this peer has {summary['rounds']} of 3 rounds" in summary["ended"]
        assert code_of_end(summary["ended"]) is not ExitCode.FINISHED


def test_prevented_a_coordinator_that_never_stops_talking() -> None:
    """Prevented: what waits to be taken up is bounded; the peer ends by name instead of filling its memory."""
    inbox = Inbox(NodeSettings("amber"))
    for _ in range(10_000):
        inbox.put(PeerIdle(1))
    assert inbox.failure is None
    for _ in range(10_000):
        inbox.put(PeerIdle(1))
    with pytest.raises(Refused, match="10,000 bulletins are waiting, and the coordinator keeps sending"):
        inbox.next(0)
