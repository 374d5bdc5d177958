from __future__ import annotations

import numpy as np
import pytest

from eris.checkpoint import load_checkpoint, save_checkpoint
from eris.errors import CheckpointError
from eris.storage.mapped import is_mapped


def vectors(value):
    return {"model": np.full(5, value, np.float32), "slots": np.arange(3, dtype=np.int8)}


def test_what_is_saved_comes_back(tmp_path):
    save_checkpoint(tmp_path, 7, vectors(1.5), {"chain": "abc", "lines": {"a": 3}})
    found = load_checkpoint(tmp_path)
    assert (found.round, found.facts["chain"], found.facts["lines"]) == (7, "abc", {"a": 3})
    assert np.array_equal(found.arrays["model"], np.full(5, 1.5, np.float32))
    assert found.arrays["slots"].dtype == np.int8


def test_the_newest_two_stay(tmp_path):
    for round in range(5):
        save_checkpoint(tmp_path, round, vectors(round), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"round-00000{r}.safetensors" for r in (3, 4)]
    assert load_checkpoint(tmp_path).round == 4


@pytest.mark.parametrize("place", ["header", "values", "cut", "empty"])
def test_a_damaged_one_is_passed_over(tmp_path, place):
    save_checkpoint(tmp_path, 1, vectors(1), {"a": 1})
    path = save_checkpoint(tmp_path, 2, vectors(2), {"a": 2})
    data = bytearray(path.read_bytes())
    if place == "header":
        data[data.index(b'\\"a\\": 2') + 6] ^= 1
    elif place == "values":
        data[-20] ^= 4
    data = {"cut": data[:-7], "empty": b""}.get(place, data)
    path.write_bytes(bytes(data))
    assert load_checkpoint(tmp_path).round == 1


def test_nothing_whole_is_an_error_that_says_so(tmp_path):
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        load_checkpoint(tmp_path)
    save_checkpoint(tmp_path, 1, vectors(1), {}).write_bytes(b"no")
    with pytest.raises(CheckpointError, match="every checkpoint is damaged"):
        load_checkpoint(tmp_path)


def test_a_round_that_was_taken_back_does_not_push_out_what_counts_now(tmp_path):
    for round in (81, 91, 11):
        save_checkpoint(tmp_path, round, vectors(round), {})
    assert load_checkpoint(tmp_path).round == 11
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_process_left_half_written_is_cleared_away(tmp_path):
    (tmp_path / ".round-000004.safetensors.0badcafe").write_bytes(b"half of it")
    path = save_checkpoint(tmp_path, 5, vectors(1), {})
    assert list(tmp_path.iterdir()) == [path]


def test_the_library_of_the_format_reads_it_too(tmp_path):
    from safetensors import safe_open

    arrays = {
        "a.b": np.arange(12, dtype=np.float32).reshape(3, 4),
        "scalar": np.array(2.5, np.float64),
        "none": np.empty(0, np.int8),
    }
    path = save_checkpoint(tmp_path, 3, {**arrays, **vectors(1)}, {"run": "x"})
    with safe_open(path, framework="numpy") as file:
        assert set(file.keys()) == {*arrays, *vectors(1)}
        for name, array in arrays.items():
            assert np.array_equal(file.get_tensor(name), array)
            assert file.get_tensor(name).dtype == array.dtype
        assert '"run": "x"' in file.metadata()["facts"]
    assert load_checkpoint(tmp_path).arrays["scalar"].shape == ()


def test_long_arrays_stay_in_the_file(tmp_path):
    save_checkpoint(tmp_path, 1, vectors(1.5), {})
    arrays = load_checkpoint(tmp_path, above=10).arrays
    assert [is_mapped(arrays[name]) for name in ("model", "slots")] == [True, False]
    assert np.array_equal(arrays["model"], vectors(1.5)["model"])
    with pytest.raises(ValueError, match="read-only"):
        arrays["model"][0] = 1
    arrays["slots"][0] = 1
