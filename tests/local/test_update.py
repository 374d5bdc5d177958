"""Updates as tasks return them: taken as they are, converted where no value changes, else refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eris.errors import TaskError
from eris.local.update import as_update

FLOAT64 = arrays(np.float64, st.integers(1, 20), elements=st.floats(width=64))


def test_what_is_right_is_not_copied():
    update = np.ones(5, np.float32)
    assert as_update(update, 5) is update


@given(arrays(np.float32, st.integers(1, 20), elements=st.floats(width=32)))
def test_float32_in_wider_numbers_comes_back_to_the_bit(update):
    for wide in (update.astype(np.float64), np.repeat(update, 3)[::3], update[::-1].copy()[::-1], update.astype(">f4")):
        found = as_update(wide, update.size)
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
        assert np.array_equal(found, update, equal_nan=True)
        assert np.array_equal(np.signbit(found), np.signbit(update))


@given(FLOAT64)
def test_nothing_is_ever_rounded(update):
    try:
        found = as_update(update, update.size)
    except TaskError as error:
        changed = [value for value in update.tolist() if value == value and _nearest(value) != value]
        assert error.what.startswith(f"{len(changed)} of {update.size} values")  # noqa: PT017 - both ends are right
        assert changed
    else:
        assert np.array_equal(found, update, equal_nan=True)


def _nearest(value):
    with np.errstate(all="ignore"):
        return float(np.float32(value))


@pytest.mark.parametrize("value", [0.1, 1e300, 1e-300, 16777217.0])
def test_a_refusal_says_how_many_and_where(value):
    with pytest.raises(TaskError, match=r"1 of 3 values .*float64.* \[peer=4, round=2\]: round it yourself"):
        as_update(np.array([1.0, value, 0.0]), 3, peer=4, round=2)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.ones(4, np.float32), r"float32 \(4,\), not float32 \(3,\)"),
        (np.ones((1, 3), np.float32), r"float32 \(1, 3\), not float32 \(3,\)"),
        (np.ones(3, np.int64), r"int64 \(3,\)"),
        (np.ones(3, np.complex128), "complex128"),
        (None, r"object \(\)"),
        ([[1.0], [1.0, 2.0]], "is a list, not an array"),
    ],
)
def test_nonsense_is_refused(value, said):
    with pytest.raises(TaskError, match=said):
        as_update(value, 3)
