"""ERIS: every update is cut into shards for as many aggregators; with DSC it is also compressed against a reference."""

from __future__ import annotations

from eris.config import Config
from eris.methods.compressor import chosen_compressor
from eris.methods.method import Method
from eris.transforms import Transform, shift

__all__ = ["ERIS", "ERIS_DSC"]


def _shifted(config: Config) -> Transform:
    compression = config.compression
    return shift(chosen_compressor(config), gamma=compression.gamma, shared_reference=compression.shared_reference)


ERIS = Method("eris", "every aggregator sees one shard")
ERIS_DSC = Method("eris+dsc", "one shard each, compressed against a reference", packing=_shifted)
