"""Defences against reconstruction: trainings that differ in what members do to their updates before sending them.

>>> [defence.label for defence in small_preset()][:3]
['FedAvg', 'ERIS A=2', 'ERIS A=4']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eris.config import Config, load_config
from eris.errors import ConfigError

__all__ = ["SMALL", "Defence", "methods_of", "small_preset"]

SMALL = (
    "members=8", "rounds=1", "workers=1", "data.name=mnist-sample", "data.samples=1", "data.validation=0.0",
    "data.test_samples=100", "model.name=eris.audit.reconstruction.small_networks:SigmoidLeNet", "local.batch=full",
    "local.lr=0.1", "local.momentum=0.0",
)  # fmt: skip

_DEFENCES = (
    ("FedAvg", ("method=fedavg",)),
    ("ERIS A=2", ("method=eris", "aggregators=2")),
    ("ERIS A=4", ("method=eris", "aggregators=4")),
    ("ERIS A=8", ("method=eris", "aggregators=8")),
    ("ERIS A=8 + DSC p=0.2", ("method=eris+dsc", "aggregators=8")),
    ("ERIS A=8 + LDP ε=10", ("method=eris+ldp", "aggregators=8", "privacy.epsilon=10")),
    ("ERIS A=8, batch 4", ("method=eris", "aggregators=8", "data.samples=4")),
)


@dataclass(frozen=True)
class Defence:
    """A named training: one method with its settings."""

    label: str
    config: Config = field(repr=False)


def small_preset(changes: Sequence[str] = ()) -> tuple[Defence, ...]:
    """Return the trainings of the preset, with further changes to all of them.

    A row stays true to its label: if the changes set `method`, those methods replace the preset's; if they set a number
    of samples, the row with its own number is left out; changes to anything else in which rows differ are refused.

    >>> [defence.label for defence in small_preset(["method=eris", "aggregators=3"])]
    ['eris A=3']
    """
    keys = [change.partition("=")[0].strip() for change in changes]
    if any(_concerns(key, "method=") for key in keys):
        return methods_of(load_config(changes=[*SMALL, *changes]))
    rows = [(label, own) for label, own in _DEFENCES if not _samples_differ(own, keys)]
    for key in keys:
        if taken := [label for label, own in rows if any(_concerns(key, setting) for setting in own)]:
            raise ConfigError(
                f"{key} is what the preset's defences differ in ({taken[0]}, …): changed, they would be mislabelled",
                fix=f"name the method too, for one training: --set method=eris --set {key}=…",
                key=key,
            )
    return tuple(Defence(label, load_config(changes=[*SMALL, *own, *changes])) for label, own in rows)


def _concerns(key: str, setting: str) -> bool:
    """Return whether a change to this key, or table, overrides a setting."""
    own = setting.partition("=")[0]
    return own == key or own.startswith(f"{key}.")


def _samples_differ(own: Sequence[str], keys: Sequence[str]) -> bool:
    return any(setting.startswith("data.samples=") and _concerns(key, setting) for setting in own for key in keys)


def methods_of(config: Config) -> tuple[Defence, ...]:
    """Return one training for each method of a configuration."""
    return tuple(Defence(_label(config, method), config.for_method(method)) for method in config.methods)


def _label(config: Config, method: str) -> str:
    return f"{method} A={config.aggregators}" if method.startswith("eris") else method
