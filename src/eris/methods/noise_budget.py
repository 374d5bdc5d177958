"""How much noise a configuration asks for: the multiplier it gives, or the one its ε requires.

By default ε is a budget for the whole run: the noise is large enough that *all* rounds together spend no more. The
paper's ε is for a single round; `accounting = "per-round"` reads it that way, and the summary still says what all
rounds together spent.

>>> from eris.config import load_config
>>> config = load_config(changes=["rounds=140", "privacy.epsilon=10", "privacy.clip=1.0"])
>>> per_round = load_config(config.model_dump(), changes=["privacy.accounting=per-round"])
>>> round(multiplier(config), 2), round(multiplier(per_round), 2)
(6.27, 0.53)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.config import Config
from eris.errors import ConfigError
from eris.privacy import Accountant, Epsilon, clip_by_norm, gaussian_noise, noise_multiplier
from eris.privacy.ring_noise import RingNoise
from eris.transforms import Transform

__all__ = ["SampleNoise", "common_steps", "local_steps", "multiplier", "on_steps", "on_sums", "on_update", "with_noise"]

_EPSILON, _CLIP = 10.0, 1.0  # for a member, over the whole run; the paper's 10 is for a sample, in each round


@dataclass(frozen=True, slots=True)
class SampleNoise:
    """DP-SGD: every local step clips each sample's gradient to C and adds noise σC to their sum.

    No amplification by subsampling is claimed: every step counts as if it were on all samples. What is protected is a
    sample's *part* ("zero-out": its gradients are zero instead), not the number of samples, which leaves with the
    update as its weight, divides the noisy sum, and determines the batches.
    """

    multiplier: float
    bound: float
    steps: int  # per round, at the member that takes the most

    def spent(self, rounds: int, delta: float) -> Epsilon:
        """Return what a sample has spent if its member took part in `rounds` rounds."""
        accountant = Accountant.of(self.multiplier, rounds * self.steps, unit="sample", adjacency="zero-out")
        spent = accountant.epsilon(delta)
        return Epsilon(spent.value, delta, spent.unit, spent.adjacency, rounds, spent.accountant)


def with_noise(config: Config) -> Config:
    """Return the configuration with noise switched on: ε = 10 over all rounds and C = 1 unless given."""
    privacy = config.privacy
    changes: dict[str, object] = {}
    if privacy.epsilon == "auto" and not privacy.noise_multiplier:
        changes["epsilon"] = _EPSILON
    if privacy.epsilon != "none" and not privacy.clip:
        changes["clip"] = _CLIP
    return config.model_copy(update={"privacy": privacy.model_copy(update=changes)}) if changes else config


def multiplier(config: Config, steps: int = 1) -> float:
    """Return the noise multiplier σ for this many noisy steps in a round; 0 without noise."""
    privacy = config.privacy
    if isinstance(privacy.epsilon, str):
        return privacy.noise_multiplier if privacy.epsilon == "auto" else 0.0
    if privacy.noise_multiplier:
        raise ConfigError(
            f"noise is given twice: ε = {privacy.epsilon} and a multiplier of {privacy.noise_multiplier}",
            fix="give one of the two",
            key="privacy.epsilon",
        )
    rounds = config.rounds if privacy.accounting == "all-rounds" else 1
    return noise_multiplier(float(privacy.epsilon), privacy.delta, rounds * steps)


def on_update(config: Config) -> list[Transform]:
    """Return clipping and noise on the update, if the configuration asks for them.

    In fixed point, noise is added after the limit instead: `on_sums`.
    """
    if config.privacy.unit == "sample":
        return []
    clip, noise = _checked(config, multiplier(config))
    bounded: list[Transform] = [clip_by_norm(clip)] if clip else []
    return [*bounded, gaussian_noise(noise, clip)] if noise and config.server.encoding == "float" else bounded


def on_sums(config: Config) -> RingNoise | None:
    """Return the noise on fixed-point integers, if the configuration asks for it; shares only with masked sums."""
    privacy = config.privacy
    noise = multiplier(config) if privacy.unit == "member" else 0.0
    if privacy.noise == "shares" and not noise:
        what = "no noise is set" if privacy.unit == "member" else "the noise of local steps is each member's own"
        raise ConfigError(
            f"{what}: there is nothing to share",
            fix="set privacy.epsilon or privacy.noise_multiplier (privacy.unit = 'member'), or privacy.noise = 'own'",
            key="privacy.noise",
        )
    if privacy.noise == "shares" and privacy.masking == "none":
        raise ConfigError(
            "a share of noise protects only a sum, but aggregators of plain shards see more than sums",
            fix="set privacy.masking = 'pairs', or privacy.noise = 'own'",
            key="privacy.noise",
        )
    if not noise or config.server.encoding == "float":
        return None
    clip, _ = _checked(config, noise)
    return RingNoise(noise, clip, shares=privacy.noise == "shares", colluders=privacy.colluders)


def on_steps(config: Config, samples: Sequence[int] | NDArray[np.int64]) -> SampleNoise | None:
    """Return clipping and noise on every local step, if the configuration asks for them."""
    if config.privacy.unit == "member":
        return None
    steps = local_steps(config, int(np.max(samples, initial=1)))
    clip, noise = _checked(config, multiplier(config, steps))
    if not noise:
        return None
    if config.local.estimator != "sgd":
        raise ConfigError(
            f"estimator {config.local.estimator!r} uses a gradient more than once, but DP-SGD accounts for one use",
            fix="use local.estimator = 'sgd'",
            key="local.estimator",
        )
    return SampleNoise(noise, clip, steps)


def local_steps(config: Config, samples: int) -> int:
    """Return how many steps a member with this many samples takes in a round."""
    local = config.local
    batches = 1 if local.batch == "full" else -(-samples // local.batch)
    return local.steps or local.epochs * max(1, batches)


def common_steps(config: Config) -> int:
    """Return how many steps every member takes in a round; 0 if that depends on its number of samples."""
    local = config.local
    return local.steps or (local.epochs if local.batch == "full" else 0)


def _checked(config: Config, noise: float) -> tuple[float, float]:
    clip = config.privacy.clip
    if noise and not clip:
        raise ConfigError(
            f"noise_multiplier is {noise:.4g}, but updates are not clipped",
            fix="set privacy.clip: noise protects nothing if an update can have any size",
            key="privacy.clip",
        )
    return clip, noise
