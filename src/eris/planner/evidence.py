"""Estimate the constants of the bounds from a finished run, as far as it shows them.

A run shows the one path it took, but a bound holds for every path: smoothness and gradient norms seen on the way are
**lower** estimates of L and G, never proof. Each estimate says which kind it is, and a missing one says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

__all__ = ["Evidence", "MeasuredConstant", "evidence"]

Kind = Literal["exact", "lower", "upper", "missing"]


@dataclass(frozen=True, slots=True)
class MeasuredConstant:
    """One constant as far as the run shows it."""

    value: float | None
    kind: Kind
    how: str


@dataclass(frozen=True)
class Evidence:
    """Estimates by name, the measured mean squared gradient norm, and the assumptions that the run violates."""

    estimates: dict[str, MeasuredConstant]
    measured: float | None  # mean of ‖∇f‖² over the rounds that recorded it
    recorded: int
    broken: tuple[str, ...]
    masks: str = "shared"
    full_batches: bool = False


def evidence(
    config: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]], summary: Mapping[str, Any] | None = None
) -> Evidence:
    """Estimate what can be estimated from a run's configuration, its lines of metrics and its summary.

    The configuration is the run's whole one as plain data; `rounds` are its lines of metrics.
    """
    squares = _series(rounds, "gradient_norm_squared")
    losses = _series(rounds, "train_loss") or _series(rounds, "loss")
    estimates = _settings(config, rounds) | {
        "smoothness": _smoothness(config, squares),
        "gradient_norm": _largest_norm(squares),
        "gamma2": _gamma2(config),
        "gap": _gap(losses),
        "reference_error": _reference_error(squares),
        "parameters": _parameters(summary or {}),
    }
    values = [value for _, value in squares]
    measured = math.fsum(values) / len(values) if values else None
    masks = str(_setting(config, "compression.masks", "shared"))
    return Evidence(estimates, measured, len(values), broken_assumptions(config), masks, _full_batch(config))


def _series(rounds: Sequence[Mapping[str, Any]], key: str) -> list[tuple[int, float]]:
    found = []
    for place, line in enumerate(rounds):
        value = line.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found.append((int(line.get("round", place)), float(value)))
    return found


def _setting(config: Mapping[str, Any], path: str, otherwise: Any = None) -> Any:
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return otherwise if value is None else value


def _settings(config: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> dict[str, MeasuredConstant]:
    """Return what the configuration fixes."""
    found = {"rounds": MeasuredConstant(float(len(rounds)), "exact", "lines of metrics.jsonl")}
    for name, path in (("members", "members"), ("aggregators", "aggregators"), ("step", "local.lr")):
        value = _setting(config, path)
        found[name] = (
            MeasuredConstant(float(value), "exact", f"{path} in config.toml")
            if isinstance(value, int | float)
            else MeasuredConstant(None, "missing", f"config.toml has no {path}")
        )
    keep = _setting(config, "compression.keep", 1.0) if _compresses(config) else 1.0
    found["omega"] = MeasuredConstant(1 / float(keep) - 1, "exact", "compression.keep in config.toml")
    return found


def _compresses(config: Mapping[str, Any]) -> bool:
    return str(_setting(config, "method", "")).endswith("+dsc")


def _smoothness(config: Mapping[str, Any], squares: list[tuple[int, float]]) -> MeasuredConstant:
    """Compare consecutive gradients: |‖g'‖ − ‖g‖| ≤ L·‖x' − x‖, and x' − x is −λg for plain full-batch steps only."""
    if not squares:
        return MeasuredConstant(None, "missing", "no gradient norms: run with gradient_norm = true")
    if not _plain_descent(config):
        return MeasuredConstant(
            None, "missing", "steps are not plain full-batch gradient steps, so their length is not known"
        )
    step, ratios = float(_setting(config, "local.lr")), []
    for (first, before), (second, after) in pairwise(squares):
        if second == first + 1 and before > 0:
            ratios.append(abs(math.sqrt(after) - math.sqrt(before)) / (step * math.sqrt(before)))
    if not ratios:
        return MeasuredConstant(
            None, "missing", "no two consecutive rounds have gradient norms: set evaluate_every = 1"
        )
    return MeasuredConstant(max(ratios), "lower", f"steepest change of ‖∇f‖ over {len(ratios)} steps")


def _plain_descent(config: Mapping[str, Any]) -> bool:
    return not broken_assumptions(config) and not _compresses(config) and _full_batch(config)


def _full_batch(config: Mapping[str, Any]) -> bool:
    return bool(_setting(config, "local.batch") == "full")


def _largest_norm(squares: list[tuple[int, float]]) -> MeasuredConstant:
    if not squares:
        return MeasuredConstant(None, "missing", "no gradient norms: run with gradient_norm = true")
    largest = math.sqrt(max(value for _, value in squares))
    return MeasuredConstant(largest, "lower", "largest ‖∇f‖ seen; a single sample's gradient may be longer")


def _gamma2(config: Mapping[str, Any]) -> MeasuredConstant:
    if _full_batch(config):
        return MeasuredConstant(0.0, "exact", "full local gradients have no variance")
    return MeasuredConstant(
        None, "missing", "the variance of batches is not recorded; it follows from samples, batch and G"
    )


def _gap(losses: list[tuple[int, float]]) -> MeasuredConstant:
    if not losses:
        return MeasuredConstant(None, "missing", "no losses are recorded")
    first = losses[0][1]
    if first < 0:
        return MeasuredConstant(None, "missing", "the loss is negative, so f* is not bounded by zero")
    return MeasuredConstant(first, "upper", "first recorded loss; f* ≥ 0 for losses that are never negative")


def _reference_error(squares: list[tuple[int, float]]) -> MeasuredConstant:
    if not squares:
        return MeasuredConstant(None, "missing", "no gradient norms: run with gradient_norm = true")
    how = "first ‖∇f‖² recorded: references start at zero, and members' own gradients are longer than their mean"
    return MeasuredConstant(squares[0][1], "lower", how)


def _parameters(summary: Mapping[str, Any]) -> MeasuredConstant:
    value = summary.get("parameters")
    if isinstance(value, int) and value > 0:
        return MeasuredConstant(float(value), "exact", "summary.json")
    return MeasuredConstant(None, "missing", "summary.json has no parameters")


def broken_assumptions(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the run does that the theorem does not allow (shared masks are not among it: K counts as 1)."""
    several = _setting(config, "local.epochs", 1) != 1 or _setting(config, "local.steps", 1) != 1
    several = several or not (_full_batch(config) or _setting(config, "local.send") == "gradient")
    checks = [
        (several, "several local steps: the update is not an unbiased gradient"),
        (_setting(config, "local.optimizer", "sgd") != "sgd", "an adaptive local optimizer"),
        (_setting(config, "local.momentum", 0.0) != 0, "momentum"),
        (_setting(config, "local.weight_decay", 0.0) != 0, "weight decay"),
        (_setting(config, "server.optimizer", "fedavg") != "fedavg", "a server optimizer other than the plain step"),
        (_setting(config, "participation", 1.0) != 1, "some members sit out"),
        (_setting(config, "privacy.clip", 0.0) != 0, "clipping biases the update"),
    ]  # fmt: skip
    return tuple(text for wrong, text in checks if wrong)
