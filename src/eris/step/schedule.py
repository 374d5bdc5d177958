"""How the server's step λ_t changes over the rounds: a factor of the learning rate as a plain function of the round.

Each peer computes it for itself, and all must get the same bits. So only additions, multiplications, divisions and
square roots are used: the C library's cosines and powers differ from machine to machine.

>>> [cosine(rounds=4, floor=0.5)(t) for t in (0, 2, 4)]
[1.0, 0.75, 0.5]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from eris.errors import ConfigError
from eris.registry import Registry, call_with_options, described_options, options_of
from eris.step.optimizer import ServerOptimizer

__all__ = ["SCHEDULES", "Schedule", "at_round", "constant", "cosine", "inverse_sqrt", "schedule_by_name", "stepwise"]

Schedule = Callable[[int], float]


def constant() -> Schedule:
    """λ_t = λ."""
    return _one


def _one(round: int) -> float:
    del round
    return 1.0


def inverse_sqrt(*, warmup: int = 1) -> Schedule:
    """λ_t = λ·√(T₀ / max(t + 1, T₀)): flat for the first T₀ = `warmup` rounds.

    >>> inverse_sqrt()(3)
    0.5
    """
    _require(warmup >= 1, f"warmup is {warmup}", "use 1 or more rounds")
    return lambda round: math.sqrt(warmup / max(round + 1, warmup))


def cosine(*, rounds: int, floor: float = 0.01) -> Schedule:
    """λ_t falls along half a cosine from λ to `floor`·λ at round `rounds`, and stays there."""
    _require(rounds >= 1, f"rounds is {rounds}", "use 1 or more rounds")
    _require(0 < floor <= 1, f"floor is {floor}", "use 0 < floor ≤ 1")
    return lambda round: floor + (1 - floor) * _half_cosine(min(round / rounds, 1.0))


def stepwise(*, every: int, factor: float = 0.5) -> Schedule:
    """λ_t is multiplied by `factor` every so many rounds.

    >>> [stepwise(every=10, factor=0.5)(t) for t in (0, 9, 10, 25)]
    [1.0, 1.0, 0.5, 0.25]
    """
    _require(every >= 1, f"every is {every}", "use 1 or more rounds")
    _require(0 < factor <= 1, f"factor is {factor}", "use 0 < factor ≤ 1")
    return lambda round: math.prod([factor] * (round // every), start=1.0)


SCHEDULES: Registry[Callable[..., Schedule]] = Registry(
    "schedule",
    "eris.schedules",
    {"constant": constant, "cosine": cosine, "inverse_sqrt": inverse_sqrt, "stepwise": stepwise},
    refuses=lambda thing: "" if callable(thing) else "it cannot be called with options",
    options=described_options,
)


def schedule_by_name(name: str, **params: Any) -> Schedule:
    """Return the schedule with this name or path `module:name`, made with these options."""
    make = SCHEDULES.find(name)
    whole = {option for option, parameter in options_of(make).items() if parameter.annotation is int}
    given = {option: _counted(option, value) if option in whole else value for option, value in params.items()}
    return call_with_options(f"schedule {name!r}", make, given, word="option")


def at_round(optimizer: ServerOptimizer, schedule: Schedule, round: int) -> ServerOptimizer:
    """Return the optimizer with the learning rate of that round; its state is separate and carries on."""
    return replace(optimizer, lr=optimizer.lr * schedule(round))  # type: ignore[type-var,attr-defined]


def _half_cosine(x: float) -> float:
    """Return (1 + cos πx)/2 for x in [0, 1]: cos² of half the angle, by its series around the nearer end."""
    if x > 0.5:
        return 1.0 - _half_cosine(1.0 - x)
    if x == 0.5:
        return 0.5
    square, term, total = (math.pi * x) * (math.pi * x), 1.0, 1.0
    for order in range(2, 26, 2):
        term *= -square / (order * (order - 1))
        total += term
    return 0.5 * (1.0 + total)


def _counted(option: str, value: Any) -> Any:
    """Return a number of rounds as an integer: a configuration may say 10.0."""
    if not isinstance(value, float):
        return value
    _require(value == int(value), f"{option} is {value}", "use a whole number of rounds")
    return int(value)


def _require(holds: bool, what: str, fix: str) -> None:
    if not holds:
        raise ConfigError(what, fix=fix)
