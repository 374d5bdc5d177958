"""ERIS: every update is cut into shards for as many aggregators; with DSC it is also compressed against a reference.

With `ldp` noise comes before. Server optimizers, robust rules, weighted shards and kinds of masks are settings of every
one of them.
"""

from __future__ import annotations

from eris.config import Config, concerning
from eris.methods.compressor import COMPRESSED, chosen_compressor
from eris.methods.method import Method
from eris.methods.noise_budget import with_noise
from eris.step.schedule import schedule_by_name
from eris.transforms import Transform, shift

__all__ = ["ERIS", "ERIS_DSC", "ERIS_DSC_LDP", "ERIS_LDP"]


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
