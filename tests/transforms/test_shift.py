"""Shifted compression keeps what it promises (methods: B.1–B.4, B.8)."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.errors import ConfigError
from eris.seeds import public_root
from eris.shards.plan import contiguous, scattered
from eris.transforms import (
    Accepted,
    MeanStretch,
    Shift,
    bernoulli,
    bf16,
    chain,
    gamma_diana,
    gamma_paper,
    identity,
    magnitude_prune,
    qsgd,
    rand_k,
    shift,
    sign,
    top_k,
)
from tests.transforms.federation import (
    Federation,
    WideBernoulli,
    WideIdentity,
    WideRandK,
    WideStratified,
    WideTopK,
)
from tests.transforms.scenes import context, normal

K, N = 5, 24
PLAN = scattered(N, 4, public_root(9))
WEIGHTS = {k: 1.0 + k for k in range(K)}
GOALS = {k: np.random.default_rng(100 + k).standard_normal(N) for k in range(K + 3)}

TABLE = {
    0: (0.70710678, 0.70710678), 1: (0.43301270, 0.86602540), 4: (0.18973666, 0.94868330),
    9: (0.09746794, 0.97467943), 19: (0.04937104, 0.98742088), 30: (0.03199686, 0.99190270),
    100: (0.00987645, 0.99752168), 170: (0.00583940, 0.99853694), 8000: (0.000124980472, 0.99996875),
}  # fmt: skip


def gradients(time, members=range(K)):
    """Updates that drift, so that references always have something to follow."""
    return {k: GOALS[k] * (1 + 0.1 * math.sin(time + k)) for k in members}


# ── γ (B.8.6) ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("omega", "expected"), TABLE.items())
def test_the_table_of_gamma_and_rho(omega, expected):
    gamma = gamma_paper(omega)
    assert gamma == pytest.approx(expected[0], abs=5.1e-9)
    assert gamma * (1 + omega) == pytest.approx(expected[1], abs=5.1e-9)


@given(st.floats(0, 1e9))
def test_the_inequalities_behind_gamma(omega):
    gamma, beta = gamma_paper(omega), 1 / (1 + 2 * omega)
    contraction = (1 + beta) * (1 - 2 * gamma + gamma**2 * (1 + omega))
    assert contraction <= 1 - 1 / (2 * (1 + omega)) + 1e-15
    assert (1 + beta) * gamma**2 * (1 + omega) == pytest.approx(1 / (1 + omega), rel=1e-12)
    assert 1 + 1 / beta == pytest.approx(2 * (1 + omega), rel=1e-12)
    assert 1 / math.sqrt(2) - 1e-12 <= gamma * (1 + omega) < 1


def test_reference_steps():
    assert shift(rand_k(0.1)).reference_step(100) == np.float32(gamma_paper(9))
    assert shift(rand_k(0.1), gamma="diana").reference_step(100) == np.float32(0.1)
    assert shift(rand_k(0.1), gamma=0.3).reference_step(100) == np.float32(0.3)
    assert shift(top_k(0.1), gamma=1).reference_step(100) == 1
    assert gamma_diana(0) == 1
    assert shift(qsgd(4)).reference_step(10**6) == np.float32(gamma_paper(250.0))


@pytest.mark.parametrize("gamma", [0, -1, 1.5, math.nan, "adam", ""])
def test_impossible_gammas(gamma):
    with pytest.raises(ConfigError, match="gamma is"):
        shift(identity(), gamma=gamma)


def test_a_gamma_that_makes_references_diverge_is_refused_where_n_is_known():
    """On a kept coordinate s moves by γn/k times its error: beyond 2 it overshoots further every time."""
    chain(shift(rand_k(0.5), gamma=0.9)).check_length(100)
    chain(shift(identity(), gamma=1)).check_length(100)
    chain(shift(top_k(0.01), gamma=1)).check_length(100)
    diverging = chain(shift(rand_k(0.01), gamma=0.5))
    with pytest.raises(ConfigError, match="references diverge"):
        diverging.check_length(100)
    federation = Federation(shift(WideRandK(0.2), gamma=0.9), PLAN, WEIGHTS)
    for _ in range(100):
        federation.round(gradients(0))
    assert np.abs(federation.own(0)).max() > 1e6


@pytest.mark.parametrize(
    ("compressor", "options", "why"),
    [
        (top_k(0.1), {}, "biased, but gamma is 'paper'"),
        (top_k(0.1), {"gamma": "diana"}, "biased, but gamma"),
        (bf16(), {"gamma": 0.5}, "biased, but gamma"),
        (sign(), {"gamma": 1}, "not a contraction"),
        (magnitude_prune(0.1), {"gamma": 1}, "not a contraction"),
        (top_k(0.1), {"gamma": 1, "shared_reference": True}, "reference is shared"),
        ("rand_k", {}, "not a compressor"),
    ],
)
def test_biased_compressors_need_ef21(compressor, options, why):
    with pytest.raises(ConfigError, match=why):
        shift(compressor, **options)


def test_shifts_need_a_linear_rule_whatever_is_inside():
    assert chain(shift(identity())).needs_linear_rule
    assert not chain(identity()).needs_linear_rule


# ── the invariant s = Σ w_k s_k (B.8.2) ──────────────────────────────────────────────────────────────────────────

COMPRESSORS = [WideIdentity(), WideRandK(0.2), WideBernoulli(0.3), WideStratified(0.3), WideStratified(0.3, True)]
faults = st.lists(st.tuples(st.integers(0, K - 1), st.integers(0, PLAN.shards - 1)), max_size=8).map(frozenset)
one_round = st.tuples(
    st.sets(st.integers(0, K - 1)), faults, st.sets(st.integers(0, PLAN.shards - 1), max_size=2), st.booleans()
)


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
@settings(max_examples=25, deadline=None)
@given(rounds=st.lists(one_round, min_size=1, max_size=12), seed=st.integers(0, 100))
def test_invariant_under_participation_and_loss(compressor, rounds, seed):
    federation = Federation(shift(compressor), PLAN, WEIGHTS, seed=seed)
    for time, (members, links, shards, renormalise) in enumerate(rounds):
        federation.round(gradients(time, members), links=links, shards=shards, renormalise=renormalise)
        assert federation.broken() <= 1e-12


@pytest.mark.parametrize(
    ("compressor", "gamma"),
    [(WideRandK(0.4), "paper"), (WideRandK(0.4), "diana"), (WideRandK(0.4), 0.5), (WideTopK(0.4), 1)],
    ids=repr,
)
def test_invariant_under_joins_leaves_and_weights(compressor, gamma):
    federation = Federation(shift(compressor, gamma=gamma), PLAN, WEIGHTS)
    rosters = [{0: 1, 1: 5, 2: 1, 3: 1, 4: 1, 5: 2}, {0: 1, 2: 1}, {0: 3, 2: 1, 6: 1}]
    for roster in [WEIGHTS, *rosters]:
        federation.new_members(roster)
        assert federation.broken() <= 1e-12
        for _ in range(20):
            federation.round(gradients(federation.time, roster), links=frozenset({(0, federation.time % 4)}))
            assert federation.broken() <= 1e-12


def test_float32_drifts_little_in_a_thousand_rounds():
    federation = Federation(shift(rand_k(0.2)), PLAN, WEIGHTS, dtype=np.float32)
    for time in range(1000):
        members = [k for k in range(K) if (time + k) % 3]
        links = frozenset({(members[0], time % PLAN.shards)})
        updates = {k: g.astype(np.float32) for k, g in gradients(time, members).items()}
        federation.round(updates, links=links)
    largest = max(float(np.abs(federation.own(k)).max()) for k in range(K))
    assert federation.broken() <= 1e-5 * largest


class RenormalisesBoth(Shift):
    """Wrong on purpose: the reference moves by the normalised mean, too."""

    def incoming(self, direction, mean):
        step = self.reference_step(direction.size)
        normalised = direction.copy()
        direction += mean.public_state["reference"]
        mean.public_state["reference"] += step * normalised


class AdvancesWithoutVerdict(Shift):
    """Wrong on purpose: a receipt is taken for a verdict."""

    def settle(self, sent, private, accepted):
        super().settle(sent, private, Accepted(accepted.plan))


@pytest.mark.parametrize("wrong", [RenormalisesBoth, AdvancesWithoutVerdict])
def test_wrong_rules_break_the_invariant(wrong):
    federation = Federation(wrong(WideRandK(0.5)), PLAN, WEIGHTS)
    right = Federation(Shift(WideRandK(0.5)), PLAN, WEIGHTS)
    for time in range(20):
        members = [k for k in range(K) if (time + k) % 2]
        for each in (federation, right):
            each.round(gradients(time, members), links=frozenset({(members[0], 1)}))
    assert right.broken() <= 1e-12
    assert federation.broken() > 1e-2


def test_one_member_alone_cannot_begin_an_epoch():
    """Setting only the returning member's s_k := s leaves a bias for ever; the epoch of all removes it (B.4)."""
    federation = Federation(shift(WideIdentity()), PLAN, WEIGHTS)
    for time in range(10):
        federation.round(gradients(time))
    federation.chain.new_epoch(federation.private[2], federation.public)
    left = federation.broken()
    for time in range(10, 60):
        federation.round(gradients(time))
    assert left > 0.1
    assert federation.broken() == pytest.approx(left, rel=1e-9)
    for private in federation.private.values():
        federation.chain.new_epoch(private, federation.public)
    assert federation.broken() <= 1e-12


