"""Values on a grid: an attacker knows how far from them the true ones can be."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from eris.audit.reconstruction import UpdateObservation
from eris.audit.reconstruction.boxed import Boxed
from eris.audit.reconstruction.matching import Matching, OneStepMatching
from eris.audit.reconstruction.observation import Rounding, grid_of, rounding_of
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.small_networks import SigmoidLeNet
from eris.data import mnist_sample
from eris.errors import InputError
from eris.local.torch_module import FlatModule
from eris.seeds import public_root
from eris.transforms import qsgd, qsgd_max, rand_k, terngrad, uniform
from tests.audit.reconstruction.small_world import difference, digits, observation_of, world
from tests.audit.reconstruction.test_collect import seen_by

COMPRESSED = ("method=fedavg+compression", "compression.options={levels=16}")


def rounded(observation: UpdateObservation, compressor, public) -> UpdateObservation:
    """Return the sight of values that were rounded to a grid of each tensor, to the nearest or at random."""
    starts = np.concatenate([[0], np.cumsum(public.spec.trainable_sizes)])
    values, draws = observation.values.copy(), np.random.default_rng(3)
    for first, stop in pairwise(starts):
        part = values[first:stop]
        unit = np.abs(part).max() / np.float32(compressor.top)
        below = np.floor(part / unit)
        coin = draws.random(part.size) if compressor.unbiased else 0.5
        values[first:stop] = unit * (below + (part / unit - below > coin))
    return replace(observation, values=values, rounding=rounding_of(compressor, public.spec, observation.seen, values))


def large_world() -> PublicModel:
    before = torch.get_rng_state()
    torch.manual_seed(3)
    module = SigmoidLeNet()
    torch.set_rng_state(before)
    return PublicModel(
        module, FlatModule(module).vector.copy(), shape=(1, 28, 28), classes=10, mean=(0.13,), std=(0.31,)
    )


@pytest.fixture(scope="module")
def exact():
    return seen_by("server", "method=fedavg")


@pytest.mark.parametrize(("name", "reach", "at_random"), [("uniform", 0.5, False), ("qsgd_max", 1.0, True)])
def test_the_grid_of_a_run_is_read_off_what_was_sent(exact, name, reach, at_random):
    for victim, collected in seen_by("server", *COMPRESSED, f"compression.compressor={name}").items():
        observation, true = collected.observation, exact[victim].observation.values
        assert observation.rounding is not None
        assert observation.rounding.at_random is at_random
        multiples = observation.values / observation.rounding.units
        assert np.allclose(multiples, np.rint(multiples), atol=1e-3)
        assert np.abs(multiples).max() == pytest.approx(15, abs=0.01)
        assert (np.abs(true - observation.values) <= (reach + 1e-3) * observation.rounding.units).all()


def test_a_part_of_a_rounded_update_has_its_grid_too(exact):
    changes = ("method=eris+dsc", "aggregators=2", "compression.compressor=qsgd_max", "compression.options={levels=64}")
    for victim, collected in seen_by("aggregator", *changes).items():
        observation = collected.observation
        true = exact[victim].observation.values[observation.seen]
        assert (np.abs(true - observation.values) <= 1.001 * observation.rounding.units).all()


@pytest.mark.parametrize("method", ["method=fedavg", "method=eris+dsc"])
def test_values_that_were_not_rounded_have_no_grid(method):
    assert all(collected.observation.rounding is None for collected in seen_by("aggregator", method).values())


def test_nobody_reads_a_grid_off_a_mean():
    changes = (*COMPRESSED, "compression.compressor=uniform")
    assert all(collected.observation.rounding is None for collected in seen_by("broadcast", *changes).values())


def test_the_grid_is_the_widest_that_fits_and_a_tensor_of_zeros_gets_the_widest_of_all():
    units = grid_of(np.array([0.0, 0.25, 0.5, 0.0, -1.0], np.float32), np.array([0, 1, 1, 2, 3]))
    assert units.tolist() == [1.0, 0.25, 0.25, 1.0, 1.0]
    assert grid_of(np.array([0.2, -0.3, 0.5], np.float32), np.zeros(3, int)) == pytest.approx(np.full(3, 0.1))
    assert rounding_of(qsgd(8), world().spec, np.arange(3), np.zeros(3, np.float32)) is None
    assert rounding_of(rand_k(0.5), world().spec, np.arange(3), np.ones(3, np.float32)) is None
    whole = rounding_of(terngrad(), world().spec, np.array([0, 2400]), np.array([0.5, 0.0], np.float32))
    assert whole.units.tolist() == [0.5, 0.5]  # one grid for all tensors


def test_the_true_picture_explains_what_was_rounded_to_the_nearest_perfectly():
    public, (pictures, labels) = world(), digits(1)
    observation = rounded(observation_of(public, pictures, labels), uniform(16), public)
    truth = torch.from_numpy(pictures), torch.from_numpy(labels)
    assert Matching(observation, public).loss(*truth).item() < 1e-12
    assert OneStepMatching(observation, public).loss(*truth).item() < 1e-12
    assert Matching(observation, public).loss(1 - truth[0], truth[1]).item() > 0.01
    for other in (
        Matching(replace(observation, rounding=None), public),
        Matching(observation, public, mode="zero-filled"),
    ):
        assert other.loss(*truth).item() > 1e-4


def test_what_was_rounded_at_random_is_missed_by_as_much_as_its_noise():
    public, (pictures, labels) = world(), digits(1)
    matching = Matching(rounded(observation_of(public, pictures, labels), qsgd_max(16), public), public)
    missed = matching.loss(torch.from_numpy(pictures), torch.from_numpy(labels)).item()
    assert 0.3 * matching.floor < missed < 2 * matching.floor


def lost(public, pictures, labels, observation, **options):
    """Return how far from the original what is recovered is, with the grid known and unknown."""
    attack, seed = Boxed(restarts=1, **options), public_root(1)
    observations = (observation, replace(observation, rounding=None))
    return [
        difference(pictures, attack.recover(each, public, seed=seed, labels=labels).images) for each in observations
    ]


def test_who_knows_of_a_grid_recovers_more_of_what_was_rounded_to_the_nearest():
    public, pairs = world(), []
    for place in range(3):
        pictures, labels = (part[place : place + 1] for part in digits(3))
        observation = rounded(observation_of(public, pictures, labels), uniform(6), public)
        pairs.append(lost(public, pictures, labels, observation, steps=200))
    aware, unaware = np.sum(pairs, axis=0)
    assert aware < 0.8 * unaware


def test_who_knows_of_a_grid_recovers_more_of_what_was_rounded_at_random():
    public, train = large_world(), mnist_sample().train
    pictures, labels = train.pixels[:1, None] / 255.0, train.labels[:1]
    observation = rounded(observation_of(public, pictures, labels), qsgd_max(6), public)
    aware, unaware = lost(public, pictures, labels, observation, steps=300)
    assert aware < 0.8 * unaware


def test_a_grid_for_other_values_is_refused():
    with pytest.raises(InputError, match="units"):
        UpdateObservation(
            np.zeros(4, np.float32), np.arange(2), np.ones(2, np.float32), rounding=Rounding(np.ones(3, "f4"), False)
        )
