"""Guesses, curves, bounds and intervals: what a perfect, a random and a tied attacker must come to."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.audit.canaries import plant, toss
from eris.audit.intervals import (
    area_interval,
    epsilon_lower_bound,
    guesses_interval,
    placements,
    rate_interval,
    t_quantile,
)
from eris.audit.membership_run import _pooled as pooled_area
from eris.audit.scoring import (
    STATISTICS,
    ScoreSheet,
    area,
    by_member,
    by_round,
    detection,
    epsilon,
    figures,
    guess,
    guess_counts,
    guessing,
    interval_of_accuracy,
    interval_of_area,
    pooled,
    standardised,
    true_positive_rate,
)
from eris.errors import ConfigError, InputError
from eris.seeds import private_root, public_root

SEED = public_root(5)


def coins_of(members: int, canaries: int, seed: int = 0) -> list[np.ndarray]:
    return [toss(private_root(seed, member), canaries) for member in range(members)]


@pytest.mark.parametrize(
    ("canaries", "counts"), [(4, (2, 1)), (8, (3, 2)), (16, (6, 5)), (32, (11, 10)), (64, (22, 21)), (128, (43, 42))]
)
def test_the_table_of_guesses(canaries, counts):
    assert guess_counts(canaries) == counts
    guesses = guess(np.arange(float(canaries)), np.zeros(canaries))
    assert ((guesses == 1).sum(), (guesses == -1).sum()) == counts
    assert guesses[-1] == 1
    assert guesses[0] == -1


@given(st.integers(1, 200))
def test_there_are_never_more_guesses_than_canaries(canaries):
    called_in, called_out = guess_counts(canaries)
    assert called_in >= 1
    assert called_out >= 0
    assert called_in + called_out <= canaries
    assert (called_out == 0) == (canaries <= 3)


def test_a_chance_attacker_is_right_as_often_as_it_must_be():
    """With a share q of heads the mean is (in·q + out·(1 − q)) / (in + out)."""
    coins = np.zeros(16, bool)
    coins[:12] = True
    generator = np.random.default_rng(3)
    guesses = guess(generator.random((20_000, 16)), generator.random(16))
    right = (guesses == np.where(coins, 1, -1)).sum(axis=1).mean() / 11
    assert right == pytest.approx((6 * 0.75 + 5 * 0.25) / 11, abs=0.003)


def test_equal_scores_are_ordered_by_their_keys_not_by_their_place():
    scores, generator = np.zeros(8), np.random.default_rng(1)
    called_in = [np.flatnonzero(guess(scores, generator.random(8)) == 1) for _ in range(4000)]
    often = np.bincount(np.concatenate(called_in), minlength=8) / 4000
    assert often == pytest.approx(np.full(8, 3 / 8), abs=0.05)


@pytest.mark.parametrize(
    ("counts", "delta", "expected"),
    [
        ((4, 3, 3), 1e-5, 0.0),
        ((8, 5, 5), 1e-5, 0.1974),
        ((16, 11, 11), 1e-5, 1.1609),
        ((32, 21, 21), 1e-5, 1.8742),
        ((64, 43, 43), 1e-5, 2.6271),
        ((128, 85, 85), 1e-5, 3.3242),
        ((64, 43, 35), 1e-5, 0.7963),
        ((128, 85, 60), 1e-5, 0.4641),
        ((1000, 666, 500), 0.0, 0.9526),
        ((1000, 1000, 1000), 0.0, 5.8091),
    ],
)
def test_the_bound_on_epsilon(counts, delta, expected):
    assert epsilon_lower_bound(*counts, delta=delta) == pytest.approx(expected, abs=5e-5)


def test_the_bound_refuses_impossible_counts():
    with pytest.raises(InputError, match="m ≥ r ≥ v"):
        epsilon_lower_bound(10, 5, 6)


@pytest.mark.parametrize(("hits", "count"), [(0, 9), (9, 9), (3, 17), (40, 43)])
def test_the_exact_interval_agrees_with_the_beta_distribution(hits, count):
    from scipy.stats import beta

    low, high = rate_interval(hits, count)
    assert low == pytest.approx(beta.ppf(0.025, hits, count - hits + 1) if hits else 0.0, abs=1e-9)
    assert high == pytest.approx(beta.ppf(0.975, hits + 1, count - hits) if hits < count else 1.0, abs=1e-9)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30))
def test_the_area_is_the_chance_that_a_pair_is_in_order(pairs):
    scores, coins = np.array([float(s) for s, _ in pairs]), np.array([c for _, c in pairs])
    inside, outside = scores[coins], scores[~coins]
    expected = 0.5
    if len(inside) and len(outside):
        above, equal = inside[:, None] > outside, inside[:, None] == outside
        expected = (above + 0.5 * equal).mean()
    assert area(scores, coins[None])[0] == pytest.approx(expected)


def test_the_true_positive_rate_keeps_the_false_positives_down():
    scores, coins = np.arange(200.0), np.zeros((1, 200), bool)
    coins[0, 100:] = True
    coins[0, 150] = False  # one other stands in the middle of the included ones
    keys = np.zeros(200)
    assert true_positive_rate(scores, coins, 0.001, keys)[0] == pytest.approx(49 / 99)
    assert true_positive_rate(scores, coins, 0.01, keys)[0] == 1.0


def test_true_positives_are_measured_only_where_there_are_ten_false_ones_to_allow():
    """1 % takes a thousand non-members, of all runs together; 0.1 % ten thousand."""
    coins = coins_of(8, 128)
    sheet = ScoreSheet.of([(np.broadcast_to(toss * 1.0, (1, 2, 128))) for toss in coins], SEED)
    outside = sum(int((~toss).sum()) for toss in coins)
    assert outside < 1000 < 2 * outside
    alone, together = detection([sheet], [coins]), detection([sheet, sheet], [coins, coins])
    assert alone["1 %"] == {"value": None, "non_members": outside, "needed": 1000}
    assert together["1 %"] == {"value": 1.0, "non_members": 2 * outside, "needed": 1000}
    assert together["0.1 %"]["value"] is None
    blind = ScoreSheet.of([np.zeros((1, 2, 128)) for _ in coins], SEED)
    assert detection([blind, blind], [coins, coins])["1 %"]["value"] < 0.05


def test_scores_without_any_difference_say_nothing():
    assert standardised(np.full((2, 5), 0.1)).tolist() == [[0.0] * 5] * 2
    assert np.isnan(standardised(np.full(4, np.nan))).all()
    assert standardised(np.array([1.0, 3.0])).tolist() == [-1.0, 1.0]


def test_a_perfect_attacker_scores_what_it_must():
    coins = coins_of(6, 16)
    sheet = ScoreSheet.of([np.broadcast_to(toss * 1.0, (3, 2, 16)) for toss in coins], SEED)
    found = figures(sheet, coins, SEED, tosses=199)
    assert found["auc"].value == 1.0
    assert found["auc"].p_value == 1 / 200
    # Guesses go to thirds: where heads are rarer than a third of the canaries, some of the guesses must be wrong.
    right = sum(min(6, toss.sum()) + min(5, 16 - toss.sum()) for toss in coins)
    assert found["accuracy"].value == found["paper_mean"].value == pytest.approx(right / 66)
    assert guessing(sheet, coins) == (right, 66)
    assert by_round(sheet, coins) == pytest.approx([right / 66] * 3)
    assert by_member(sheet, coins) == pytest.approx(
        [(min(6, toss.sum()) + min(5, 16 - toss.sum())) / 11 for toss in coins]
    )
    assert epsilon(sheet, coins, delta=1e-5)["lower_bound"] > 1.0


def test_a_random_attacker_stays_at_chance():
    coins, generator = coins_of(10, 32), np.random.default_rng(9)
    sheet = ScoreSheet.of([generator.random((6, 3, 32)) for _ in coins], SEED)
    found = figures(sheet, coins, SEED, tosses=400)
    assert set(found) == set(STATISTICS)
    assert all(figure.p_value > 0.01 for figure in found.values())
    assert found["auc"].chance == pytest.approx(0.5, abs=0.01)
    assert found["paper_mean"].chance > 0.51  # the best of six rounds is above one half without any leak
    assert found["paper_max"].chance > found["paper_mean"].chance
    assert found["accuracy"].low <= found["accuracy"].value <= found["accuracy"].high
    assert epsilon(sheet, coins, delta=1e-5)["lower_bound"] == 0.0


def test_the_held_out_round_is_not_too_good():
    coins, generator = coins_of(10, 32), np.random.default_rng(2)
    sheet = ScoreSheet.of([generator.random((40, 1, 32)) for _ in coins], SEED)
    found = figures(sheet, coins, SEED, tosses=400)
    assert found["held_out_round"].chance == pytest.approx(0.5, abs=0.01)
    assert found["paper_mean"].chance > 0.54


def test_canaries_are_chosen_and_tossed_for_every_member_by_itself():
    canaries = plant([40, 40, 30], seed=3)
    assert [len(places) for places in canaries.places] == [20, 20, 15]
    assert not np.array_equal(canaries.coins[0], canaries.coins[1])
    assert not np.array_equal(canaries.places[0], canaries.places[1])
    for count, places, coins, kept in zip((40, 40, 30), canaries.places, canaries.coins, canaries.kept, strict=True):
        assert set(kept) == set(range(count)) - set(places[~coins])
    assert all(np.array_equal(a, b) for a, b in zip(plant([40, 40, 30], seed=3).coins, canaries.coins, strict=True))


def test_the_coins_are_fair():
    heads = sum(int(coins.sum()) for coins in plant([64] * 200, seed=1).coins)
    assert abs(heads - 3200) < 4 * 40  # four standard deviations of 6,400 tosses


def test_coins_come_from_private_seeds_only():
    with pytest.raises(InputError, match="private"):
        toss(public_root(1), 8)


def test_too_few_samples_are_refused():
    with pytest.raises(ConfigError, match="at least 8 samples"):
        plant([32, 6], seed=1)


def simulated(generator, *, members, canaries, views, effect, differ=0.0):
    """Return cheap scores of one run: included canaries stand higher by the member's effect, views are half alike."""
    coins = [generator.random(canaries) < 0.5 for _ in range(members)]
    scores = []
    for heads in coins:
        lift = effect * (1 + differ * generator.standard_normal())
        common = generator.standard_normal(canaries)
        own = generator.standard_normal((views, canaries))
        scores.append(standardised(lift * heads + np.sqrt(0.5) * (common + own)))
    return coins, scores


