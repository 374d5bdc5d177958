"""FedAvg: one server receives every update whole and averages them. Also its variants with noise.

`fedavg-ldp` adds noise to the update (the member's privacy), `fedavg-dpsgd` to every local step (a sample's). In
`min-leakage` only a party that keeps silent sees updates: all that can leak is in the model itself.
"""

from __future__ import annotations

from eris.config import Config
from eris.methods.compressor import COMPRESSED, chosen_compressor
from eris.methods.method import Method
from eris.methods.noise_budget import with_noise
from eris.transforms import Compress

__all__ = ["FEDAVG", "FEDAVG_COMPRESSED", "FEDAVG_DPSGD", "FEDAVG_LDP", "MIN_LEAKAGE"]


def _on_every_step(config: Config) -> Config:
    noisy = with_noise(config)
    return noisy.model_copy(update={"privacy": noisy.privacy.model_copy(update={"unit": "sample"})})


def _compressed(config: Config) -> Compress:
    return Compress(chosen_compressor(config))


FEDAVG = Method("fedavg", "one server sees every update", server=True, label="FedAvg")
FEDAVG_LDP = Method(
    "fedavg-ldp",
    "one server sees every update behind noise",
    server=True,
    with_defaults=with_noise,
    label="FedAvg-LDP",
)
FEDAVG_DPSGD = Method(
    "fedavg-dpsgd",
    "one server sees updates made of noisy local steps",
    server=True,
    with_defaults=_on_every_step,
    label="FedAvg-DP-SGD",
)
FEDAVG_COMPRESSED = Method(
    "fedavg+compression",
    "one server sees every update, compressed",
    packing=_compressed,
    server=True,
    label="FedAvg, compressed",
    facts=COMPRESSED,
)
MIN_LEAKAGE = Method(
    "min-leakage", "nobody sees an update, only the model", server=True, trusted=True, label="Min. Leakage"
)
