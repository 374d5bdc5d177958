"""A real peer tells what it sees in the events of a simulated run: the same views, bit for bit."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from eris.compose import compose
from eris.events import (
    Event,
    EventStream,
    MemberTrained,
    Received,
    RoundEnded,
    RoundStarted,
    RunCourseChanged,
    RunEnded,
    RunStarted,
    Sent,
    ShardPublished,
    VerdictWritten,
    hears,
)
from eris.exposure import ExposureLedger
from eris.local.numpy_task import QuadraticTask
from eris.local.spec import ModelSpec, TensorSpec
from eris.peer.node import Node
from eris.protocol.recipe import Recipe
from eris.simulate.run import run
from eris.view import View, view_of
from tests.peer.town import settings, town

Kind = TypeVar("Kind", bound=Event)
MEMBERS, ROUNDS = 4, 3
SPEC = ModelSpec((
    TensorSpec("weight", (9, 7), "float32", "trainable"),
    TensorSpec("bias", (11,), "float32", "trainable"),
    TensorSpec("mean", (10,), "float32", "buffer"),
))  # fmt: skip
CASES = {
    "dense": ("eris",),
    "shared masks": ("eris+dsc", "compression.keep=0.3"),
    "replicas": ("eris", "shards.replicas=2"),
    "redrawn plans": ("eris", "shards.schedule=redraw"),
    "secret masks": ("eris+dsc", "compression.keep=0.3", "compression.masks=independent"),
    "explicit indices": ("eris+dsc", "compression.keep=0.3", "compression.compressor=top_k", "compression.gamma=1"),
    "fewer bits": ("eris+dsc", "compression.compressor=qsgd", "compression.options={levels = 8}"),
}


def task() -> QuadraticTask:
    return QuadraticTask(np.random.default_rng(3).normal(size=(MEMBERS, SPEC.n)), spec=SPEC)


class Kept:
    """Keeps events, with copies of what may be used again."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(_copied(event))

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]


def _copied(event: Event) -> Event:
    names = type(event).__dataclass_fields__  # type: ignore[attr-defined]
    values = {name: getattr(event, name) for name in names}
    return type(event)(**{k: v.copy() if isinstance(v, np.ndarray) else v for k, v in values.items()})


@pytest.fixture(scope="module", params=CASES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Kept, list[Kept], Recipe]:
    """Simulate a run and play it over TLS; return what was told in each, a real peer after another."""
    method, *changes = CASES[request.param]
    config = settings(f"members={MEMBERS}", "aggregators=3", f"rounds={ROUNDS}", *changes, method=method)
    folder, simulated, real = tmp_path_factory.mktemp("both"), Kept(), [Kept() for _ in range(MEMBERS)]
    run(config, folder / "run", task=task(), listeners=[simulated])
    with town(folder / "town", config) as place:
        for number, name in enumerate(place.names):
            node = place.node(name, task=task(), listeners=[real[number]])
            place.start(name, node.run)
        place.wait()
        recipe = node.recipe
    return simulated, real, recipe


def simulated_views(told: Kept, recipe: Recipe, observer: int) -> dict[tuple[int, int], View]:
    started = {event.round: event for event in told.of(RoundStarted)}
    views = {}
    for sent in told.of(Sent):
        begun = started[sent.round]
        layout = recipe.layout(sent.round)
        views[sent.round, sent.member] = view_of(sent, layout, begun.assignment, {observer}, begun.witnesses)
    return views


def received_views(told: Kept, observer: int) -> dict[tuple[int, int], View]:
    """Put together what an observer received of each member in each round, over all its shards."""
    parts: dict[tuple[int, int], list[Received]] = defaultdict(list)
    for event in told.of(Received):
        assert event.aggregator == observer
        parts[event.round, event.member].append(event)
    return {key: _joined(events) for key, events in parts.items()}


def _joined(events: list[Received]) -> View:
    first = events[0]
    assert {(event.weight, event.steps) for event in events} == {(first.weight, first.steps)}
    coordinates, places = (
        np.concatenate([getattr(event, name) for event in events]) for name in ("coordinates", "buffer_coordinates")
    )
    values, buffers = (np.concatenate([getattr(event, name) for event in events]) for name in ("values", "buffers"))
    order, rest = np.argsort(coordinates), np.argsort(places)
    scalars = {"weight": first.weight, "steps": first.steps}
    return View(first.round, first.member, coordinates[order], values[order], places[rest], buffers[rest], scalars)


def test_an_observer_at_a_real_peer_sees_what_the_simulated_one_sees(both: tuple[Kept, list[Kept], Recipe]) -> None:
    simulated, real, recipe = both
    seen = 0
    for observer in range(MEMBERS):
        expected, received = simulated_views(simulated, recipe, observer), received_views(real[observer], observer)
        assert received.keys() == {key for key, view in expected.items() if view.size}
        for key, view in received.items():
            other = expected[key]
            assert np.array_equal(view.coordinates, other.coordinates)
            assert np.array_equal(view.values, other.values)
            assert np.array_equal(view.buffer_coordinates, other.buffer_coordinates)
            assert np.array_equal(view.buffers, other.buffers)
            assert view.scalars == other.scalars
            seen += view.size
    assert seen > 0


