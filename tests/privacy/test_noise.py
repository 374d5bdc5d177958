from __future__ import annotations

import math

import numpy as np
import pytest

from eris.errors import ConfigError, InputError
from eris.privacy import clip_by_norm, gaussian_noise, noise_of
from eris.transforms import chain, normalise_steps, rand_k, shift
from eris.transforms.norm import norm
from tests.transforms.scenes import context, normal


def noisy(n=200_000, multiplier=0.5, bound=2.0, **where):
    transform = chain(clip_by_norm(bound), gaussian_noise(multiplier, bound))
    return transform.outgoing(np.zeros(n, np.float32), {}, {}, context(n, **where)).packed.values()


def test_the_deviation_is_the_multiplier_times_twice_the_bound():
    noise, n = noisy(), 200_000
    assert noise.std() == pytest.approx(2.0, rel=4 / math.sqrt(2 * n))
    assert abs(noise.mean()) <= 4 * 2.0 / math.sqrt(n)
    # the fourth moment tells a Gaussian from a uniform or a Laplace of the same deviation
    assert np.mean((noise / 2.0) ** 4) == pytest.approx(3.0, rel=0.05)
    assert gaussian_noise(0.5, 2.0).sensitivity == 4.0
    assert gaussian_noise(0.5, 2.0).deviation == 2.0


def test_members_and_rounds_have_their_own_noise():
    draws = [noisy(1000, member=m, round=r) for m in (0, 1) for r in (0, 1)]
    assert len({draw.tobytes() for draw in draws}) == 4
    assert np.array_equal(noisy(1000), noisy(1000))
    assert abs(np.corrcoef(draws)[0, 1:]).max() < 4 / math.sqrt(1000)


def test_no_block_repeats():
    noise = noisy(1 << 18)
    assert np.unique(noise).size > 0.9 * noise.size
    assert not np.array_equal(noise[: 1 << 16], noise[1 << 16 : 2 << 16])


def test_the_update_is_clipped_first():
    sent = chain(clip_by_norm(1.0), gaussian_noise(1e-6, 1.0)).outgoing(normal(50) * 100, {}, {}, context(50))
    assert norm(sent.packed.values()) == pytest.approx(1.0, abs=1e-4)


def test_noise_from_a_public_seed_is_refused():
    sent = context(5)
    known = type(sent)(0, 0, sent.plan, sent.public, sent.public)
    with pytest.raises(InputError, match="noise must come from a private seed"):
        chain(clip_by_norm(1.0), gaussian_noise(1.0, 1.0)).outgoing(normal(5), {}, {}, known)


@pytest.mark.parametrize(
    "transforms",
    [
        (gaussian_noise(1.0, 1.0),),
        (normalise_steps(), gaussian_noise(1.0, 1.0)),
        (clip_by_norm(1.0), normalise_steps(), gaussian_noise(1.0, 1.0)),
        (clip_by_norm(1.5), gaussian_noise(1.0, 1.0)),
        (gaussian_noise(1.0, 1.0), clip_by_norm(1.0)),
        (clip_by_norm(1.0), gaussian_noise(1.0, 1.0), gaussian_noise(1.0, 1.0)),
    ],
    ids=lambda transforms: " → ".join(map(repr, transforms)),
)
def test_noise_without_a_clip_right_before_it_is_refused(transforms):
    with pytest.raises(ConfigError, match="adds noise to an update whose norm"):
        chain(*transforms)


def test_a_tighter_clip_is_enough():
    chain(normalise_steps(), clip_by_norm(0.5), gaussian_noise(1.0, 1.0))
    chain(clip_by_norm(1.0), clip_by_norm(3.0), gaussian_noise(1.0, 1.0))


@pytest.mark.parametrize(
    ("multiplier", "bound"), [(0, 1), (-1, 1), (math.nan, 1), (math.inf, 1), (1, 0), (1, math.inf)]
)
def test_impossible_noise(multiplier, bound):
    with pytest.raises(ConfigError):
        gaussian_noise(multiplier, bound)


def test_what_was_spent_says_whose_and_against_what():
    noise = noise_of(chain(clip_by_norm(1.0), gaussian_noise(4.0625, 1.0), shift(rand_k(0.05))))
    assert str(noise.spent(80, 1e-5)) == (
        "ε = 12.1 at δ = 1e-05 for one member (replacement), 80 rounds, accountant rdp"
    )
    assert noise_of(chain(clip_by_norm(1.0))) is None
    assert chain(clip_by_norm(1.0), gaussian_noise(1.0, 1.0)).adds_noise


def test_replacing_a_member_is_hidden_as_promised():
    """The worst pair: C and −C. The likelihood ratio test between them has the error rates ε and δ allow."""
    bound, multiplier, delta = 1.0, 1.0, 1e-2
    epsilon = gaussian_noise(multiplier, bound).spent(1, delta).value
    # one release each way along the line between them: mean shift μ = 2C/(σ·2C) = 1/σ
    shift_in_deviations = 2 * bound / gaussian_noise(multiplier, bound).deviation
    assert shift_in_deviations == 1 / multiplier
    rng = np.random.default_rng(0)
    ours, other = rng.standard_normal(400_000) + shift_in_deviations, rng.standard_normal(400_000)
    for threshold in (0.0, 1.0, 2.0, 3.0):
        assert np.mean(ours > threshold) <= math.exp(epsilon) * np.mean(other > threshold) + delta + 2e-3
