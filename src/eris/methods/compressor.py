"""The compressor that a configuration names, and how much of an update it leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from eris.config import Config, concerning
from eris.errors import ConfigError
from eris.methods.method import MethodFacts, Planned
from eris.registry import options_of
from eris.seeds import private_root, public_root
from eris.shards.plan import contiguous
from eris.transforms import Compressor, SendContext, compressor_by_name
from eris.transforms.named import COMPRESSORS

__all__ = ["COMPRESSED", "chosen_compressor"]

_SAMPLE = 1 << 14  # values that a compressor is tried on, to estimate the size of more


def chosen_compressor(config: Config) -> Compressor:
    """Return the compressor of `[compression]`; `keep` is p for those that keep values, 1 − p for those that prune."""
    compression = config.compression
    name, parameters = compression.compressor, dict[str, Any](compression.options)
    with concerning("compression.compressor"):
        takes = options_of(COMPRESSORS.find(name))
    if "p" in takes:
        parameters.setdefault("p", 1 - compression.keep if name == "magnitude_prune" else compression.keep)
    if compression.masks == "independent":
        if "independent" not in takes:
            raise ConfigError(
                f"{name} cannot give members different masks",
                fix="use rand_k, or masks = 'shared'",
                key="compression.masks",
            )
        parameters["independent"] = True
    with concerning("compression.options" if parameters else "compression.compressor"):
        return compressor_by_name(name, **parameters)


def _upload(round: Planned) -> float:
    """Return the bytes of an update, estimated from a sample if it is long."""
    sample = min(round.n, _SAMPLE)
    plan, public = contiguous(sample, 1), public_root(0)
    context = SendContext(0, 0, plan, public, private_root(0, 0), (sample,))
    packed = chosen_compressor(round.config).compress(np.linspace(-1, 1, sample, dtype=np.float32), context)
    return sum(part.payload_bytes for part in packed.parts(plan)) * round.n / sample + 4 * round.buffers


def _download(round: Planned) -> float:
    """Return the bytes of the mean: as few as an update's if all members keep the same coordinates."""
    compressor = chosen_compressor(round.config)
    return _upload(round) if compressor.sparse and compressor.shared_support else round.bytes


COMPRESSED = MethodFacts(kept=lambda round: min(1.0, _upload(round) / round.bytes), upload=_upload, download=_download)
