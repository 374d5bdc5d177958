"""Noise on whole numbers: what is drawn, how much of it, against whom it is worth what."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.aggregate.encoding import FixedPoint, Ring32
from eris.aggregate.fixed_point import RingScale
from eris.errors import ConfigError, InputError
from eris.local.task import LocalResult
from eris.privacy import Accountant, clip_by_norm
from eris.privacy.discrete_gaussian import TAIL, add_discrete_gaussian, discrete_gaussian
from eris.privacy.privacy_loss import exact_epsilon, rdp_epsilon
from eris.privacy.ring_noise import NOISE_ROOM, KeptValues, RingNoise, Sum, Worth, observers, sum_correction
from eris.protocol import steps
from eris.seeds import private_root, public_root
from eris.transforms import chain
from tests.equivalence.case import Case
from tests.equivalence.federation import Federation

ROOT = private_root(11, peer=0)


def probabilities(deviation: float, reach: int) -> np.ndarray:
    """The discrete Gaussian on −reach … reach."""
    found = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * deviation**2))
    return found / found.sum()


# ── what is drawn ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("deviation", [2.0, 8.0, 20.0])
def test_it_is_the_discrete_gaussian_and_not_a_rounded_one(deviation: float) -> None:
    count, reach = 200_000, math.ceil(TAIL * deviation)
    drawn = discrete_gaussian(count, deviation, ROOT)
    rounded = np.rint(ROOT.generator().normal(0, deviation, count)).astype(np.int64)
    expected = count * probabilities(deviation, reach)
    enough = expected > 20
    freedom = int(enough.sum()) - 1

    def chi_square(values: np.ndarray) -> float:
        seen = np.bincount(np.clip(values, -reach, reach) + reach, minlength=2 * reach + 1)
        return float((((seen - expected) ** 2 / expected)[enough]).sum())

    assert chi_square(drawn) < freedom + 4 * math.sqrt(2 * freedom)
    if deviation < 3:  # there rounding shows, so the test can fail
        assert chi_square(rounded) > 3 * freedom


@given(st.floats(8, 2**28), st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_draws_belong_to_an_address_and_stay_within_the_tail(deviation: float, seed: int) -> None:
    own = private_root(seed, peer=1)
    drawn = discrete_gaussian(70_000, deviation, own)
    assert np.abs(drawn).max() <= TAIL * deviation
    assert drawn.std() == pytest.approx(deviation, rel=0.03)
    assert abs(drawn.mean()) < 5 * deviation / math.sqrt(drawn.size)
    assert np.array_equal(drawn[:50_000], discrete_gaussian(50_000, deviation, own))
    assert np.mean(drawn == discrete_gaussian(70_000, deviation, own.child("another"))) < 0.1
    ring = np.arange(70_000, dtype=np.uint32) - np.uint32(7)
    noisy = ring.copy()
    add_discrete_gaussian(noisy, deviation, own)
    assert np.array_equal((noisy - ring).view(np.int32).astype(np.int64), (drawn + 2**31) % 2**32 - 2**31)


def test_noise_that_everybody_could_draw_is_refused() -> None:
    with pytest.raises(InputError, match="private seed"):
        discrete_gaussian(1, 8.0, public_root(1))


# ── how much ─────────────────────────────────────────────────────────────────────────────────────────────────────────

SHIFTED = Case(n=300, buffers=0, members=5, shards=3, exponent=1, gamma=0.25, sparsifier="rand_k", rounds=3)


@pytest.mark.parametrize("case", [SHIFTED, SHIFTED.change(gamma=None, sparsifier="")])
@pytest.mark.parametrize("limit", [1.0, 2.0**12, 2.0**24])
def test_replacing_the_data_moves_a_contribution_by_no_more_than_the_sensitivity(case: Case, limit: float) -> None:
    """Through the real chain, coarse grids included, where rounding is all there is."""
    federation = Federation(case.change(encoding=FixedPoint(limit)), clip_by_norm(1.0))
    plan, noise, random = federation.plan(), RingNoise(1.0, 1.0), np.random.default_rng(5)
    member, scale, weight = federation.members[2], RingScale(limit), plan.weights[2]
    if case.gamma is not None:  # a reference as large as clipped updates are
        reference = next(value for name, value in member.private.items() if name.endswith("reference"))
        reference[:] = random.normal(0, 0.05, reference.size)
    found, bound = 0.0, noise.sensitivity(float(weight), federation.recipe.kept(0), scale)
    for trial in range(60):
        one = random.normal(0, 1, 300) if trial % 2 else random.choice([-1.0, 1.0], 300)
        pair = []
        for update in (one, -one):
            states = (member.private, member.replica.public, private_root(0, 2))
            result = LocalResult(update.astype(np.float32), 1)
            outgoing, buffers = steps.contribute(federation.recipe, 0, 2, result, *states)
            ring = steps.in_fixed_point(federation.recipe, outgoing, buffers, Ring32(limit, weight))
            pair.append(ring.outgoing.packed.symbols.view(np.int32).astype(np.float64))
        found = max(found, float(np.linalg.norm(pair[0] - pair[1])))
    assert found <= bound
    if limit < 2:
        assert found > 0.5 * bound  # it is no idle bound


def test_rounding_is_part_of_it() -> None:
    """On a coarse grid neighbours may differ by a step in every coordinate, far more than their values do."""
    scale, weight, n = RingScale(2.0**30), np.float32(1.0), 10_000  # a grid step is 1
    values = np.full(n, np.float32(0.499))  # just below half a step each
    one = scale.encode(values, weight).values.view(np.int32).astype(float)
    two = scale.encode(values + np.float32(0.002), weight).values.view(np.int32).astype(float)
    moved, bound = float(np.linalg.norm(one - two)), 0.002 * math.sqrt(n)
    without = 2 * bound
    assert moved > without
    assert moved <= RingNoise(1.0, bound).sensitivity(1.0, KeptValues(n), scale)


def test_shares_of_the_smallest_sum_less_its_colluders_are_enough() -> None:
    noise, scale, kept = (
        RingNoise(1.5, 2.0, shares=True, colluders=2),
        RingScale(64.0),
        KeptValues(1000, 5.0, shifted=True),
    )
    weights = [0.1, 0.3, 0.2, 0.05, 0.05, 0.1, 0.2]
    shares = noise.deviations(weights, 5, kept, scale)
    assert len(set(shares)) == 1
    heaviest = noise.sensitivity(0.3, kept, scale)
    assert 3 * shares[0] ** 2 == pytest.approx((1.5 * heaviest) ** 2)
    assert heaviest == pytest.approx(2 * 2.0 * 5.0 * 0.3 * 2**24, rel=1e-3)  # 2·C·w/p in grid steps
    own = RingNoise(1.5, 2.0).deviations(weights, 5, kept, scale)
    assert own == [1.5 * noise.sensitivity(weight, kept, scale) for weight in weights]


@given(st.floats(0.01, 50), st.integers(3, 60), st.booleans(), st.integers(1, 10**7))
@settings(max_examples=60, deadline=None)
def test_the_limit_leaves_room_for_the_tail(multiplier: float, members: int, shares: bool, values: int) -> None:
    noise, weights = RingNoise(multiplier, 1.0, shares=shares, colluders=1), [1 / members] * members
    least, kept = max(3, math.ceil(2 * members / 3)), KeptValues(values)
    limit = noise.least_limit(weights, least, kept)
    room, less = (
        TAIL * math.hypot(*noise.deviations(weights, least, kept, RingScale(each))) for each in (limit, limit / 2)
    )
    assert room <= NOISE_ROOM < less
    assert 2**30 + members + NOISE_ROOM < 2**31  # and no sum comes to the edge of the ring


def test_what_cannot_be_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"a sum may have only 3 members, and 3 of them"):
        RingNoise(1.0, 1.0, shares=True, colluders=3).check_members(3)
    with pytest.raises(ConfigError, match="less than 8") as refused:
        RingNoise(1.0, 1.0).check_grid(7.9)
    assert "server.limit" in refused.value.fix
    with pytest.raises(ConfigError, match="norm is unbounded"):
        RingNoise(1.0, 1.0).check(chain())
    with pytest.raises(ConfigError, match="are sent without noise"):
        Federation(Case(buffers=3, encoding=FixedPoint(), noise=RingNoise(1.0, 1.0)))
    with pytest.raises(ConfigError, match="noise on sums needs fixed point"):
        Federation(Case(buffers=0, noise=RingNoise(1.0, 1.0)))
    with pytest.raises(ConfigError, match="noise multiplier"):
        RingNoise(0.0, 1.0)


# ── what it is worth ─────────────────────────────────────────────────────────────────────────────────────────────────


def delta_of(epsilon: float, masses: np.ndarray, shift: int) -> float:
    """Σ max(P(x) − e^ε·P(x − shift), 0): δ of whole-number noise, exactly as its probabilities say."""
    moved = np.zeros_like(masses)
    moved[shift:] = masses[:-shift]
    return float(np.maximum(masses - math.exp(epsilon) * moved, 0).sum())


def test_a_sum_of_shares_costs_what_the_accountant_says() -> None:
    """The closed form: the probabilities of a sum of five shares, convolved, against ε of one Gaussian."""
    share, members, delta = 8.0, 5, 1e-5
    one = probabilities(share, 100)
    total = one
    for _ in range(members - 1):
        total = np.convolve(total, one)
    shift = round(share * math.sqrt(members))  # sensitivity: a multiplier of about one
    multiplier = share * math.sqrt(members) / shift
    claimed = Accountant.of(multiplier, 1, unit="member", adjacency="replacement").epsilon(delta).value
    exact = exact_epsilon(multiplier**-2, delta)
    assert delta_of(exact * 1.001, total, shift) < delta < delta_of(exact * 0.999, total, shift)
    assert exact < claimed == pytest.approx(rdp_epsilon(multiplier**-2, delta))


def test_opacus_says_the_same() -> None:
    pytest.importorskip("opacus")
    for multiplier, rounds in ((0.7, 3), (1.5, 40), (4.0, 140)):
        noise = RingNoise(multiplier, 1.0, shares=True)
        theirs = Accountant.of(multiplier, rounds, unit="member", adjacency="add-remove").epsilon(1e-5, "opacus-rdp")
        assert noise.spent(rounds, 1e-5).value == pytest.approx(theirs.value, rel=1e-6)


def test_the_correction_for_sums_counts_where_shares_are_fine_and_vanishes_from_eight_steps_on() -> None:
    assert sum_correction(8.0, 1000, 10**12, 1.0) == 1.0
    assert sum_correction(0.7, 10, 1000, 1.0) < 0.9
    assert sum_correction(0.7, 1, 1000, 1.0) == 1.0  # one alone is what it is


@given(
    st.lists(st.floats(0.1, 1), min_size=4, max_size=12), st.integers(1, 3), st.booleans(), st.integers(0, 10**6)
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_who_knows_more_of_the_noise_is_promised_less(weights, colluders, shares, seed) -> None:
    """Against any set of contributors: no smaller sum of honest noise than what is promised."""
    least, random = max(colluders + 1, math.ceil(2 * len(weights) / 3)), np.random.default_rng(seed)
    noise = RingNoise(1.3, 1.0, shares=shares, colluders=colluders)
    worth = observers(noise, weights, least, masked=True)
    assert list(worth.values()) == sorted(worth.values(), reverse=True)
    kept, scale = KeptValues(1), RingScale(1.0)
    deviations = noise.deviations(weights, least, kept, scale)
    known = {"outsider": 0, "member": 1, f"{colluders} members": colluders}
    for _ in range(20):
        size = int(random.integers(least, len(weights) + 1))
        chosen = random.choice(len(weights), size, replace=False)
        victim, *others = chosen.tolist()
        for who, count in known.items():
            if who in worth and count < size:
                hidden = math.hypot(deviations[victim], *(deviations[k] for k in others[count:]))
                assert hidden / noise.sensitivity(weights[victim], kept, scale) >= worth[who] * (1 - 1e-6)
        own = deviations[victim] / noise.sensitivity(weights[victim], kept, scale)
        assert own >= worth["aggregator with unmaskers"] * (1 - 1e-6)
    if shares and colluders > 1:
        assert worth[f"{colluders} members"] == pytest.approx(1.3)


def line(counts: list[int], *, lost: int = 0, members: int = 6) -> dict:
    roster = [{"peer": peer, "weight": 1.0} for peer in range(members)]
    shards = [{"contributors": list(range(count)), "lost": ""} for count in counts] + [
        {"contributors": [], "lost": "unmask"} for _ in range(lost)
    ]
    plan = {"roster": roster, "participants": list(range(members)), "min_contributors": 3, "unmaskers": [1]}
    return {"plan": plan, "verdict": {"shards": shards}}


def test_what_was_sent_counts_and_more_members_than_promised_are_worth_more() -> None:
    noise = RingNoise(2.0, 1.0, shares=True, colluders=1)

    def worth(*lines: dict, rounds: int) -> Worth:
        sums = [Sum.of_line(each) for each in lines]
        return Worth.of(noise, sums, rounds=rounds, delta=1e-5, masked=True, values=100)

    full, small = worth(line([6, 6]), rounds=1), worth(line([6, 4]), rounds=1)
    assert full.promised == small.promised
    assert full.realised.value < small.realised.value == pytest.approx(full.promised["outsider"].value)
    assert worth(line([6], lost=1), rounds=1) == small  # of a lost shard the fewest members are assumed
    assert worth(line([6]), rounds=3).realised.value > full.realised.value  # sent twice more, and never published
    assert full.promised["member"].value == pytest.approx(noise.spent(1, 1e-5).value)
    assert "aggregator with unmaskers" in str(full)
