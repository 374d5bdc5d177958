"""What the threads of a peer share of its aggregator."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import replace

from eris.aggregate.encoding import FixedPoint
from eris.peer.shared_aggregator import SharedAggregator
from tests.faults.scene import Scene


def test_a_round_that_is_played_again_is_waited_for_like_any_other() -> None:
    scene = Scene()
    again = replace(scene.plan, epoch=1)
    when, soon = (again.epoch, again.round), time.monotonic() + 0.05
    assert not scene.shared.wait_for_plan(again.digest, when, soon)
    threading.Timer(0.1, scene.shared.begin, [again]).start()
    assert scene.shared.wait_for_plan(again.digest, when, time.monotonic() + 10)


def test_nobody_waits_for_a_plan_that_is_over() -> None:
    scene = Scene()
    scene.shared.begin(replace(scene.plan, epoch=1))
    started = time.monotonic()
    assert scene.shared.wait_for_plan(scene.plan.digest, (0, 3), started + 10)
    assert time.monotonic() < started + 5


def test_long_contributions_come_in_turn_where_each_is_added_up_and_a_slow_one_holds_up_nobody() -> None:
    scene = Scene()
    assert waits(scene.shared, 1 << 24) < 0.1  # floats are staged until the cut: nothing is gained
    scene.shared._aggregator.recipe = replace(scene.shared.recipe, encoding=FixedPoint())
    with ExitStack() as slow:
        for _ in range(3):
            slow.enter_context(scene.shared.in_turn(1 << 24))
        assert 0.1 < waits(scene.shared, 1 << 24) < 5
        assert waits(scene.shared, 1000) < 0.1
    assert waits(scene.shared, 1 << 24) < 0.1


def waits(shared: SharedAggregator, size: int) -> float:
    started = time.monotonic()
    with shared.in_turn(size):
        return time.monotonic() - started