def test_a_lost_shard_freezes_both_references():
    federation = Federation(shift(rand_k(0.5)), PLAN, WEIGHTS, dtype=np.float32)
    updates = {k: g.astype(np.float32) for k, g in gradients(0).items()}
    federation.round(updates)
    before = federation.reference.copy(), {k: federation.own(k).copy() for k in range(K)}
    federation.round(updates, shards=frozenset({2}), links=frozenset({(1, 0)}))
    lost, mine = PLAN.coordinates(2), PLAN.coordinates(0)
    assert np.array_equal(federation.reference[lost], before[0][lost])
    assert all(np.array_equal(federation.own(k)[lost], before[1][k][lost]) for k in range(K))
    assert np.array_equal(federation.own(1)[mine], before[1][1][mine])
    assert not np.array_equal(federation.own(0)[mine], before[1][0][mine])


# ── the direction (B.8.3) ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "compressor", [rand_k(0.25), rand_k(0.25, independent=True), bernoulli(0.3), qsgd(4)], ids=repr
)
def test_the_direction_is_the_mean_update_on_average(compressor):
    warm = Federation(shift(compressor), PLAN, WEIGHTS, dtype=np.float32)
    updates = {k: g.astype(np.float32) for k, g in gradients(0).items()}
    for _ in range(3):
        warm.round(updates)
    truth, errors = sum(float(w) * updates[k] for k, w in warm.weights.items()), []
    for draw in range(300):
        trial = Federation(warm.transform, PLAN, WEIGHTS, dtype=np.float32, seed=1000 + draw)
        trial.public["0.reference"][:] = warm.reference
        for k in range(K):
            trial.own(k)[:] = warm.own(k)
        errors.append(trial.round(updates) - truth)
    errors = np.array(errors, np.float64)
    assert (np.abs(errors.mean(axis=0)) <= 4 * errors.std(axis=0) / math.sqrt(300) + 1e-6).all()


