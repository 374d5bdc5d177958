"""SoteriaFL: clip, add noise, compress against a reference, one server; and CDP-SGD, the same without the reference.

Every member keeps n/20 coordinates of its own choice, so the server sends the whole mean back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from eris.config import Config
from eris.methods.method import Method, MethodFacts, MethodOptions, Planned
from eris.methods.noise_budget import with_noise
from eris.transforms import Compress, Transform, rand_k, shift
from eris.transforms.sparsify import share_of

__all__ = ["CDP_SGD", "SOTERIAFL"]


class SoteriaOptions(MethodOptions):
    """How much is kept."""

    keep: Annotated[float, Field(gt=0, le=1)] = Field(default=0.05, description="kept share")


def _shifted(config: Config) -> Transform:
    return shift(rand_k(SOTERIAFL.settings(config).keep, independent=True), gamma=config.compression.gamma)


def _plain(config: Config) -> Transform:
    return Compress(rand_k(CDP_SGD.settings(config).keep, independent=True))


def _facts(method: str) -> MethodFacts:
    def keep(round: Planned) -> float:
        return float(SoteriaOptions.model_validate(round.config.options.get(method, {})).keep)

    return MethodFacts(
        kept=keep, upload=lambda round: 4.0 * (share_of(keep(round), round.n, round_up=True) + round.buffers)
    )


SOTERIAFL = Method(
    "soteriafl",
    "one server sees 1/20 of a noisy update less its reference",
    _shifted,
    server=True,
    with_defaults=with_noise,
    label="SoteriaFL",
    options=SoteriaOptions,
    facts=_facts("soteriafl"),
)
CDP_SGD = replace(
    SOTERIAFL,
    name="cdp-sgd",
    summary="one server sees 1/20 of a noisy update",
    packing=_plain,
    label="CDP-SGD",
    facts=_facts("cdp-sgd"),
)
