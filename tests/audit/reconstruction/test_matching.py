"""What a candidate is measured by: the true samples match, and what a member sends is modelled as it is sent."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from eris.audit.reconstruction import Handling, LocalSteps, UpdateObservation
from eris.audit.reconstruction.matching import Matching
from eris.audit.reconstruction.small_networks import SigmoidPerceptron
from eris.data import ArrayExamples
from eris.errors import ConfigError, InputError
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.seeds import private_root, public_root
from tests.audit.reconstruction.small_world import digits, observation_of, shard, update_of, vector_of, world


def candidate(pictures, labels):
    return torch.from_numpy(np.asarray(pictures)), torch.from_numpy(np.asarray(labels))


@pytest.mark.parametrize("aggregators", [2, 8])
def test_at_the_true_picture_mask_aware_is_zero_and_zero_filled_is_what_is_hidden(aggregators):
    public, (pictures, labels) = world(), digits(1)
    whole = update_of(public, pictures, labels)
    observation = observation_of(public, pictures, labels, aggregators=aggregators)
    seen, hidden = whole[observation.seen].astype(float), np.delete(whole, observation.seen).astype(float)
    aware = Matching(observation, public).loss(*candidate(pictures, labels)).item()
    filled = Matching(observation, public, mode="zero-filled").loss(*candidate(pictures, labels)).item()
    assert aware < 1e-12
    assert filled == pytest.approx((hidden @ hidden) / (seen @ seen), rel=1e-5)
    assert Matching(observation, public, distance="cosine").loss(*candidate(pictures, labels)).item() < 1e-12


def test_with_everything_seen_both_modes_are_one():
    public, (pictures, labels) = world(), digits(1)
    observation, other = observation_of(public, pictures, labels), candidate(1 - pictures, labels)
    first, second = (
        Matching(observation, public, mode=mode).loss(*other).item() for mode in ("mask-aware", "zero-filled")
    )
    assert first == second > 0.01


@pytest.mark.parametrize(
    ("work", "local"),
    [
        (LocalWork(lr=0.3), LocalSteps(lr=0.3, samples=6, batch=6)),
        (LocalWork(lr=0.3, epochs=3), LocalSteps(lr=0.3, steps=3, samples=6, batch=6)),
        (LocalWork(lr=0.3, epochs=3, momentum=0.9), LocalSteps(lr=0.3, steps=3, samples=6, batch=6, momentum=0.9)),
        (LocalWork(send="gradient"), LocalSteps(samples=6, batch=6)),
    ],
)
def test_what_a_member_would_send_is_what_a_member_sends(work, local):
    public, (pictures, labels) = world(), digits(6)
    inputs = ((pictures - 0.13) / 0.31).astype(np.float32)
    factory = partial(SigmoidPerceptron, inputs=64)
    task = TorchTask(factory, ArrayExamples(inputs, labels), [np.arange(6)], work=work)
    sent = task.train(0, vector_of(public), task.memory(0), round=0, seed=private_root(1, 0)).update
    assert update_of(public, pictures, labels, local) == pytest.approx(sent, rel=1e-3, abs=2e-6)


def test_clipping_is_done_to_the_candidate_too():
    public, (pictures, labels) = world(), digits(2)
    free = update_of(public, pictures, labels)
    bound = float(np.linalg.norm(free)) / 4
    clipped = update_of(public, pictures, labels, handling=Handling(clip=bound))
    assert np.linalg.norm(clipped) == pytest.approx(bound, rel=1e-5)
    assert clipped == pytest.approx(free / 4, rel=1e-4, abs=1e-8)
    each = [update_of(public, pictures[k : k + 1], labels[k : k + 1], handling=Handling(clip=0.1)) for k in range(2)]
    by_sample = update_of(public, pictures, labels, handling=Handling(sample_clip=0.1))
    assert by_sample == pytest.approx((each[0] + each[1]) / 2, rel=1e-4, abs=1e-8)


def test_noise_says_how_good_a_match_can_be():
    public, (pictures, labels) = world(), digits(1)
    clean = observation_of(public, pictures, labels)
    noise = 0.01 * np.random.default_rng(3).standard_normal(clean.values.size)
    noisy = UpdateObservation(
        clean.model, clean.seen, (clean.values + noise).astype("f4"), handling=Handling(noise=0.01)
    )
    matching = Matching(noisy, public)
    assert matching.loss(*candidate(pictures, labels)).item() == pytest.approx(matching.floor, rel=0.1)


def test_what_cannot_be_matched_is_refused():
    public, (pictures, labels) = world(), digits(1)
    observation = observation_of(public, pictures, labels, aggregators=2)
    with pytest.raises(ConfigError, match="mask-aware or zero-filled"):
        Matching(observation, public, mode="both")
    nothing = UpdateObservation(observation.model, np.empty(0, np.int64), np.empty(0, np.float32))
    with pytest.raises(InputError, match="nothing was seen"):
        Matching(nothing, public)
    with pytest.raises(InputError, match="ascending"):
        UpdateObservation(observation.model, observation.seen[::-1], observation.values)
    with pytest.raises(InputError, match="values"):
        UpdateObservation(observation.model, observation.seen[1:], observation.values)


def test_values_that_say_nothing_are_as_long_as_the_true_ones():
    public, (pictures, labels) = world(), digits(1)
    observation = observation_of(public, pictures, labels, aggregators=4)
    random = observation.randomised(public_root(1))
    assert np.array_equal(random.seen, shard(public.n, 4))
    assert np.linalg.norm(random.values) == pytest.approx(np.linalg.norm(observation.values), rel=1e-5)
    assert abs(np.corrcoef(random.values, observation.values)[0, 1]) < 0.15
