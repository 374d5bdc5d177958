import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.data import partition
from eris.data.partition import _proportional
from eris.errors import ConfigError, DataError
from eris.seeds import public_root

LABELS = np.arange(3000) % 10
KINDS = ["iid", "dirichlet", "label-skew", "quantity-skew", "natural"]


def divide(kind="iid", members=7, seed=1, **options):
    ids = np.arange(3000) // 30
    return partition(LABELS, members, public_root(seed), kind=kind, ids=ids, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_has_one_owner(kind):
    shares = divide(kind)
    everything = np.concatenate(shares.train)
    assert sorted(everything) == list(range(3000))


@pytest.mark.parametrize("kind", KINDS)
def test_equal_seeds_equal_partition(kind):
    one, same, other = divide(kind, validation=0.3), divide(kind, validation=0.3), divide(kind, seed=2, validation=0.3)
    for first, second in zip(one.train + one.validation, same.train + same.validation, strict=True):
        assert np.array_equal(first, second)
    assert any(not np.array_equal(a, b) for a, b in zip(one.train, other.train, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_samples_and_validation_are_apart(kind):
    shares = divide(kind, samples=20, validation=0.3)
    for train, held in zip(shares.train, shares.validation, strict=True):
        assert len(train) <= 20
        assert len(held) == int(len(train) * 0.3 + 1e-9)
        assert not set(train) & set(held)


def test_iid_parts_are_equal():
    assert sorted(map(len, divide(members=7).train)) == [428, 428, 428, 429, 429, 429, 429]


def test_samples_are_the_beginning_of_the_whole_part():
    """More samples per member add to the ones there were: curves over N are comparable."""
    few, many = divide(samples=8), divide(samples=32)
    for short, long in zip(few.train, many.train, strict=True):
        assert np.array_equal(short, long[:8])


def test_what_a_member_has_bounds_its_samples():
    shares = divide("quantity-skew", samples=10**6, validation=0.5)
    for train, held in zip(shares.train, shares.validation, strict=True):
        assert len(held) == len(train) // 2
    assert sum(map(len, shares.train + shares.validation)) > 2900


@given(st.integers(1, 500), st.integers(1, 30), st.floats(0.05, 10), st.integers(0, 50))
@settings(max_examples=60, deadline=None)
def test_dirichlet_counts_sum_to_the_class_and_follow_the_proportions(total, members, alpha, seed):
    counts = _proportional(total, members, alpha, public_root(seed))
    assert counts.sum() == total
    assert counts.min() >= 0
    shares = public_root(seed).generator().dirichlet(np.full(members, alpha))
    floors = np.floor(total * shares)
    grown = np.flatnonzero(counts != floors)
    # Only the smallest are filled up: whoever grew ends no higher than one above anybody who was smaller.
    if len(grown):
        assert counts[grown].max() <= counts.min() + 1


def test_dirichlet_is_skewed_by_alpha():
    def spread(alpha):
        parts = divide("dirichlet", members=5, alpha=alpha).train
        return np.std([np.bincount(LABELS[part], minlength=10) for part in parts])

    assert spread(0.1) > 2 * spread(100)


def test_label_skew_gives_exactly_so_many_classes():
    shares = divide("label-skew", members=10, classes_per_member=3)
    assert all(len(set(LABELS[part])) == 3 for part in shares.train)
    assert sorted(map(len, shares.train)) == [300] * 10  # every class has three holders


def test_natural_ids_stay_whole():
    ids = np.arange(3000) // 30
    owners = [set(ids[part]) for part in divide("natural").train]
    assert sum(map(len, owners)) == 100
    assert len(set.union(*owners)) == 100


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"kind": "iid", "members": 3001}, ConfigError),
        ({"kind": "nonsense"}, ConfigError),
        ({"kind": "dirichlet", "alpha": 0.0}, ConfigError),
        ({"kind": "label-skew", "classes_per_member": 11}, ConfigError),
        ({"kind": "natural", "members": 101}, ConfigError),
        ({"samples": 0}, ConfigError),
        ({"validation": -0.1}, ConfigError),
        ({"kind": "quantity-skew", "alpha": 0.001, "members": 100}, DataError),
    ],
)
def test_impossible_wishes_are_refused(options, error):
    with pytest.raises(error):
        divide(**options)


def test_natural_split_needs_ids():
    with pytest.raises(DataError, match="natural ids"):
        partition(LABELS, 3, public_root(0), kind="natural")
