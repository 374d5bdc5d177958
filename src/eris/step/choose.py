"""Server optimizers by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eris.errors import ConfigError
from eris.registry import Registry, call_with_options, described_options, options_of
from eris.step.adaptive import FedAdagrad, FedAdam, FedYogi
from eris.step.optimizer import ServerOptimizer
from eris.step.plain import FedAvg, FedAvgM, FedNova

__all__ = ["OPTIMIZERS", "optimizer_by_name"]

OPTIMIZERS: Registry[Callable[..., ServerOptimizer]] = Registry(
    "server optimizer",
    "eris.optimizers",
    {
        "fedadagrad": FedAdagrad,
        "fedadam": FedAdam,
        "fedavg": FedAvg,
        "fedavgm": FedAvgM,
        "fednova": FedNova,
        "fedyogi": FedYogi,
    },
    refuses=lambda thing: "" if callable(thing) else "it cannot be called with options",
    options=described_options,
)
_ASKED = ("name", "init", "apply")


def optimizer_by_name(name: str, **params: Any) -> ServerOptimizer:
    """Return the optimizer with this name or path `module:name`, made with these settings.

    >>> optimizer_by_name("fedavgm", beta=0.5)
    FedAvgM(lr=1.0, beta=0.5)
    """
    make = OPTIMIZERS.find(name)
    known = sorted(options_of(make))
    if unknown := sorted(set(params) - set(known)):
        raise ConfigError(f"server optimizer {name!r} has no setting {unknown[0]!r}", fix=f"use {', '.join(known)}")
    optimizer = call_with_options(f"server optimizer {name!r}", make, params)
    if lacking := [part for part in _ASKED if not hasattr(optimizer, part)]:
        raise ConfigError(
            f"server optimizer {name!r} has no {', '.join(lacking)}", fix="eris.step.ServerOptimizer says what it needs"
        )
    if "lr" not in getattr(optimizer, "__dataclass_fields__", {}):
        raise ConfigError(f"server optimizer {name!r} has no lr to schedule", fix="make it a dataclass with an lr")
    return optimizer
