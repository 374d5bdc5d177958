"""The loop's threads: as many as there is work that waits, and no more than that."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from eris.transport.link_loop import LinkLoop

MANY = 60


@pytest.fixture
def loop() -> Iterator[LinkLoop]:
    made = LinkLoop("a-test")
    yield made
    made.close()


def test_work_may_wait_for_work_that_is_handed_over_later(loop: LinkLoop) -> None:
    """As a thread that serves an unmasker waits for those that receive the parts: with a cap, nobody would go on."""
    all_here, done = threading.Barrier(MANY + 1), list[int]()
    for number in range(MANY):
        loop.hand_over(lambda number=number: (all_here.wait(20.0), done.append(number)))
    all_here.wait(20.0)
    loop.close()
    for thread in threads():
        thread.join(20.0)
    assert sorted(done) == list(range(MANY))


def test_a_thread_that_is_done_takes_the_next_work(loop: LinkLoop) -> None:
    for _ in range(MANY):
        done = threading.Event()
        loop.hand_over(done.set)
        assert done.wait(20.0)
    assert len(threads()) <= MANY // 4  # one, unless the next work came before it had said that it is done


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "a-test (moving)"]
