"""FedProx: eris with members held near the round's model by a term μ/2·‖x − xᵗ‖² beside their loss.

Nothing else changes: the same bytes leave, the same people see them. With μ = 0 it is eris, bit for bit.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from eris.config import Config
from eris.methods.method import Method, MethodOptions

__all__ = ["FEDPROX"]


class ProximalOptions(MethodOptions):
    """How strongly members are held near the round's model."""

    mu: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(default=0.01, description="strength μ")


def _held(config: Config) -> Config:
    options = {"mu": FEDPROX.settings(config).mu}
    local = config.local.model_copy(update={"correction": "proximal", "correction_options": options})
    return config.model_copy(update={"local": local})


FEDPROX = Method(
    "fedprox",
    "eris, and members are held near the round's model",
    with_defaults=_held,
    label="FedProx",
    options=ProximalOptions,
)
