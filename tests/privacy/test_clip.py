from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eris.errors import ConfigError, InputError
from eris.privacy import clip_by_norm
from eris.transforms.norm import max_norm, norm
from tests.transforms.scenes import context, normal

FINITE = st.floats(-(2.0**120), 2.0**120, width=32)


def clipped(vector, bound):
    return clip_by_norm(bound).outgoing(vector, context(vector.size))


def true_norm(vector):
    return math.sqrt(math.fsum(float(value) ** 2 for value in vector))


@given(arrays(np.float32, st.integers(0, 50), elements=FINITE), st.floats(1e-3, 1e6))
def test_the_norm_is_at_most_c_and_not_nearly(vector, bound):
    assert true_norm(clipped(vector, bound)) <= bound


@given(st.integers(0, 10_000), st.floats(0.01, 10))
def test_the_direction_stays(seed, bound):
    vector = normal(30, seed=seed)
    sent = clipped(vector, bound)
    if true_norm(vector) <= bound:
        assert sent is vector
    else:
        assert true_norm(sent) == pytest.approx(bound, rel=1e-5)
        assert np.allclose(sent * true_norm(vector) / bound, vector, rtol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 5, 32_768, 32_769, 100_001])
def test_norms_of_every_length(n):
    vector = normal(n, spread=30)
    assert norm(vector) == pytest.approx(true_norm(vector), rel=1e-12)
    assert max_norm(vector) == max((abs(float(value)) for value in vector), default=0.0)


@given(arrays(np.float32, st.integers(1, 40), elements=FINITE))
def test_the_norm_is_never_below_the_largest_value(vector):
    """Quantisers rely on it: a value beyond its own norm would have no level."""
    assert norm(vector) >= max_norm(vector)


@pytest.mark.parametrize("bound", [0, -1, math.nan, math.inf])
def test_impossible_bounds(bound):
    with pytest.raises(ConfigError, match="clipping bound"):
        clip_by_norm(bound)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_update_that_is_not_finite_is_refused_with_its_place(bad):
    with pytest.raises(InputError, match=r"not finite.*peer=0, round=0"):
        clipped(np.array([1, bad], np.float32), 1.0)
