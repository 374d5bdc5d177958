"""What the threads of a peer share of its aggregator."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

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