@pytest.mark.parametrize("gamma", ["paper", "diana", 0.1])
def test_nothing_compressed_nothing_lost(gamma):
    federation = Federation(shift(WideIdentity(), gamma=gamma), PLAN, WEIGHTS)
    for time in range(30):
        updates = gradients(time)
        direction = federation.round(updates)
        truth = sum(w * updates[k] for k, w in federation.weights.items())
        assert np.abs(direction - truth).max() <= 1e-12


# ── stateless aggregators (B.8.4, B.8.5) ─────────────────────────────────────────────────────────────────────────


def test_the_reference_can_be_rebuilt_from_broadcasts():
    federation = Federation(shift(WideRandK(0.3)), PLAN, WEIGHTS)
    rebuilt, step = np.zeros(N), float(federation.transform.reference_step(N))
    for time in range(40):
        members = [k for k in range(K) if (time + k) % 3]
        direction = federation.round(gradients(time, members))
        rebuilt += step / federation.means[-1].c * (direction - rebuilt)
        assert np.abs(rebuilt - federation.weighted_references()).max() <= 1e-12


def test_a_newcomer_that_saw_the_broadcasts_has_the_same_bits():
    federation = Federation(shift(rand_k(0.3)), PLAN, WEIGHTS, dtype=np.float32)
    for time in range(40):
        federation.round({k: g.astype(np.float32) for k, g in gradients(time).items()})
    newcomer = chain(shift(rand_k(0.3)))
    public = newcomer.public_state(N)
    for mean in federation.means:
        newcomer.incoming(mean, public)
    assert np.array_equal(public["0.reference"], federation.reference)


