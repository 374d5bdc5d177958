from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from eris.storage.buffer_pool import BufferPool

SIZE = 1 << 18


def place_of(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_what_is_let_go_is_used_again_and_nothing_else() -> None:
    pool = BufferPool()
    kept, let_go = pool.take(SIZE), pool.take(SIZE)
    free = place_of(let_go)
    del let_go
    again = pool.take(SIZE)
    assert place_of(again) == free
    assert place_of(pool.take(SIZE)) not in (place_of(kept), free)


@pytest.mark.parametrize(
    "view",
    [lambda a: a[5:9], lambda a: a.view(np.float32)[3:], lambda a: a[8:].data, lambda a: memoryview(a)[1:2].cast("b")],
)
def test_a_view_keeps_the_memory_to_itself(view) -> None:
    pool = BufferPool()
    lent = pool.take(SIZE)
    place, part = place_of(lent), view(lent)
    del lent
    gc.collect()
    assert place_of(pool.take(SIZE)) != place
    del part
    assert place_of(pool.take(SIZE)) == place


def test_shards_of_nearly_the_same_size_share_memory_and_have_their_own_length() -> None:
    pool = BufferPool()
    lent = pool.take(SIZE)
    place = place_of(lent)
    del lent
    smaller = pool.take(SIZE - 1000)
    assert place_of(smaller) == place
    assert smaller.size == SIZE - 1000
    assert pool.vector(7).size == 7


def test_no_two_threads_are_given_the_same_memory() -> None:
    pool, wrong = BufferPool(), []

    def use(mark: int) -> None:
        for _ in range(200):
            lent = pool.take(SIZE)
            lent[::4096] = mark
            if (lent[::4096] != mark).any():
                wrong.append(mark)

    threads = [threading.Thread(target=use, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
