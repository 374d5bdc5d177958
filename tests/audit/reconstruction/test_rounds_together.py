"""Several rounds on the same pictures: too few values in each, enough in all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from eris.audit.observer import parse_observer
from eris.audit.reconstruction import LocalSteps, UpdateObservation, reconstruction_attack
from eris.audit.reconstruction.attack_setup import attack_setup
from eris.audit.reconstruction.collect import collect
from eris.audit.reconstruction.gauss_newton import _linearised
from eris.audit.reconstruction.matching import Matching
from eris.audit.reconstruction.sweep import RECONSTRUCTION_SIZES
from eris.config import load_config
from eris.errors import ConfigError
from eris.seeds import public_root
from tests.audit.reconstruction.small_world import difference, digits, shard, update_of, vector_of, world

AGGREGATORS = 60  # 40 values of 2,410 for 64 pixels


def rounds_of(pictures, labels, count, *, aggregators=AGGREGATORS):
    """Return what one aggregator sees in so many rounds; the model moves a good step from one to the next."""
    public, local = world(), LocalSteps(lr=0.5, samples=len(labels), batch=len(labels))
    vector, seen, observations = vector_of(public), shard(public.n, aggregators), []
    for number in range(count):
        update = update_of(public.at(vector), pictures, labels, local)
        observations.append(UpdateObservation(vector.copy(), seen, update[seen], local))
        others = np.random.default_rng(number).standard_normal(vector.size).astype(np.float32)
        vector = vector - update - 0.05 * others
    return replace(observations[-1], earlier=tuple(observations[:-1]))


def recovered(observation, labels):
    public = world().at(observation.model)
    found = reconstruction_attack("gauss-newton").recover(observation, public, seed=public_root(2), labels=labels)
    return found.images


def test_four_rounds_determine_what_one_leaves_open():
    pictures, labels = digits(1)
    together = rounds_of(pictures, labels, count=4)
    for observation, determined in ((together, True), (replace(together, earlier=()), False)):
        matching = Matching(observation, world().at(observation.model))
        images, targets = torch.from_numpy(pictures), torch.from_numpy(labels)
        _, jacobian = _linearised(matching, images, targets, torch.arange(matching.size))
        assert bool(torch.linalg.matrix_rank(jacobian, rtol=1e-9) == 64) == determined


@pytest.mark.slow
def test_most_pictures_are_recovered_from_four_rounds():
    pictures, labels = digits(4)
    found = []
    for place in range(4):  # a search may end in a local minimum
        one = pictures[place : place + 1], labels[place : place + 1]
        found.append(difference(one[0], recovered(rounds_of(*one, count=4, aggregators=30), one[1])) < 1e-6)
    assert sum(found) >= 2


def test_the_true_pictures_miss_nothing_in_any_round():
    pictures, labels = digits(2)
    observation = rounds_of(pictures, labels, count=3)
    matching = Matching(observation, world().at(observation.model))
    assert matching.size == 3 * observation.seen.size
    missed = matching.residual(torch.from_numpy(pictures), torch.from_numpy(labels)).detach()
    assert missed.shape == (matching.size,)
    assert missed.abs().max() < 1e-5


MOMENTUM = (
    "method=eris", "members=4", "rounds=3", "workers=1", "data.samples=2", "data.validation=0.0",
    "data.test_samples=10", "model.name=eris.audit.reconstruction.small_networks:SigmoidPerceptron",
    "model.options={hidden=6}", "local.batch=full", "local.lr=0.1", "local.momentum=0.9", "local.keep_state=true",
)  # fmt: skip


def test_the_true_pictures_explain_every_round_once_kept_momentum_is_taken_off():
    made = attack_setup(
        load_config(changes=MOMENTUM), [parse_observer("aggregator")], pictures=4, rounds=3, together=True
    )
    for collected in made.observations:
        images, targets = (torch.from_numpy(part[collected.victim]) for part in (made.originals, made.labels))
        for part in (*collected.observation.earlier, replace(collected.observation, earlier=())):
            missed = Matching(part, made.public.at(part.model)).residual(images.to(made.public.dtype), targets)
            assert missed.norm() < 1e-3


TINY = RECONSTRUCTION_SIZES["small"].settings("gauss-newton", [
    "method=eris", "members=4", "aggregators=4", "rounds=2", "local.lr=0.5", "local.momentum=0.9",
    "local.keep_state=true",
])  # fmt: skip


def test_a_picture_is_recovered_from_two_rounds_with_momentum_once_it_is_taken_off():
    made = attack_setup(load_config(changes=TINY), [parse_observer("aggregator")], pictures=2, rounds=2, together=True)
    observation = made.observations[1].observation
    (first,) = observation.earlier
    assert np.array_equal(first.seen, observation.seen)
    carried = observation.values + np.float32(0.9) * first.values  # what the member sent
    errors = []
    for seen in (observation, replace(observation, values=carried)):
        attack = reconstruction_attack("gauss-newton", restarts=2)
        found = attack.recover(seen, made.public, seed=public_root(2), labels=made.labels[1])
        errors.append(difference(made.originals[1], found.images))
    assert errors[0] < 1e-6
    assert errors[1] > 1e-3


def test_earlier_rounds_are_collected_only_where_they_are_of_the_same_samples():
    config, observers = load_config(changes=MOMENTUM), [parse_observer("aggregator")]
    scene = collect(config, observers, victims=2, rounds=3, together=True)
    for collected in scene.observations:
        models = [part.model for part in (*collected.observation.earlier, collected.observation)]
        assert len(models) == 3
        assert not np.array_equal(models[0], models[1])
    alone = collect(config, observers, victims=2, rounds=3)
    assert all(collected.observation.earlier == () for collected in alone.observations)
    with pytest.raises(ConfigError, match="all samples"):
        collect(load_config(changes=[*MOMENTUM, "local.batch=1"]), observers, victims=1, rounds=2, together=True)
