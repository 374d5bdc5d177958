"""Lost shards: model and every state vector keep their bits there, all else moves as always."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.seeds import public_root
from eris.shards.plan import contiguous, scattered
from eris.step import OPTIMIZERS, apply_except, optimizer_by_name


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
class TestFrozen:
    @settings(max_examples=20, deadline=None)
    @given(n=st.integers(1, 60), lost=st.sets(st.integers(0, 3), max_size=4), seed=st.integers(0, 99))
    def test_stay_and_the_others_move(self, name: str, n: int, lost: set[int], seed: int) -> None:
        optimizer, generator = optimizer_by_name(name), np.random.default_rng(seed)
        plan = scattered(n, 4, public_root(seed))
        frozen = np.sort(np.concatenate([np.empty(0, np.int64), *(plan.coordinates(shard) for shard in lost)]))
        model, free = np.zeros(n, np.float32), np.zeros(n, np.float32)
        state, free_state = optimizer.init(n), optimizer.init(n)
        moving = np.setdiff1d(np.arange(n), frozen)
        for _ in range(3):
            direction = generator.standard_normal(n, dtype=np.float32)
            before = [model.copy(), *(values.copy() for values in state.values())]
            apply_except(optimizer, model, direction, state, frozen)
            optimizer.apply(free, direction, free_state)
            for vector, old in zip([model, *state.values()], before, strict=True):
                assert np.array_equal(vector[frozen], old[frozen])
            for vector, other in zip([model, *state.values()], [free, *free_state.values()], strict=True):
                assert np.array_equal(vector[moving], other[moving])

    def test_whatever_stands_in_the_direction(self, name: str) -> None:
        optimizer, model = optimizer_by_name(name), np.ones(6, np.float32)
        state, direction = optimizer.init(6), np.ones(6, np.float32)
        direction[2:4] = np.nan
        apply_except(optimizer, model, direction, state, contiguous(6, 3).coordinates(1))
        assert np.isfinite(model).all()
        assert all(np.isfinite(values).all() for values in state.values())
        assert model[2:4].tolist() == [1, 1]


def test_a_direction_of_zero_is_not_the_same_as_frozen() -> None:
    """Momentum would go on: that is why lost shards are restored instead of given a zero direction."""
    optimizer, model = optimizer_by_name("fedavgm"), np.zeros(1, np.float32)
    state = optimizer.init(1)
    optimizer.apply(model, np.ones(1, np.float32), state)
    before = model.copy()
    optimizer.apply(model, np.zeros(1, np.float32), state)
    assert not np.array_equal(model, before)
