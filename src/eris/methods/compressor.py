"""The compressor that a configuration names."""

from __future__ import annotations

import inspect
from typing import Any

from eris.config import Config, concerning
from eris.errors import ConfigError
from eris.transforms import Compressor, compressor_by_name
from eris.transforms.named import COMPRESSORS

__all__ = ["chosen_compressor"]


def chosen_compressor(config: Config) -> Compressor:
    """Return the compressor of `[compression]`; `keep` is the p of those that keep some, 1 − p of those that prune."""
    compression = config.compression
    name, parameters = compression.compressor, dict[str, Any](compression.options)
    takes = inspect.signature(COMPRESSORS[name]).parameters if name in COMPRESSORS else {}
    if "p" in takes:
        parameters.setdefault("p", 1 - compression.keep if name == "magnitude_prune" else compression.keep)
    if compression.masks == "independent":
        if "independent" not in takes:
            raise ConfigError(
                f"{name} has no masks that differ between members",
                fix="use rand_k, or masks = 'shared'",
                key="compression.masks",
            )
        parameters["independent"] = True
    with concerning("compression.options" if parameters and name in COMPRESSORS else "compression.compressor"):
        return compressor_by_name(name, **parameters)