SHAPES = {  # members, canaries, views, effect, how much the effect differs between members
    "null": (8, 16, 4, 0.0, 0.0),
    "null, few members": (5, 12, 2, 0.0, 0.0),
    "weak": (8, 16, 4, 0.5, 0.0),
    "strong": (8, 16, 4, 1.2, 0.0),
    "members differ": (20, 32, 1, 0.4, 1.0),
}


def runs_of(shape, seed=23, count=1000):
    """Yield the coins and scores of so many runs."""
    generator = np.random.default_rng(seed)
    names = ("members", "canaries", "views", "effect", "differ")
    for _ in range(count):
        yield simulated(generator, **dict(zip(names, shape, strict=True)))


def assert_covered(values, bounds):
    """Of 1,000 intervals about 950 hold the mean of all values, and the others miss on either side."""
    low, high = np.array(bounds).T
    truth = np.mean(values)
    assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(0.95, abs=0.015)
    assert np.mean(high < truth) < 0.04
    assert np.mean(low > truth) < 0.04


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_intervals_of_the_area_cover(shape):
    areas, bounds = [], []
    for coins, scores in runs_of(shape):
        areas.append(np.mean([area(part, np.concatenate(coins)[None])[0] for part in pooled(scores)]))
        bounds.append(interval_of_area(scores, coins))
    assert_covered(areas, bounds)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_intervals_of_the_accuracy_cover(shape):
    """Also where members differ, where an interval of independent guesses would cover 86 %."""
    rates, bounds = [], []
    for coins, scores in runs_of(shape):
        sheet = ScoreSheet(tuple(guess(part[None], np.zeros(part.shape[-1])) for part in scores), tuple(scores), ())
        right, guesses = guessing(sheet, coins)
        rates.append(right / guesses)
        bounds.append(interval_of_accuracy(sheet, coins))
    assert_covered(rates, bounds)


