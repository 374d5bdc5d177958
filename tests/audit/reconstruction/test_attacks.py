"""The attacks themselves: a part of the update is enough, if only that part is matched."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.audit.reconstruction import RECONSTRUCTION_ATTACKS, Handling, LocalSteps, reconstruction_attack
from eris.audit.reconstruction.rank_one import complete
from eris.errors import ConfigError, InputError
from eris.seeds import public_root
from tests.audit.reconstruction.small_world import SHAPE, difference, digits, observation_of, world

SEARCHES = ["boxed", "dlg", "gauss-newton", "idlg"]
SEED = public_root(3)


def attack(name, observation, *, mode="mask-aware", **options):
    return reconstruction_attack(name, **options).recover(observation, world(), mode=mode, seed=SEED)


def pairs(count):
    return list(zip(*digits(count), strict=True))


@pytest.mark.parametrize("name", SEARCHES)
def test_with_everything_seen_picture_and_label_are_recovered(name):
    for picture, label in pairs(2):
        found = attack(name, observation_of(world(), picture[None], [label]))
        assert found.images.shape == (1, *SHAPE)
        assert found.images.dtype == np.float32
        assert found.labels.tolist() == [label]
        assert difference(picture, found.images[0]) < 1e-3
        assert found.trace


@pytest.mark.parametrize("aggregators", [2, 4, 8])
@pytest.mark.parametrize("name", ["boxed", "gauss-newton", "idlg"])
def test_a_part_is_enough_for_whoever_matches_that_part_only(name, aggregators):
    (_, (picture, label)) = pairs(2)
    observation = observation_of(world(), picture[None], [label], aggregators=aggregators, seed=1)
    assert difference(picture, attack(name, observation, restarts=8).images[0]) < 1e-3
    few = {"restarts": 1, "steps": 20 if name == "gauss-newton" else 200}
    assert difference(picture, attack(name, observation, mode="zero-filled", **few).images[0]) > 0.02


@pytest.mark.parametrize("name", [*SEARCHES, "inverting-gradients", "rank-one"])
def test_values_that_say_nothing_give_nothing(name):
    for number, (picture, label) in enumerate(pairs(2)):
        observation = observation_of(world(), picture[None], [label]).randomised(public_root(number))
        few = 10 if name == "gauss-newton" else 60
        options = {} if name == "rank-one" else {"restarts": 1, "steps": few}
        assert difference(picture, attack(name, observation, **options).images[0]) > 0.02


@pytest.mark.parametrize("name", sorted(RECONSTRUCTION_ATTACKS))
def test_the_same_seed_gives_the_same_bits(name):
    if name not in {*SEARCHES, "inverting-gradients", "rank-one"}:
        pytest.skip("needs a trained network")
    pictures, labels = digits(1)
    observation = observation_of(world(), pictures, labels, aggregators=4)
    options = {} if name == "rank-one" else {"steps": 40}
    first, second = (attack(name, observation, **options) for _ in range(2))
    assert np.array_equal(first.images, second.images)
    assert first.loss == second.loss or name == "rank-one"


def test_direction_and_smoothness_find_the_way_too():
    pictures, labels = digits(1)
    observation = observation_of(world(), pictures, labels, aggregators=2)
    found = attack("inverting-gradients", observation, steps=250, smoothness=1e-4)
    assert difference(pictures[0], found.images[0]) < 0.01
    filled = attack("inverting-gradients", observation, steps=250, smoothness=1e-4, mode="zero-filled")
    assert difference(pictures[0], filled.images[0]) > 0.02


def test_a_clipped_update_is_inverted_as_a_clipped_one():
    pictures, labels = digits(1)
    handling = Handling(clip=0.05)
    observation = observation_of(world(), pictures, labels, aggregators=2, handling=handling)
    assert difference(pictures[0], attack("boxed", observation).images[0]) < 1e-3
    unaware = observation_of(world(), pictures, labels, aggregators=2, handling=handling)
    object.__setattr__(unaware, "handling", Handling())
    assert difference(pictures[0], attack("boxed", unaware).images[0]) > 0.01


def test_several_samples_and_several_steps_are_inverted_together():
    pictures, labels = digits(2)
    local = LocalSteps(lr=0.5, steps=2, samples=2, batch=2)
    found = attack("boxed", observation_of(world(), pictures, labels, local=local), steps=900)
    assert sorted(found.labels) == sorted(labels)
    differences = [[difference(picture, image) for image in found.images] for picture in pictures]
    assert max(min(row) for row in differences) < 5e-3


@pytest.mark.parametrize("samples", [1, 2])
def test_the_curvature_reaches_what_float32_leaves_in_a_handful_of_steps(samples):
    pictures, labels = digits(samples)
    observation = observation_of(world(), pictures, labels, aggregators=4)
    found = reconstruction_attack("gauss-newton").recover(observation, world(), seed=SEED, labels=labels)
    assert max(difference(*pair) for pair in zip(pictures, found.images, strict=True)) < 1e-8
    assert len(found.trace) < 40


def test_a_jacobian_beyond_memory_is_refused(monkeypatch):
    monkeypatch.setattr("eris.audit.reconstruction.gauss_newton._MOST_VALUES", 100)
    with pytest.raises(InputError, match="the Jacobian of 64 pixels would take"):
        attack("gauss-newton", observation_of(world(), *digits(1)))


def test_told_labels_are_used():
    pictures, labels = digits(1)
    observation = observation_of(world(), pictures, labels)
    wrong = (labels + 1) % 10
    found = reconstruction_attack("idlg", steps=20).recover(observation, world(), seed=SEED, labels=wrong)
    assert found.labels.tolist() == wrong.tolist()


@pytest.mark.parametrize("aggregators", [2, 4, 8])
def test_a_fully_connected_layer_is_read_off_without_a_search(aggregators):
    pictures, labels = digits(5)
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        observation = observation_of(world(), picture[None], [label], aggregators=aggregators, seed=number)
        found = attack("rank-one", observation)
        near = np.abs(found.images[0] - picture) < 1e-3
        # A pixel stays grey only if none of its 32 values was seen: (1 − 1/A)^32 of them.
        assert near.mean() >= 1 - (1 - 1 / aggregators) ** 32 - 0.06
        assert found.labels.tolist() == [label]


@given(st.data())
def test_connected_values_of_a_rank_one_matrix_give_all_of_it(data):
    rows, columns = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    factor = st.floats(0.5, 2).map(lambda size: size) | st.floats(-2, -0.5)
    delta = np.array(data.draw(st.lists(factor, min_size=rows, max_size=rows)))
    h = np.array(data.draw(st.lists(factor, min_size=columns, max_size=columns)))
    seen = np.array(data.draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns)))
    seen = seen.reshape(rows, columns)
    bias = np.where(np.arange(rows) == 0, delta, np.nan)
    found = complete(np.where(seen, np.outer(delta, h), np.nan), bias)
    reached = _reached(seen)
    for column in range(columns):
        if reached[rows + column]:
            assert found.columns[column] == pytest.approx(h[column], rel=1e-9)
        else:
            assert np.isnan(found.columns[column])
    assert np.array_equal(np.isfinite(found.rows), reached[:rows])


def _reached(seen):
    """Return which rows, then columns, are connected to the first row by seen values."""
    rows, columns = seen.shape
    reached = np.zeros(rows + columns, bool)
    reached[0] = True
    for _ in range(rows + columns):
        for row, column in zip(*np.nonzero(seen), strict=True):
            if reached[row] or reached[rows + column]:
                reached[row] = reached[rows + column] = True
    return reached


def test_what_an_attack_cannot_do_it_refuses():
    pictures, labels = digits(2)
    with pytest.raises(InputError, match="more than one rank"):
        attack("rank-one", observation_of(world(), pictures, labels))
    with pytest.raises(ConfigError, match="no attack"):
        reconstruction_attack("psychic")


@pytest.mark.slow
@pytest.mark.parametrize("aggregators", [1, 2, 4, 8])
def test_fifty_pictures_are_recovered_from_every_share(aggregators):
    pictures, labels = digits(50)
    recovered = 0
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        observation = observation_of(world(), picture[None], [label], aggregators=aggregators, seed=number)
        recovered += difference(picture, attack("idlg", observation, restarts=8).images[0]) < 1e-3
    assert recovered >= 40
