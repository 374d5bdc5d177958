from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eris.errors import InputError
from eris.transforms import bf16, fp16
from tests.transforms.scenes import context


def nearest_bf16(value: np.float32) -> float:
    """Return the nearest bfloat16, ties to the even one, by looking at both neighbours."""
    bits = int(np.array([value]).view(np.uint32)[0])
    low, high = (np.array([b << 16], np.uint32).view(np.float32)[0] for b in (bits >> 16, (bits >> 16) + 1))
    down, up = abs(float(value) - float(low)), abs(float(high) - float(value))
    if down != up:
        return float(low if down < up else high)
    return float(low if (bits >> 16) % 2 == 0 else high)


@given(arrays(np.float32, 20, elements=st.floats(-(2.0**127), 2.0**127, width=32, allow_subnormal=True)))
def test_bf16_rounds_to_the_nearest_even(vector):
    sent = bf16().compress(vector, context(20)).dense()
    assert sent.tolist() == [nearest_bf16(value) for value in vector]


@given(arrays(np.float32, 20, elements=st.floats(-65504, 65504, width=32, allow_subnormal=True)))
def test_fp16_is_what_numpy_rounds_to(vector):
    sent = fp16().compress(vector, context(20)).dense()
    assert np.array_equal(sent, vector.astype(np.float16).astype(np.float32))
    assert (np.abs(sent - vector) <= np.maximum(np.abs(vector) * 2.0**-11, 2.0**-25)).all()


def test_ties_of_bf16():
    tie_to_even, tie_to_odd = 1 + 2.0**-8, 1 + 3 * 2.0**-8
    sent = bf16().compress(np.array([tie_to_even, tie_to_odd, -tie_to_even], np.float32), context(3)).dense()
    assert sent.tolist() == [1.0, 1 + 2.0**-6, -1.0]


@pytest.mark.parametrize(
    ("compressor", "last", "first_refused"),
    [
        (fp16(), 65519.996, 65520.0),
        (bf16(), float(np.nextafter(np.float32(2.0**127 * (2 - 2.0**-8)), np.float32(0))), 2.0**127 * (2 - 2.0**-8)),
    ],
    ids=repr,
)
def test_what_would_become_infinite_is_refused(compressor, last, first_refused):
    assert np.isfinite(compressor.compress(np.array([last, -last], np.float32), context(2)).dense()).all()
    for bad in (first_refused, -first_refused, np.nan, -np.inf):
        with pytest.raises(InputError, match="sixteen bits"):
            compressor.compress(np.array([0, bad], np.float32), context(2))
