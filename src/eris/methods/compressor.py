"""The compressor that a configuration names."""

from __future__ import annotations

from eris.config import Config
from eris.errors import ConfigError
from eris.transforms import Compressor, bernoulli, identity, rand_k, stratified_rand_k

__all__ = ["chosen_compressor"]


def chosen_compressor(config: Config) -> Compressor:
    """Return the compressor of `[compression]`."""
    compression = config.compression
    independent = compression.masks == "independent"
    if independent and compression.compressor != "rand_k":
        raise ConfigError(
            f"{compression.compressor} has no independent masks", fix="use rand_k, or masks = 'shared'",
            key="compression.masks",
        )  # fmt: skip
    match compression.compressor:
        case "rand_k":
            return rand_k(compression.keep, independent=independent)
        case "stratified_rand_k":
            return stratified_rand_k(compression.keep)
        case "bernoulli":
            return bernoulli(compression.keep)
        case "identity":
            return identity()
    raise ConfigError(f"there is no compressor {compression.compressor!r}", key="compression.compressor")