def test_a_short_mean_moves_the_same_bits_as_a_long_one():
    transform, seed = chain(shift(rand_k(0.3))), public_root(0).child("round", 0)
    long, short = transform.public_state(N), transform.public_state(N)
    mask = rand_k(0.3).mask(N, seed)
    values = np.zeros(N, np.float32)
    values[mask] = normal(mask.size)
    for _ in range(3):
        first = transform.incoming(MeanStretch(values, np.float32(1.25)), long)
        second = transform.incoming(MeanStretch(values, np.float32(1.25), support=mask), short)
        assert np.array_equal(first, second)
    assert np.array_equal(long["0.reference"], short["0.reference"])


@pytest.mark.parametrize("redrawn", [True, False])
def test_a_reference_kept_by_each_aggregator_is_wrong_if_shards_move(redrawn):
    """What the paper writes: s_(a) advances only where a owned the coordinate. Right for fixed shards alone."""
    step, shards = gamma_paper(0), 3
    kept, own = np.zeros((shards, N)), {k: np.zeros(N) for k in range(K)}
    worst = 0.0
    for time in range(20):
        plan = scattered(N, shards, public_root(time if redrawn else 0))
        updates, direction = gradients(time), np.zeros(N)
        sent = {k: updates[k] - own[k] for k in range(K)}
        mean = sum(value for value in sent.values()) / K
        for a in range(shards):
            inside = plan.coordinates(a)
            direction[inside] = kept[a, inside] + mean[inside]
            kept[a, inside] += step * mean[inside]
        for k in range(K):
            own[k] += step * sent[k]
        worst = max(worst, float(np.abs(direction - sum(updates.values()) / K).max()))
    assert worst > 0.3 if redrawn else worst <= 1e-12


def test_the_global_reference_is_right_even_if_shards_move():
    federation = Federation(shift(WideIdentity()), PLAN, WEIGHTS)
    for time in range(20):
        federation.plan = scattered(N, 3, public_root(time))
        updates = gradients(time)
        truth = sum(w * updates[k] for k, w in federation.weights.items())
        assert np.abs(federation.round(updates) - truth).max() <= 1e-12


# ── convergence (B.8.7) and EF21 (B.8.9) ─────────────────────────────────────────────────────────────────────────


def quadratic(k):
    """f_k(x) = ½(x − b)ᵀD(x − b): its gradient."""
    generator = np.random.default_rng(k)
    slope, target = generator.uniform(0.5, 2, N), generator.standard_normal(N)
    return lambda x: slope * (x - target)


def test_references_find_the_gradients_at_the_promised_rate():
    point, rounds, draws = np.ones(N), 8, 200
    goals = {k: quadratic(k)(point) for k in range(K)}
    errors = []
    for seed in range(draws):
        federation = Federation(shift(WideRandK(0.25)), PLAN, WEIGHTS, seed=seed)
        for _ in range(rounds):
            federation.round(goals)
        errors.append(federation.own(0) - goals[0])
    errors, omega = np.array(errors), WideRandK(0.25).omega(N)
    gamma = float(shift(WideRandK(0.25)).reference_step(N))
    expected = -goals[0] * (1 - gamma) ** rounds
    assert (np.abs(errors.mean(axis=0) - expected) <= 4 * errors.std(axis=0) / math.sqrt(draws)).all()
    squared = np.mean(np.sum(errors**2, axis=1)) / np.sum(goals[0] ** 2)
    rate = 1 - 2 * gamma + gamma**2 * (1 + omega)
    assert squared == pytest.approx(rate**rounds, rel=0.15)