@pytest.mark.parametrize("name", ["null", "weak", "strong"])
def test_intervals_of_the_area_over_several_runs_cover(name):
    """`pooled_auc`, from three runs each."""
    found = [
        SimpleNamespace(coins=coins, sheet=SimpleNamespace(last=last))
        for coins, last in runs_of(SHAPES[name], 25, 3000)
    ]
    runs = [pooled_area(found[first : first + 3]) for first in range(0, 3000, 3)]
    assert_covered([run["value"] for run in runs], [(run["low"], run["high"]) for run in runs])


@pytest.mark.parametrize(
    ("hits", "counts"), [((4, 5), (5, 5)), ((2, 7, 6, 0), (8, 8, 8, 0)), ((21,), (30,)), ((9, 9), (9, 9))]
)
def test_the_interval_of_guesses_holds_their_share(hits, counts):
    low, high = guesses_interval(hits, counts)
    assert 0 <= low <= sum(hits) / sum(counts) <= high <= 1
    assert low < high
    if len(hits) == 1 or hits == counts:
        assert (low, high) == rate_interval(sum(hits), sum(counts))


def test_an_area_without_spread_has_an_interval_all_the_same():
    heads, members = np.arange(20) % 2 == 0, np.arange(20) // 4
    assert area_interval(heads * 1.0 + ~heads * 1.0, heads, members) == rate_interval(10, 10)
    assert area_interval(np.zeros(20), heads, members) == pytest.approx((0.0, 1 - rate_interval(10, 10)[0]))
    assert area_interval(np.ones(20), np.ones(20, bool), members) == (0.0, 1.0)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30))
def test_placements_average_to_the_area_from_either_side(pairs):
    scores, coins = np.array([float(s) for s, _ in pairs]), np.array([c for _, c in pairs])
    if coins.all() or not coins.any():
        return
    placed = placements(scores, coins)
    assert placed[coins].mean() == pytest.approx(area(scores, coins[None])[0])
    assert placed[~coins].mean() == pytest.approx(area(scores, coins[None])[0])


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 10, 49, 200])
def test_students_t_is_that_of_scipy(freedom):
    from scipy.stats import t

    assert t_quantile(0.975, freedom) == pytest.approx(t.ppf(0.975, freedom), rel=1e-9)


def test_figures_that_were_selected_have_no_interval():
    coins, generator = coins_of(6, 16), np.random.default_rng(1)
    found = figures(ScoreSheet.of([generator.random((4, 2, 16)) for _ in coins], SEED), coins, SEED, tosses=9)
    assert {name for name, figure in found.items() if figure.low is not None} == {"auc", "accuracy"}
