"""What a run left behind, read from its folder.

A run may be unfinished, or written by a newer eris: what is missing is missing, unknown keys are left alone, and a
damaged line is counted and named instead of stopping the report.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eris.errors import InputError

__all__ = ["MethodResult", "number", "read_run"]

_TRACES = ("metrics.jsonl", "summary.json")  # a folder with one of these belongs to one method
_ORDER = ("fedavg", "eris", "eris+dsc", "eris+masked")  # where the run does not say: the baseline first


@dataclass(frozen=True)
class MethodResult:
    """Everything one method wrote, as plain data."""

    name: str
    config_text: str
    config: Mapping[str, Any]
    rounds: tuple[Mapping[str, Any], ...]  # the lines of metrics.jsonl in order of rounds
    summary: Mapping[str, Any]
    exposure: Mapping[str, Any]
    verdicts: tuple[Mapping[str, Any], ...]
    problems: tuple[str, ...] = ()  # what could not be read, in words


def number(data: object, path: str) -> float | None:
    """Return the finite number at a dotted path, or None.

    >>> number({"bytes": {"up": 12}}, "bytes.up"), number({"bytes": None}, "bytes.up"), number({"a": "b"}, "a")
    (12.0, None, None)
    """
    for key in path.split("."):
        data = data.get(key) if isinstance(data, Mapping) else None
    if isinstance(data, bool) or not isinstance(data, int | float):
        return None
    return float(data) if math.isfinite(data) else None


def read_run(directory: Path) -> tuple[MethodResult, ...]:
    """Read a run's folder: that of one method, or one with a sub-folder for each method.

    A method that the run's configuration names and that has not begun is there too, without results.
    """
    if _is_method(directory):
        return (_read_method(directory, directory.name),)
    folders = [path for path in sorted(directory.glob("*")) if path.is_dir() and _is_method(path)]
    if not folders:
        raise InputError("there are no results of a run here", fix=_instead_of(directory), directory=directory)
    results = {result.name: result for result in (_read_method(path, path.name) for path in folders)}
    config = _toml(_text(directory / "config.toml", []), [])
    waiting = [name for name in _methods_in(config) if name not in results]
    results |= {name: MethodResult(name, "", config, (), {}, {}, ()) for name in waiting}
    order = [*_methods_in(config), *_ORDER]
    return tuple(
        sorted(results.values(), key=lambda each: order.index(each.name) if each.name in order else len(order))
    )


def _instead_of(directory: Path) -> str:
    """Return what to open instead, in a folder that another command than `eris run` wrote."""
    if folds := sorted(directory.glob("fold-*")):
        return f"a comparison's results are compare.json and the pictures beside it; for one fold give {folds[0]}"
    if peers := sorted(path for path in (directory / "peers").glob("*") if _is_method(path)):
        return f"every peer of `eris up` has a folder with its own results: give one of them, such as {peers[0]}"
    return "give the folder that `eris run --out` wrote"


def _is_method(directory: Path) -> bool:
    return any((directory / trace).is_file() for trace in _TRACES)


def _methods_in(config: Mapping[str, Any]) -> list[str]:
    """Return the methods in the order the run's own configuration names them."""
    methods = config.get("method")
    return [str(name) for name in methods] if isinstance(methods, list) else []


def _read_method(directory: Path, fallback: str) -> MethodResult:
    problems: list[str] = []
    config_text = _text(directory / "config.toml", problems)
    summary = _json(directory / "summary.json", problems)
    config = _toml(config_text, problems)
    lines = _json_lines(directory / "metrics.jsonl", problems)
    by_round = {number(line, "round"): line for line in lines}  # a resumed run may repeat a round: the last line counts
    named = summary.get("method") or config.get("method")
    return MethodResult(
        name=named if isinstance(named, str) else fallback,
        config_text=config_text,
        config=config,
        rounds=tuple(by_round[key] for key in sorted(key for key in by_round if key is not None)),
        summary=summary,
        exposure=_json(directory / "exposure.json", problems),
        verdicts=tuple(_json_lines(directory / "verdicts.jsonl", problems)),
        problems=tuple(problems),
    )


def _text(path: Path, problems: list[str]) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{path.name} cannot be read ({type(error).__name__})")
        return ""


def _toml(text: str, problems: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        problems.append("config.toml is not valid TOML")
        return {}


def _json(path: Path, problems: list[str]) -> dict[str, Any]:
    text = _text(path, problems)
    if not text:
        return {}
    value = _decoded(text)
    if isinstance(value, dict):
        return value
    problems.append(f"{path.name} is not a JSON object")
    return {}


def _json_lines(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    lines = [line for line in _text(path, problems).splitlines() if line.strip()]
    values = [_decoded(line) for line in lines]
    damaged = [position for position, value in enumerate(values, start=1) if not isinstance(value, dict)]
    if damaged:
        problems.append(f"{path.name}: {len(damaged)} unreadable line(s) left out, the first is line {damaged[0]}")
    return [value for value in values if isinstance(value, dict)]


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return None