def test_references_converge_to_the_gradients():
    federation = Federation(shift(WideRandK(0.25)), PLAN, WEIGHTS)
    goals = {k: quadratic(k)(np.ones(N)) for k in range(K)}
    for _ in range(400):
        federation.round(goals)
    assert max(float(np.abs(federation.own(k) - goals[k]).max()) for k in range(K)) < 1e-9


def largest(vector, k):
    """Top-k in three plain lines."""
    kept = sorted(range(vector.size), key=lambda i: (-abs(vector[i]), i))[:k]
    out = np.zeros_like(vector)
    out[kept] = vector[kept]
    return out


def test_gamma_one_with_top_k_is_ef21():
    weights, rate = dict.fromkeys(range(K), 1.0), 0.2
    federation = Federation(shift(WideTopK(0.25), gamma=1), PLAN, weights)
    ours, theirs = np.full(N, 2.0), np.full(N, 2.0)
    estimates = {k: largest(quadratic(k)(theirs), N // 4) for k in range(K)}  # EF21 begins with C(∇f_k(x⁰))
    for _ in range(300):
        ours = ours - rate * federation.round({k: quadratic(k)(ours) for k in range(K)})
        theirs = theirs - rate * sum(estimates.values()) / K
        assert np.abs(ours - theirs).max() <= 1e-11
        for k in range(K):
            estimates[k] = estimates[k] + largest(quadratic(k)(theirs) - estimates[k], N // 4)
    assert np.abs(sum(quadratic(k)(ours) for k in range(K))).max() < 1e-6


# ── the shared reference ─────────────────────────────────────────────────────────────────────────────────────────


def test_with_a_shared_reference_members_keep_nothing():
    transform = chain(shift(rand_k(0.5), shared_reference=True))
    assert transform.private_state(10) == {}
    public = transform.public_state(10)
    public["0.reference"][:] = normal(10, seed=1)
    sent = transform.outgoing(normal(10), {}, public, context(10)).packed
    plain = rand_k(0.5).compress(normal(10) - normal(10, seed=1), context(10))
    assert np.array_equal(sent.dense(), plain.dense())
    transform.new_epoch({}, public)
    assert np.array_equal(public["0.reference"], normal(10, seed=1))


def test_a_shared_reference_leaves_the_error_of_differing_members():
    """g_k − s does not vanish when members differ, so compression never becomes exact; with own references it does."""
    errors = {}
    for shared in (True, False):
        federation = Federation(shift(WideRandK(0.25), shared_reference=shared), PLAN, WEIGHTS, seed=3)
        goals = {k: quadratic(k)(np.ones(N)) for k in range(K)}
        truth = sum(w * goals[k] for k, w in federation.weights.items())
        for _ in range(400):
            members = [k for k in range(K) if (federation.time + k) % 2]
            direction = federation.round({k: goals[k] for k in members}, renormalise=False)
        errors[shared] = float(np.abs(direction - truth).max())
    assert errors[False] < 1e-6
    assert errors[True] > 1e-2


# ── states and memory ────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_moves_before_the_verdict():
    transform = chain(shift(rand_k(0.5)))
    private, public = transform.private_state(N), transform.public_state(N)
    transform.outgoing(normal(N), private, public, context(PLAN))
    assert not private["0.reference"].any()
    assert not public["0.reference"].any()


@pytest.mark.parametrize("compressor", [rand_k(0.01), identity(), qsgd(7)], ids=repr)
@pytest.mark.parametrize("missing", [(), (2,)])
def test_no_step_takes_more_than_three_vectors(compressor, missing):
    n = 1_000_000
    plan = contiguous(n, 5)
    transform = chain(shift(compressor))
    private, public, update = transform.private_state(n), transform.public_state(n), normal(n)
    mask = compressor.mask(n, context(plan).public) if compressor.sparse else None
    peaks = []
    tracemalloc.start()
    for step in ("outgoing", "settle", "incoming"):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        if step == "outgoing":
            outgoing = transform.outgoing(update, private, public, context(plan))
        elif step == "settle":
            transform.settle(outgoing, private, Accepted(plan, missing))
        else:
            transform.incoming(MeanStretch(update, support=mask, lost=missing), public)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    assert max(peaks) <= 3 * 4 * n
    if compressor.sparse:
        assert peaks[1] < 4 * n / 5  # what was sent, not what could have been
