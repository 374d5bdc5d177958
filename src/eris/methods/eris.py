"""ERIS: every update is cut into shards for as many aggregators; with DSC it is also compressed against a reference.

With `ldp`, noise is added first. With `masked`, an aggregator adds up what it cannot read, and another peer takes the
pads off the sum. Server optimizers, robust rules, weighted shards and kinds of masks are settings of each of them.
"""

from __future__ import annotations

from eris.config import Config, concerning
from eris.methods.compressor import COMPRESSED, chosen_compressor
from eris.methods.method import Method
from eris.methods.noise_budget import with_noise
from eris.step.schedule import schedule_by_name
from eris.transforms import Transform, shift

__all__ = ["ERIS", "ERIS_DSC", "ERIS_DSC_LDP", "ERIS_DSC_MASKED", "ERIS_LDP", "ERIS_MASKED"]


def _shifted(config: Config) -> Transform:
    compression = config.compression
    with concerning("compression.gamma_schedule"):
        schedule = schedule_by_name(compression.gamma_schedule, **compression.gamma_schedule_options)
    return shift(
        chosen_compressor(config),
        gamma=compression.gamma,
        shared_reference=compression.shared_reference,
        schedule=schedule,
    )


def _masked(config: Config) -> Config:
    """Return the configuration with masking switched on."""
    return config.model_copy(update={"privacy": config.privacy.model_copy(update={"masking": "pairs"})})


ERIS = Method("eris", "every aggregator sees one shard", label="ERIS")
ERIS_DSC = Method(
    "eris+dsc", "one shard each, compressed against a reference", packing=_shifted, label="ERIS+DSC", facts=COMPRESSED
)
ERIS_LDP = Method("eris+ldp", "one shard each, behind noise", with_defaults=with_noise, label="ERIS+LDP")
ERIS_DSC_LDP = Method(
    "eris+dsc+ldp",
    "one shard each, behind noise, compressed against a reference",
    _shifted,
    with_defaults=with_noise,
    label="ERIS+DSC+LDP",
    facts=COMPRESSED,
)
ERIS_MASKED = Method(
    "eris+masked", "every aggregator sees a sum over many members", with_defaults=_masked, label="ERIS+masked"
)
ERIS_DSC_MASKED = Method(
    "eris+dsc+masked",
    "every aggregator sees a sum over many members, compressed against references",
    _shifted,
    with_defaults=_masked,
    label="ERIS+DSC+masked",
    facts=COMPRESSED,
)