def test_what_members_send_and_aggregators_publish_is_told_alike(both: tuple[Kept, list[Kept], Recipe]) -> None:
    simulated, real, _ = both
    sent = {(event.round, event.member): event for told in real for event in told.of(Sent)}
    trained = {(event.round, event.member): event for told in real for event in told.of(MemberTrained)}
    assert len(sent) == len(trained) == MEMBERS * ROUNDS
    for event in simulated.of(Sent):
        _require_same(sent[event.round, event.member], event)
    for event in simulated.of(MemberTrained):
        one = trained[event.round, event.member]
        assert (one.samples, one.steps, one.loss) == (event.samples, event.steps, event.loss)
    for told in real:
        for kind in (RoundStarted, ShardPublished):
            for one, other in zip(told.of(kind), simulated.of(kind), strict=True):
                _require_same(one, other)
        for one, other in zip(told.of(VerdictWritten), simulated.of(VerdictWritten), strict=True):
            assert [entry.hash for entry in one.verdict.shards] == [entry.hash for entry in other.verdict.shards]


def _require_same(one: Any, other: Any) -> None:
    for name in type(one).__dataclass_fields__:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_events_come_in_the_order_of_the_round_and_end_with_the_run(tmp_path: Path) -> None:
    config = settings("members=3", "rounds=2")
    told = Kept()
    with town(tmp_path, config) as place:
        place.start("amber", place.session("amber", listeners=[told]).run)
        for name in place.names[1:]:
            place.start(name, place.session(name).run)
        place.wait()
    mine = [type(event) for event in told.events if not isinstance(event, Received | RunCourseChanged)]
    a_round = [RoundStarted, MemberTrained, Sent, *[ShardPublished] * 3, VerdictWritten, RoundEnded]
    assert mine == [RunStarted, *a_round, *a_round, RunEnded]
    [start], [*ends], [end] = told.of(RunStarted), told.of(RoundEnded), told.of(RunEnded)
    assert (start.rounds, start.first_round, start.members) == (2, 0, 3)
    assert (end.rounds, end.finished, end.how) == (2, True, "finished")
    assert end.model_digest
    sent, received = told.of(Sent), told.of(Received)
    assert sum(sum(event.bytes) for event in sent) < sum(event.traffic.member.up for event in ends)  # questions, too
    assert {(event.round, event.member) for event in received} == {(r, m) for r in range(2) for m in range(3)}
    assert all({"train_loss", "loss", "largest_share"} <= event.metrics.keys() for event in ends)


def test_the_ledger_of_exposure_at_a_peer_is_that_member_s_page_of_the_simulated_one(tmp_path: Path) -> None:
    config = settings("members=4", "aggregators=3", "rounds=3", "compression.keep=0.3", method="eris+dsc")
    run(config, tmp_path / "run")
    [written] = (tmp_path / "run").rglob("exposure.json")
    page = json.loads(written.read_text())["by_member"]["members"]
    with town(tmp_path / "town", config) as place:
        ledgers = []
        for number, name in enumerate(place.names):
            recipe = compose(config, place.task().spec, [1] * 4).recipe
            ledgers.append(ExposureLedger(recipe, 4, tmp_path / name, server=False))
            place.start(name, place.node(name, listeners=[ledgers[number]]).run)
        place.wait()
    for number, ledger in enumerate(ledgers):
        assert ledger.summary()["by_member"]["members"][str(number)] == page[str(number)]


def test_nothing_is_copied_for_who_does_not_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from eris.peer import play_round, shared_aggregator

    def asked(*_: object) -> None:
        pytest.fail("nobody hears of values here")

    monkeypatch.setattr(play_round, "sent_event", asked)
    monkeypatch.setattr(play_round, "published_events", asked)
    monkeypatch.setattr(shared_aggregator, "received_events", asked)
    with town(tmp_path, settings("members=3", "rounds=2")) as place:
        for name in place.names:
            place.start(name, place.session(name).run)
        place.wait()


@pytest.mark.parametrize("kind", [MemberTrained, Received, RoundEnded])
def test_what_a_listener_raises_ends_its_own_peer(tmp_path: Path, kind: type[Event]) -> None:
    @hears(kind)
    def stumble(event: Event) -> None:
        raise ZeroDivisionError(type(event).__name__)

    with town(tmp_path, settings("members=4", "rounds=3"), round=20.0) as place:
        nodes: dict[str, Node] = {name: place.node(name) for name in place.names[:3]}
        nodes["dogwood"] = place.node("dogwood", listeners=[stumble])
        for name, node in nodes.items():
            place.start(name, node.run)
        with pytest.raises(ZeroDivisionError, match=kind.__name__):
            place.wait("dogwood")
        place.wait("amber", "birch", "cedar")
        assert len({nodes[name].model_digest() for name in ("amber", "birch", "cedar")}) == 1


def test_listeners_are_called_one_at_a_time() -> None:
    inside, most, lock = [0], [0], threading.Lock()

    def slow(event: Event) -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        threading.Event().wait(0.002)
        with lock:
            inside[0] -= 1

    stream: Callable[[Event], None] = EventStream([slow])
    threads = [threading.Thread(target=stream, args=(RunEnded(0, True, "", 0.0),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
