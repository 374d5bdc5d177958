"""Members with models of their own: what they send, and what becomes of it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.config import load_config
from eris.errors import ConfigError
from eris.local.spec import ModelSpec
from eris.methods import method_by_name
from eris.methods.gossip import mean_of
from eris.methods.graph import regular_graph
from eris.seeds import public_root

K, N = 7, 61
SPEC = ModelSpec.flat(N)


def make(method, *changes, members=K, spec=SPEC):
    config = load_config(changes=[f"members={members}", f"method={method}", *changes])
    return method_by_name(method).exchange(config, spec, public_root(config.seed))


def scene(members=K, n=N):
    generator = np.random.default_rng(5)
    return generator.standard_normal((2, members, n)).astype(np.float32)


def played(exchange, rounds=1, *, still=True):
    models, updates = scene()
    start, sent = models - updates, []
    for round in range(rounds):
        moved = updates if round == 0 or not still else np.zeros_like(updates)
        exchange.play(round, models, moved, sent.append)
    return start, models, sent


@given(nodes=st.integers(2, 24), degree=st.integers(1, 23), seed=st.integers(0, 99))
def test_a_regular_graph_is_one(nodes, degree, seed):
    if degree >= nodes or nodes * degree % 2:
        with pytest.raises(ConfigError, match="cannot have"):
            regular_graph(nodes, degree, public_root(seed))
        return
    graph = regular_graph(nodes, degree, public_root(seed))
    for node, near in enumerate(graph):
        assert len(set(near)) == len(near) == degree
        assert node not in near
        assert all(node in graph[other] for other in near)


def test_any_two_nodes_are_as_likely_neighbours():
    rounds, nodes, degree = 800, 8, 3
    counts = np.zeros((nodes, nodes))
    for round in range(rounds):
        for node, near in enumerate(regular_graph(nodes, degree, public_root(1).child(round))):
            counts[node, list(near)] += 1
    share, off = degree / (nodes - 1), ~np.eye(nodes, dtype=bool)
    deviation = np.sqrt(rounds * share * (1 - share))
    assert np.abs(counts[off] - rounds * share).max() < 4.5 * deviation  # 56 entries


def test_shatter_with_a_complete_graph_and_one_chunk_is_averaging():
    start, models, sent = played(make("shatter", "baselines.virtual_nodes=1", f"baselines.virtual_degree={K - 1}"))
    np.testing.assert_array_equal(models, np.repeat(mean_of(list(start))[None], K, axis=0))
    assert sorted((m.sender, r) for m in sent for r in m.receivers) == list(itertools.permutations(range(K), 2))


def test_gossip_with_everybody_is_averaging():
    start, models, _ = played(make("gossip"))
    np.testing.assert_array_equal(models, np.repeat(mean_of(list(start))[None], K, axis=0))


def test_shatter_takes_means_of_what_it_got():
    exchange = make("shatter")
    start, models, sent = played(exchange)
    for member, chunk in itertools.product(range(K), range(2)):
        places = exchange.chunks.coordinates(chunk)
        heard = {member} | {m.sender for m in sent if m.chunk == chunk and member in m.receivers}
        np.testing.assert_allclose(
            models[member, places], start[sorted(heard)][:, places].mean(axis=0), rtol=2e-6, atol=1e-6
        )
    assert all(message.sender not in message.receivers for message in sent)
    assert sum(len(message.receivers) for message in sent) <= 4 * 2 * K


def test_shatter_redraws_its_graph_and_keeps_its_chunks():
    exchange = make("shatter")
    assert exchange.receivers(0) != exchange.receivers(1)
    assert exchange.receivers(3) == make("shatter").receivers(3)
    assert sorted(np.concatenate([exchange.chunks.coordinates(c) for c in range(2)])) == list(range(N))


def test_shatter_cuts_within_every_tensor():
    spec = ModelSpec.of({"w": np.zeros((5, 6), np.float32), "b": np.zeros(4, np.float32)})
    chunks = make("shatter", spec=spec).chunks
    assert [np.sum(chunks.coordinates(c) < 30) for c in range(2)] == [15, 15]
    assert chunks.sizes.tolist() == [17, 17]


def test_ako_delivers_every_partition_within_p_rounds():
    exchange = make("ako")
    models, updates = scene()
    before = models[0].copy()
    models[:] = before  # all begin alike
    sent = []
    for round in range(5):
        exchange.play(round, models, updates if round == 0 else np.zeros_like(updates), sent.append)
        assert {message.chunk for message in sent[-K:]} == {round}
    expected = before - sum(np.float32(1 / K) * update for update in updates)
    for model in models:
        np.testing.assert_allclose(model, expected, rtol=1e-5, atol=1e-5)
    assert not exchange.accumulated.any()
    for member in range(K):
        seen = [message.values for message in sorted(sent, key=lambda m: m.chunk) if message.sender == member]
        np.testing.assert_array_equal(np.concatenate(seen), updates[member])


def test_ako_sends_the_sum_of_the_last_p_gradients():
    exchange = make("ako", "baselines.partitions=3", "baselines.ako_combine=sum")
    models, updates = scene()
    sent = []
    for round in range(7):
        exchange.play(round, models, updates, sent.append)
    for message in sent[-3 * K :]:
        np.testing.assert_allclose(
            message.values, 3 * updates[message.sender][exchange.chunks.coordinates(message.chunk)], rtol=1e-6
        )


def test_ako_in_the_original_adds_up():
    models, updates = scene()
    one = models.copy()
    make("ako", "baselines.partitions=1", "baselines.ako_combine=sum").play(0, one, updates, lambda message: None)
    np.testing.assert_allclose(one, models - updates.sum(axis=0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("degree", [0, 4])
def test_qdpsgd_with_fine_quantisation_approaches_gossip(degree):
    changes = [f"baselines.degree={degree}", "baselines.consensus=1.0"]
    errors = []
    for levels in (3, 31, 1000, 30000):
        exchange = make("qdpsgd", *changes, f"baselines.levels={levels}")
        models, updates = scene()
        exact = [
            mean_of([models[other] for other in sorted((member, *near))]) - updates[member]
            for member, near in enumerate(exchange.neighbours(0))
        ]
        exchange.play(0, models, updates, lambda message: None)
        errors.append(float(np.abs(models - np.array(exact)).max()))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3 < errors[0]


def test_gossip_brings_members_together_and_keeps_their_mean():
    exchange = make("gossip", "baselines.degree=2")
    models, updates = scene()
    before = models.mean(axis=0)
    for round in range(40):
        exchange.play(round, models, np.zeros_like(updates), lambda message: None)
    np.testing.assert_allclose(models, np.repeat(before[None], K, axis=0), atol=1e-4)


@pytest.mark.parametrize(
    ("method", "changes", "says"),
    [
        ("shatter", ["baselines.virtual_nodes=1", "baselines.virtual_degree=3"], "7 nodes cannot have 3"),
        ("shatter", ["baselines.virtual_nodes=1", "baselines.virtual_degree=8"], "7 nodes cannot have 8"),
        ("gossip", ["baselines.degree=7"], "7 nodes cannot have"),
        ("qdpsgd", ["baselines.degree=3"], "7 nodes cannot have"),
        ("qdpsgd", ["baselines.levels=40000"], "number of levels"),
        ("ako", ["baselines.partitions=62"], "61 coordinates cannot be cut into 62"),
    ],
)
def test_refused(method, changes, says):
    with pytest.raises(ConfigError, match=says):
        make(method, *changes)
