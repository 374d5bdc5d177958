"""Arrays in files: zeros at first, values that stay when memory is given back, and errors before it is too late."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eris.errors import DiskError
from eris.storage.buffer_pool import BufferPool
from eris.storage.mapped import is_mapped, mapped, release, require_room

MIB = 1 << 20


def resident() -> int:
    """Return how much of this process's memory is pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssFile:"))


def test_a_file_is_zeros_and_has_no_name(tmp_path: Path) -> None:
    array = mapped(10_000, tmp_path)
    assert array.size == 10_000
    assert not array.any()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "view", [lambda a: a, lambda a: a[5000:], lambda a: a.view(np.float32)[100:200], lambda a: a[:0]]
)
def test_a_view_of_a_file_is_known_as_one_and_keeps_its_values(view, tmp_path: Path) -> None:
    array = mapped(100_000, tmp_path)
    array[:] = np.arange(array.size) % 251
    assert is_mapped(view(array))
    release(view(array))
    assert np.array_equal(array, (np.arange(array.size) % 251).astype(np.uint8))


def test_memory_is_left_alone() -> None:
    array = np.ones(10_000, np.float32)
    assert not is_mapped(array[5:])
    release(array[5:])
    assert array.sum() == 10_000


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_what_is_released_leaves_memory(tmp_path: Path) -> None:
    array, before = mapped(64 * MIB, tmp_path), resident()
    array[:] = 7
    assert resident() - before > 60 * MIB
    release(array[32 * MIB :])
    assert 28 * MIB < resident() - before < 36 * MIB
    release(array)
    assert resident() - before < 4 * MIB
    assert int(array[-1]) == 7


def test_a_shelf_puts_long_arrays_into_files_and_uses_them_again(tmp_path: Path) -> None:
    pool = BufferPool(tmp_path, above=MIB)
    short, long = pool.take(MIB), pool.take(MIB + 1)
    assert (is_mapped(short), is_mapped(long), long.size) == (False, True, MIB + 1)
    place = long.ctypes.data
    del long
    assert pool.take(MIB + 1).ctypes.data == place
    lasting = pool.zeros(MIB)
    assert is_mapped(lasting)
    assert not lasting.any()
    assert not is_mapped(pool.zeros(MIB // 4))


def test_a_disk_that_is_too_small_is_refused_beforehand(tmp_path: Path) -> None:
    require_room(0, tmp_path / "not there yet", what="this")
    with pytest.raises(
        DiskError, match=r"a model needs 1000000\.0 GB on disk, .* GB are free .*make room there"
    ) as caught:
        require_room(10**15, tmp_path / "not there yet", what="a model")
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(DiskError, match="cannot be kept on disk"):
        mapped(10**15, tmp_path)
