"""How a run begins, and how a peer is put out of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.errors import RunStopped
from eris.events import Event, RoundEnded, VerdictWritten, hears
from eris.local.task import Task
from eris.peer.node import Node
from eris.protocol.round_plan import RoundPlan
from eris.seeds import Seed
from eris.transport.bulletins import Bulletin, PlanBulletin
from eris.transport.calls import BookRequest
from eris.transport.credentials import Credentials
from eris.transport.identity import Refusal
from eris.transport.link import LinkClosed, LinkRefused
from tests.peer.town import after_rounds, settings, simulated, town


class Elsewhere:
    """A task on a machine whose library makes another initial model of the same seed."""

    def __init__(self, task: Task, off: float = 1e-3) -> None:
        self._task, self._off = task, off

    def __getattr__(self, name: str) -> object:
        return getattr(self._task, name)

    def initial(self, seed: Seed) -> np.ndarray:
        return self._task.initial(seed) + np.float32(self._off)


def test_a_peer_whose_initial_model_differs_fetches_the_agreed_one(tmp_path: Path) -> None:
    config = settings("members=3", "rounds=2", "model.options={n = 50}")
    with town(tmp_path / "town", config) as place:
        nodes = [place.node("amber", task=Elsewhere(place.task())), place.node("birch"), place.node("cedar")]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
    assert {node.model_digest() for node in nodes} == {simulated(config, tmp_path / "run")}


def test_it_asks_again_who_had_not_heard_of_the_round_yet(tmp_path: Path) -> None:
    config = settings("members=3", "rounds=2", "model.options={n = 50}")
    with town(tmp_path / "town", config) as place:
        nodes = [place.node("amber", task=Elsewhere(place.task())), place.node("birch"), place.node("cedar")]
        for late in nodes[1:]:
            _hear_later(late, 0.4)
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
    assert {node.model_digest() for node in nodes} == {simulated(config, tmp_path / "run")}


def test_a_peer_whose_initial_model_differs_follows_no_verdict_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings("members=3", "rounds=2", "model.options={n = 50}")
    with town(tmp_path / "town", config, connect=1.0, round=3.0) as place:
        nodes = [place.node("amber", task=Elsewhere(place.task())), place.node("birch"), place.node("cedar")]
        monkeypatch.setattr(nodes[0]._catch_up, "fetch_initial", lambda plan, agreed: False)  # the round is over
        monkeypatch.setattr(nodes[0]._catch_up, "_take_snapshot", lambda pairs: False)  # nobody has one
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait("birch", "cedar")
        with pytest.raises(RunStopped, match="no other peer can bring this one up to date"):
            place.wait("amber")


def test_a_peer_that_could_not_fetch_the_address_book_asks_again_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings("members=3", "rounds=2", "model.options={n = 50}")
    verdicts: list[VerdictWritten] = []

    @hears(VerdictWritten)
    def listen(event: Event) -> None:
        assert isinstance(event, VerdictWritten)
        verdicts.append(event)

    with town(tmp_path / "town", config) as place:
        nodes = [
            place.node(name, listeners=[listen] if name == "cedar" else []) for name in ("amber", "birch", "cedar")
        ]
        fetch, lost = nodes[0]._news._client.fetch, []

        def lossy(request: Any, answer: Any, **options: Any) -> Any:
            if isinstance(request, BookRequest) and len(lost) < 2:
                lost.append(request)
                raise LinkClosed("the coordinator failed (CANCELLED)", clean=False)
            return fetch(request, answer, **options)

        monkeypatch.setattr(nodes[0]._news._client, "fetch", lossy)
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
    assert len(lost) == 2
    assert {node.model_digest() for node in nodes} == {simulated(config, tmp_path / "run")}
    assert all(len(shard.contributors) == 3 for event in verdicts for shard in event.verdict.shards)


def _hear_later(node: Node, seconds: float) -> None:
    take_up = node._news.take_up

    def late(bulletin: Bulletin) -> None:
        time.sleep(seconds if isinstance(bulletin, PlanBulletin) else 0.0)
        take_up(bulletin)

    node._news.take_up = late  # type: ignore[method-assign]


def test_two_peers_whose_initial_models_differ_do_not_take_each_others(tmp_path: Path) -> None:
    config = settings("members=5", "rounds=2", "model.options={n = 50}", "server.optimizer=fedadam")
    with town(tmp_path / "town", config) as place:
        odd = [place.node(name, task=Elsewhere(place.task(), off)) for name, off in (("amber", 1e-3), ("birch", 2e-3))]
        nodes = [*odd, *map(place.node, place.names[2:])]
        for node in nodes:  # whoever comes first is asked first
            place.start(node.settings.name, node.run)
            time.sleep(0.1)
        place.wait()
    assert {node.model_digest() for node in nodes} == {simulated(config, tmp_path / "run")}
    assert len({node.member.replica.digest() for node in nodes}) == 1


def test_all_are_at_work_within_three_seconds_of_the_last_join(tmp_path: Path) -> None:
    first_rounds: list[float] = []
    with town(tmp_path, settings("members=4", "rounds=1")) as place:
        nodes = [
            place.node(n, listeners=after_rounds(lambda event: first_rounds.append(time.monotonic())))
            for n in place.names
        ]
        for node in nodes[:-1]:
            place.start(node.settings.name, node.run)
        time.sleep(0.3)
        began = time.monotonic()
        place.start(nodes[-1].settings.name, nodes[-1].run)
        place.wait()
    assert max(first_rounds) - began < 3.0


@pytest.mark.parametrize("method", ["eris", "eris+dsc"])
def test_a_revoked_peer_is_out_from_the_next_round_on(tmp_path: Path, method: str) -> None:
    with town(tmp_path, settings("members=4", "aggregators=3", "rounds=8", method=method)) as place:
        plans: list[RoundPlan] = []

        def note(event: VerdictWritten) -> None:
            plans.append(event.plan)
            if len(plans) == 3:
                place.authority.revoke("dogwood")

        for name in place.names:
            place.start(name, place.node(name, listeners=after_rounds(note) if name == "birch" else ()).run)
        place.wait("amber", "birch", "cedar")
        with pytest.raises(LinkRefused) as turned_away:
            place.wait("dogwood")
        assert place.coordinator.wait(5.0) == "finished"
        assert place.coordinator.overview().peers[3].here is False
        known = Credentials(place.credentials["birch"]).revocations
    assert turned_away.value.reason is Refusal.REVOKED
    members = [len(plan.roster) for plan in plans]
    assert members[:3] == [4, 4, 4]
    assert members[5:] == [3, 3, 3]  # revoked while the fourth round was under way, at the latest
    assert known.number > 1


class Slow(Elsewhere):
    """A task that does not come to an end before it is let go."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.training, self.let_go = threading.Event(), threading.Event()

    def initial(self, seed: Seed) -> np.ndarray:
        return self._task.initial(seed)

    def train(self, *arguments: object, **options: object) -> object:
        self.training.set()
        assert self.let_go.wait(30)
        return self._task.train(*arguments, **options)  # type: ignore[arg-type]


def test_the_end_is_heard_in_the_middle_of_a_round(tmp_path: Path) -> None:
    with town(tmp_path, settings("members=3", "rounds=9")) as place:
        slow = Slow(place.task())
        place.start("amber", place.node("amber").run)
        place.start("birch", place.node("birch").run)
        place.start("cedar", place.node("cedar", task=slow).run)
        assert slow.training.wait(10)
        time.sleep(0.2)  # the others now wait for its contribution to their own shards
        place.coordinator._run.end("stopped by birch")
        place.wait("amber", "birch", seconds=5.0)
        slow.let_go.set()
        place.wait("cedar", seconds=5.0)


def test_what_faster_peers_send_before_our_round_begins_counts_for_it(tmp_path: Path) -> None:
    received: list[float] = []

    @hears(RoundEnded)
    def dawdle(event: Event) -> None:
        assert isinstance(event, RoundEnded)
        received.append(event.traffic.aggregator.down)
        time.sleep(0.2)  # as an evaluation does

    with town(tmp_path, settings("members=3", "rounds=5", "model.options={n = 3000}")) as place:
        nodes = [place.node("amber", listeners=[dawdle]), place.node("birch"), place.node("cedar")]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
    assert sum(received) > 5 * 2 * 4 * 1000
