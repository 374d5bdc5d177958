from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eris.shards.plan import contiguous
from eris.transforms import top_k
from tests.transforms.scenes import context, normal

FEW_VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 3.0])  # ties on purpose


@given(arrays(np.float32, st.integers(1, 60), elements=FEW_VALUES), st.floats(0.01, 1))
def test_the_largest_are_kept_and_of_equals_the_first(vector, p):
    n = vector.size
    k = max(1, int(p * n + 1e-9))
    expected = sorted(sorted(range(n), key=lambda i: (-abs(float(vector[i])), i))[:k])
    packed = top_k(p).compress(vector, context(n))
    support = np.arange(n) if packed.support is None else packed.support
    assert support.tolist() == expected
    assert np.array_equal(packed.values(), vector[expected])


@given(st.integers(0, 10_000), st.floats(0.05, 0.95))
def test_it_contracts_as_promised(seed, p):
    vector = normal(50, seed=seed)
    k = max(1, int(p * 50 + 1e-9))
    lost = np.sum((top_k(p).compress(vector, context(50)).dense() - vector).astype(np.float64) ** 2)
    assert lost <= (1 - k / 50) * np.sum(vector.astype(np.float64) ** 2) * (1 + 1e-6)


def test_a_short_list_is_cheaper_than_a_bitmap_and_a_long_one_is_not():
    plan = contiguous(6400, 1)
    (few,) = top_k(0.01).compress(normal(6400), context(plan)).parts(plan)
    (many,) = top_k(0.5).compress(normal(6400), context(plan)).parts(plan)
    assert few.payload_bytes == 64 * (4 + 4)
    assert many.payload_bytes == 3200 * 4 + 800
