"""Server optimizers by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from eris.errors import ConfigError
from eris.step.adaptive import FedAdagrad, FedAdam, FedYogi
from eris.step.optimizer import ServerOptimizer
from eris.step.plain import FedAvg, FedAvgM, FedNova

__all__ = ["OPTIMIZERS", "optimizer_by_name"]

OPTIMIZERS: dict[str, Callable[..., ServerOptimizer]] = {
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fednova": FedNova,
    "fedyogi": FedYogi,
}


def optimizer_by_name(name: str, **params: float) -> ServerOptimizer:
    """Return the optimizer of that name.

    >>> optimizer_by_name("fedavgm", beta=0.5)
    FedAvgM(lr=1.0, beta=0.5)
    """
    if name not in OPTIMIZERS:
        raise ConfigError(f"there is no server optimizer {name!r}", fix=f"use one of {', '.join(sorted(OPTIMIZERS))}")
    known = sorted(field.name for field in fields(OPTIMIZERS[name]))  # type: ignore[arg-type]
    if unknown := sorted(set(params) - set(known)):
        raise ConfigError(f"server optimizer {name!r} has no setting {unknown[0]!r}", fix=f"use {', '.join(known)}")
    return OPTIMIZERS[name](**params)
