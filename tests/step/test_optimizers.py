"""Server optimizers: bit for bit the plain loop, bit for bit the same for every cut into shards."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.errors import ConfigError, ErisError
from eris.local.spec import Vector
from eris.seeds import public_root
from eris.shards.plan import ShardPlan, scattered
from eris.step import OPTIMIZERS, State, optimizer_by_name
from eris.step.blockwise import BLOCK

F = np.float32
PARAMS: dict[str, dict[str, float]] = {
    "fedavg": {"lr": 0.7},
    "fednova": {"lr": 0.7},
    "fedavgm": {"lr": 0.7, "beta": 0.85},
    "fedadagrad": {"lr": 0.03, "beta1": 0.8, "tau": 1e-2},
    "fedadam": {"lr": 0.03, "beta1": 0.8, "beta2": 0.95, "tau": 1e-2},
    "fedyogi": {"lr": 0.03, "beta1": 0.8, "beta2": 0.95, "tau": 1e-2},
}
NAMES = sorted(OPTIMIZERS)

Scalars = dict[str, np.float32]


def directions(n: int, rounds: int = 5, seed: int = 0, exponents: int = 40) -> list[Vector]:
    generator = np.random.default_rng(seed)
    scale = np.exp2(generator.integers(-exponents, exponents + 1, (rounds, n)))
    return list((generator.standard_normal((rounds, n)) * scale).astype(np.float32))


# An independent reference: numpy scalars, one coordinate at a time, in the change Δ̄ = −u as the literature writes it.


def _adaptive(x: np.float32, change: np.float32, s: Scalars, p: dict[str, float]) -> np.float32:
    s["m"] = F(F(F(p["beta1"]) * s["m"]) + F(F(1 - p["beta1"]) * change))
    return F(x + F(F(p["lr"]) * F(s["m"] / F(F(np.sqrt(s["q"])) + F(p["tau"])))))


def fedavg(x: np.float32, change: np.float32, s: Scalars, p: dict[str, float]) -> np.float32:
    return F(x + F(F(p["lr"]) * change))


def fedavgm(x: np.float32, change: np.float32, s: Scalars, p: dict[str, float]) -> np.float32:
    s["m"] = F(F(F(p["beta"]) * s["m"]) + change)
    return F(x + F(F(p["lr"]) * s["m"]))


def fedadagrad(x: np.float32, change: np.float32, s: Scalars, p: dict[str, float]) -> np.float32:
    s["q"] = F(s["q"] + F(change * change))
    return _adaptive(x, change, s, p)


def fedadam(x: np.float32, change: np.float32, s: Scalars, p: dict[str, float]) -> np.float32:
    s["q"] = F(F(F(p["beta2"]) * s["q"]) + F(F(1 - p["beta2"]) * F(change * change)))
    return _adaptive(x, change, s, p)


def fedyogi(x: np.float32, change: np.float32, s: Scalars, p: dict[str, float]) -> np.float32:
    square = F(change * change)
    step = F(F(1 - p["beta2"]) * square)
    if s["q"] > square:
        s["q"] = F(s["q"] - step)
    elif s["q"] < square:
        s["q"] = F(s["q"] + step)
    return _adaptive(x, change, s, p)


REFERENCE: dict[str, Callable[[np.float32, np.float32, Scalars, dict[str, float]], np.float32]] = {
    "fedavg": fedavg, "fednova": fedavg, "fedavgm": fedavgm,
    "fedadagrad": fedadagrad, "fedadam": fedadam, "fedyogi": fedyogi,
}  # fmt: skip


def by_hand(name: str, start: Vector, rounds: list[Vector]) -> Vector:
    model, params = start.copy(), PARAMS[name]
    for i in range(start.size):
        scalars = {"m": F(0), "q": F(params.get("tau", 0) ** 2)}
        for direction in rounds:
            model[i] = REFERENCE[name](model[i], F(-direction[i]), scalars, params)
    return model


def run(name: str, start: Vector, rounds: list[Vector]) -> tuple[Vector, State]:
    optimizer, model = optimizer_by_name(name, **PARAMS[name]), start.copy()
    state = optimizer.init(start.size)
    for direction in rounds:
        optimizer.apply(model, direction, state)
    return model, state


def sharded(name: str, start: Vector, rounds: list[Vector], plans: list[ShardPlan]) -> Vector:
    """Step shard by shard, the state following its coordinates."""
    optimizer, model = optimizer_by_name(name, **PARAMS[name]), start.copy()
    state = optimizer.init(start.size)
    for direction, plan in zip(rounds, plans, strict=True):
        for shard in range(plan.shards):
            part = plan.gather(model, shard)
            kept = {key: plan.gather(values, shard) for key, values in state.items()}
            optimizer.apply(part, plan.gather(direction, shard), kept)
            plan.scatter(part, shard, model)
            for key, values in kept.items():
                plan.scatter(values, shard, state[key])
    return model


@pytest.mark.parametrize("name", NAMES)
class TestEveryOptimizer:
    @pytest.mark.parametrize("exponents", [2, 40])
    def test_is_the_plain_loop_bit_for_bit(self, name: str, exponents: int) -> None:
        start, rounds = directions(200, 1, seed=9)[0], directions(200, 6, exponents=exponents)
        assert np.array_equal(run(name, start, rounds)[0], by_hand(name, start, rounds))

    @settings(max_examples=25, deadline=None)
    @given(n=st.integers(1, 80), seed=st.integers(0, 1_000), data=st.data())
    def test_shards_redrawn_every_round_give_the_bits_of_the_whole(
        self, name: str, n: int, seed: int, data: st.DataObject
    ) -> None:
        start, rounds = directions(n, 1, seed)[0], directions(n, 5, seed + 1)
        shards = data.draw(st.sampled_from([1, 2, 5, 7, n]))
        plans = [scattered(n, shards, public_root(seed).child(t)) for t in range(5)]
        assert np.array_equal(sharded(name, start, rounds, plans), run(name, start, rounds)[0])

    @pytest.mark.parametrize("n", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 3])
    def test_blocks_do_not_show(self, name: str, n: int) -> None:
        start, rounds = directions(n, 1, exponents=3)[0], directions(n, 2, seed=1, exponents=3)
        cut = n // 3
        model, state = run(name, start, rounds)
        first, first_state = run(name, start[:cut].copy(), [u[:cut].copy() for u in rounds])
        last, last_state = run(name, start[cut:].copy(), [u[cut:].copy() for u in rounds])
        assert np.array_equal(np.concatenate([first, last]), model)
        for key in state:
            assert np.array_equal(np.concatenate([first_state[key], last_state[key]]), state[key])

    def test_only_reads_the_direction_and_moves_in_place(self, name: str) -> None:
        optimizer, model, direction = optimizer_by_name(name), np.ones(50, np.float32), directions(50, 1)[0]
        before, state = direction.copy(), optimizer.init(50)
        held = dict(state)
        optimizer.apply(model, direction, state)
        assert np.array_equal(direction, before)
        assert not np.array_equal(model, np.ones(50))
        assert all(state[key] is held[key] for key in state)

    def test_goes_against_the_direction(self, name: str) -> None:
        model = run(name, np.zeros(3, np.float32), [np.array([1, -1, 0], np.float32)])[0]
        assert np.sign(model).tolist() == [-1, 1, 0]

    def test_state_is_saved_as_vectors(self, name: str) -> None:
        for values in optimizer_by_name(name).init(7).values():
            assert values.dtype == np.float32
            assert values.shape == (7,)

    def test_a_run_continues_from_saved_state(self, name: str) -> None:
        start, rounds = directions(40, 1)[0], directions(40, 6, seed=3, exponents=4)
        model, state = run(name, start, rounds[:3])
        optimizer, saved = optimizer_by_name(name, **PARAMS[name]), {k: v.copy() for k, v in state.items()}
        for direction in rounds[3:]:
            optimizer.apply(model, direction, saved)
        assert np.array_equal(model, run(name, start, rounds)[0])

    @pytest.mark.parametrize("wrong", ["direction", "model", "state", "shape"])
    def test_refuses_before_anything_moves(self, name: str, wrong: str) -> None:
        optimizer = optimizer_by_name(name)
        model, direction, state = np.ones(8, np.float32), np.ones(8, np.float32), optimizer.init(8)
        if wrong == "direction":
            direction = np.ones(7, np.float32)
        elif wrong == "model":
            model = np.ones(8)  # float64
        elif wrong == "state":
            state = {**state, "other": np.ones(8, np.float32)}
        else:
            direction = np.ones((2, 4), np.float32)
        before = {key: values.copy() for key, values in state.items()}
        with pytest.raises(ErisError):
            optimizer.apply(model, direction, state)
        assert (model == 1).all()
        assert all(np.array_equal(state[key], before[key]) for key in state)


class TestState:
    def test_second_moments_begin_at_tau_squared(self) -> None:
        for name in ("fedadagrad", "fedadam", "fedyogi"):
            state = optimizer_by_name(name, tau=0.5).init(3)
            assert state["second"].tolist() == [0.25, 0.25, 0.25]
            assert state["momentum"].tolist() == [0, 0, 0]

    @pytest.mark.parametrize("name", ["fedavgm", "fedadagrad", "fedadam", "fedyogi"])
    def test_kept_by_aggregators_under_changing_plans_it_goes_wrong(self, name: str) -> None:
        """A.6.8: state must follow the coordinate. Left with the aggregator it belongs to others next round."""
        n, shards = 60, 5
        start, rounds = directions(n, 1)[0], directions(n, 5, seed=1, exponents=1)
        plans = [scattered(n, shards, public_root(4).child(t)) for t in range(5)]
        optimizer, model = optimizer_by_name(name, **PARAMS[name]), start.copy()
        kept = [optimizer.init(n // shards) for _ in range(shards)]
        for direction, plan in zip(rounds, plans, strict=True):
            for shard in range(shards):
                part = plan.gather(model, shard)
                optimizer.apply(part, plan.gather(direction, shard), kept[shard])
                plan.scatter(part, shard, model)
        assert not np.array_equal(model, run(name, start, rounds)[0])

    def test_yogi_stands_still_where_the_square_is_reached(self) -> None:
        optimizer = optimizer_by_name("fedyogi", tau=0.5)
        state = optimizer.init(1)
        optimizer.apply(np.zeros(1, np.float32), np.array([0.5], np.float32), state)
        assert state["second"].tolist() == [0.25]


class TestSettings:
    @pytest.mark.parametrize(
        ("name", "params", "what"),
        [
            ("adam", {}, "no server optimizer 'adam'"),
            ("fedavg", {"beta": 0.9}, "no setting 'beta'"),
            ("fedavg", {"lr": 0.0}, "lr is 0.0"),
            ("fedavg", {"lr": -1.0}, "lr is -1.0"),
            ("fedavg", {"lr": float("nan")}, "lr is nan"),
            ("fedavg", {"lr": 1e39}, "lr is 1e"),
            ("fedavgm", {"beta": 1.0}, "beta is 1.0"),
            ("fedavgm", {"beta": 1 - 1e-12}, "beta is 0.99"),
            ("fedadam", {"beta2": -0.1}, "beta2 is -0.1"),
            ("fedadam", {"tau": 0.0}, "tau is 0.0"),
            ("fedyogi", {"tau": 1e-30}, "tau² is"),
        ],
    )
    def test_wrong_ones_are_refused(self, name: str, params: dict[str, float], what: str) -> None:
        with pytest.raises(ConfigError, match=what):
            optimizer_by_name(name, **params)

    @pytest.mark.parametrize("name", NAMES)
    def test_an_optimizer_knows_its_name(self, name: str) -> None:
        assert optimizer_by_name(name).name == name


def test_an_unknown_setting_is_told_beside_the_ones_there_are() -> None:
    with pytest.raises(ConfigError) as told:
        optimizer_by_name("fedadam", beta=0.5)
    assert told.value.fix == "use beta1, beta2, lr, tau"
