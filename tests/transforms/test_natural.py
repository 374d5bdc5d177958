from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eris.errors import InputError
from eris.transforms import natural
from eris.transforms.natural import _rounded
from tests.transforms.scenes import context

SENDABLE = st.floats(-(2.0**105), 2.0**105, width=32, allow_subnormal=True)


@given(arrays(np.float32, st.integers(1, 40), elements=SENDABLE))
def test_a_value_goes_to_one_of_the_two_powers_around_it(vector):
    sent = natural().compress(vector, context(vector.size)).dense()
    assert np.isfinite(sent).all()
    for value, got in zip(vector.astype(np.float64).tolist(), sent.astype(np.float64).tolist(), strict=True):
        if value == 0:
            assert got == 0
            continue
        below = 2.0 ** np.floor(np.log2(abs(value)))
        while below > abs(value):  # log2 may round up
            below /= 2
        assert abs(got) in {below, 2 * below}
        assert (got > 0) == (value > 0)
        assert abs(got) == abs(value) or below != abs(value)


@pytest.mark.parametrize("exponent", range(-149, 106))
def test_powers_of_two_are_exact(exponent):
    power = np.array([2.0**exponent, -(2.0**exponent)], np.float32)
    assert np.array_equal(natural().compress(power, context(2)).dense(), power)


@given(st.integers(1, 2**31 - 2**23 - 1))
def test_the_probability_of_going_up_is_exact(bits):
    """Of the 2²³ coins, exactly as many as the fraction says lift the value."""
    value = np.array([bits], np.uint32).view(np.float32)
    if not 0 < value[0] < 2.0**105:
        return
    wide = float(value[0])
    below = 2.0 ** (np.frexp(wide)[1] - 1)
    lifted = int((wide / below - 1) * 2**23)
    stays = _rounded(value, np.array([min(lifted << 9, 2**32 - 1)], np.uint32))
    assert float(natural().code(()).decode(stays, np.empty(0, np.float32), None)[0]) == below
    if lifted:
        rises = _rounded(value, np.array([(lifted << 9) - 1], np.uint32))
        assert float(natural().code(()).decode(rises, np.empty(0, np.float32), None)[0]) == 2 * below


@pytest.mark.parametrize("bad", [2.0**105 * 1.01, -3e38, np.nan, np.inf])
def test_beyond_its_range_it_refuses(bad):
    with pytest.raises(InputError, match="2¹⁰⁵"):
        natural().compress(np.array([1.0, bad], np.float32), context(2))
