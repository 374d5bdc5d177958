"""SoteriaFL: clip, add noise, compress against a reference, one server; and CDP-SGD, the same without the reference.

Every member keeps n/20 coordinates of its own choice, so the server sends the whole mean back.
"""

from __future__ import annotations

from eris.config import Config
from eris.methods.method import Method
from eris.methods.noise_budget import with_noise
from eris.transforms import Compress, Transform, rand_k, shift

__all__ = ["CDP_SGD", "SOTERIAFL"]


def _shifted(config: Config) -> Transform:
    return shift(rand_k(config.baselines.soteria_keep, independent=True), gamma=config.compression.gamma)


def _plain(config: Config) -> Transform:
    return Compress(rand_k(config.baselines.soteria_keep, independent=True))


SOTERIAFL = Method(
    "soteriafl", "one server sees 1/20 of a noisy update less its reference", _shifted, server=True, settle=with_noise
)
CDP_SGD = Method("cdp-sgd", "one server sees 1/20 of a noisy update", _plain, server=True, settle=with_noise)
