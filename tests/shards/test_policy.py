from __future__ import annotations

import numpy as np
import pytest

from eris.errors import ConfigError
from eris.local.spec import ModelSpec
from eris.seeds import public_root
from eris.shards.policy import Layout, ShardPolicy, _layout

SPEC = ModelSpec.of(
    {"weight": np.ones((30, 3), "f4"), "mean": np.ones(17, "f4"), "bias": np.ones(3, "f4")}, roles={"mean": "buffer"}
)
SEED = public_root(5)


def _owners(layout: Layout) -> list[int]:
    return [*layout.trainable.owners_of(np.arange(93)), *layout.buffers.owners_of(np.arange(17))]


def test_a_layout_covers_trainable_values_and_buffers() -> None:
    layout = ShardPolicy(SPEC, 4, SEED).layout(0)
    assert (layout.trainable.n, layout.buffers.n, layout.n, layout.shards) == (93, 17, 110, 4)
    assert sum(layout.size(shard) for shard in range(4)) == 110


@pytest.mark.parametrize("kind", ["random", "contiguous", "tensor"])
def test_every_kind_is_fixed_for_the_run_by_default(kind: str) -> None:
    policy = ShardPolicy(SPEC, 4, SEED, kind=kind)  # type: ignore[arg-type]
    assert _owners(policy.layout(0)) == _owners(policy.layout(1_000))
    assert policy.draw(1_000) == 0
    assert policy.assignment(0, [3, 5, 7, 9]) == policy.assignment(1_000, [3, 5, 7, 9]) == (3, 5, 7, 9)


def test_trainable_values_and_buffers_are_drawn_apart() -> None:
    spec = ModelSpec.of({"a": np.ones(40, "f4"), "b": np.ones(40, "f4")}, roles={"b": "buffer"})
    layout = ShardPolicy(spec, 4, SEED).layout(0)
    every = np.arange(40)
    assert not np.array_equal(layout.trainable.owners_of(every), layout.buffers.owners_of(every))


def test_redraw_changes_every_so_many_rounds() -> None:
    policy = ShardPolicy(SPEC, 4, SEED, schedule="redraw", every=3)
    maps = [_owners(policy.layout(round)) for round in range(9)]
    assert [policy.draw(round) for round in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert maps[0] == maps[1] == maps[2]
    assert len({tuple(owners) for owners in maps}) == 3


def test_redrawn_plans_are_found_again_in_any_order() -> None:
    policy = ShardPolicy(SPEC, 4, SEED, schedule="redraw")
    forwards = [_owners(policy.layout(round)) for round in range(6)]
    assert [_owners(policy.layout(round)) for round in reversed(range(6))] == forwards[::-1]


def test_rotate_keeps_the_shards_and_moves_their_aggregators() -> None:
    policy = ShardPolicy(SPEC, 3, SEED, schedule="rotate", every=2)
    assert _owners(policy.layout(0)) == _owners(policy.layout(5))
    turns = [policy.assignment(round, [10, 20, 30]) for round in range(7)]
    assert turns == [(10, 20, 30)] * 2 + [(20, 30, 10)] * 2 + [(30, 10, 20)] * 2 + [(10, 20, 30)]


def test_a_layout_is_made_once_for_all_peers_of_a_process() -> None:
    _layout.cache_clear()
    first = ShardPolicy(SPEC, 4, SEED).layout(0)
    assert ShardPolicy(SPEC, 4, public_root(5)).layout(9) is first
    assert _layout.cache_info().misses == 1


def test_the_cache_holds_the_plan_in_force_and_the_one_before() -> None:
    _layout.cache_clear()
    policy = ShardPolicy(SPEC, 4, SEED, schedule="redraw")
    for round in range(10):
        policy.layout(round)
        policy.layout(max(round - 1, 0))  # a late message of the last round
        policy.layout(round)
    assert _layout.cache_info().misses == 10
    assert _layout.cache_info().currsize == 2


def test_capacities_reach_both_plans() -> None:
    layout = ShardPolicy(SPEC, 2, SEED, capacities=(3.0, 1.0)).layout(0)
    assert layout.trainable.sizes.tolist() == [70, 23]
    assert layout.buffers.sizes.tolist() == [13, 4]


def test_blocks_reach_the_plan() -> None:
    plan = ShardPolicy(SPEC, 2, SEED, block=31).layout(0).trainable
    owners = plan.owners_of(np.arange(93)).reshape(3, 31)
    assert (owners == owners[:, :1]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "stripes"}, "'stripes'"),
        ({"schedule": "sometimes"}, "'sometimes'"),
        ({"every": 0}, "shards.every is 0"),
        ({"shards": 0}, "0 shards"),
        ({"block": 0}, "blocks of 0"),
        ({"capacities": (1.0,)}, "1 capacities for 4 shards"),
        ({"capacities": (1.0, 1.0, 1.0, 1.0), "schedule": "rotate"}, "shards that rotate"),
    ],
)
def test_impossible_settings_are_refused_at_once(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ShardPolicy(**{"spec": SPEC, "shards": 4, "seed": SEED, **settings})  # type: ignore[arg-type]


def test_one_aggregator_for_each_shard() -> None:
    with pytest.raises(ConfigError, match="2 aggregators for 4 shards"):
        ShardPolicy(SPEC, 4, SEED).assignment(0, [1, 2])
