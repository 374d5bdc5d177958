"""Compare along axes: repeat the same arms for every value of a setting; and find fronts along two axes.

>>> [point.label for point in axes_of(["data.samples=8,16", "aggregators=2"])]
['data.samples = 8, aggregators = 2', 'data.samples = 16, aggregators = 2']
>>> axes_of(["shards.capacities=[1.0,2.0],[1.0,1.0]"])[1].changes
('shards.capacities=[1.0,1.0]',)
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eris.atomic_file import write_atomically
from eris.errors import ConfigError

__all__ = ["AxisPoint", "axes_of", "front_of", "fronted", "gathered_over"]

_AXES = {"accuracy": "accuracy", "upload": "upload", "exposure": "exposure", "time": "distribution_seconds", "leak": ""}


@dataclass(frozen=True, slots=True)
class AxisPoint:
    """One value for each axis."""

    values: tuple[tuple[str, str], ...]

    @property
    def changes(self) -> tuple[str, ...]:
        """The settings of the point."""
        return tuple(f"{key}={value}" for key, value in self.values)

    @property
    def label(self) -> str:
        """The point in words."""
        return ", ".join(f"{key} = {value}" for key, value in self.values)

    @property
    def folder(self) -> str:
        """A name for its results."""
        return re.sub(r"[^a-zA-Z0-9.+_=-]+", "-", ",".join(self.changes))


def axes_of(texts: Sequence[str]) -> list[AxisPoint]:
    """Return every point of the product of axes, each written KEY=A,B,C."""
    axes = []
    for text in texts:
        key, equals, rest = text.partition("=")
        values = [value.strip() for value in re.split(r",(?![^\[{]*[\]}])", rest)]
        if not (equals and key.strip() and all(values)):
            raise ConfigError(f"--over is {text!r}", fix="write --over data.samples=8,16,32")
        if len(set(values)) < len(values):
            raise ConfigError(f"--over {text} names a value twice", fix="name each once", key=key.strip())
        axes.append([(key.strip(), value) for value in values])
    if len({axis[0][0] for axis in axes}) < len(axes):
        raise ConfigError("--over names a setting twice", fix="give all its values at once: KEY=A,B,C")
    return [AxisPoint(values) for values in itertools.product(*axes)] if axes else []


def fronted(result: dict[str, Any], axes: str, folder: Path) -> dict[str, Any]:
    """Return a comparison with the front along the two given axes; if none are given, the audit's front stays.

    Args:
        result: what `Comparison.run` returned; changed in place.
        axes: two names with a comma between them, as in --front.
        folder: where compare.json is written again.
    """
    audit = result.get("audit")
    if not axes:
        if audit is not None:
            audit["front_axes"] = ["accuracy", f"1 − {audit['figure']}"]
        return result
    names = [name.strip() for name in axes.split(",")]
    if len(names) != 2 or set(names) - set(_AXES):
        raise ConfigError(f"--front is {axes!r}", fix=f"name two of {', '.join(_AXES)}, separated by a comma")
    if "leak" in names and audit is None:
        raise ConfigError("--front with leak needs an attack", fix="add --audit membership")
    points = {line["label"]: [_good(line, name, audit) for name in names] for line in result["methods"]}
    known = {label: point for label, point in points.items() if None not in point}
    found = {"front": front_of(known), "front_axes": names}
    result["front"] = {**found, "points": points}
    if audit is not None:
        audit.update(found)
    write_atomically(folder / "compare.json", (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
    return result


def _good(line: Mapping[str, Any], name: str, audit: Mapping[str, Any] | None) -> float | None:
    """Return the value of axis `name` for a line (None: unknown), turned so that more is better."""
    if name == "leak" and audit is not None:
        point = audit["points"].get(line["label"])
        return None if point is None else float(point["one_minus_leak"])
    mean = line["table"][_AXES[name]]["mean"]
    return None if mean is None else float(mean) if name == "accuracy" else -float(mean)


def front_of(points: Mapping[str, Sequence[float | None]]) -> list[str]:
    """Return the names that no other one beats: none is at least as good in both values and better in one.

    >>> front_of({"a": (0.9, -3.0), "b": (0.8, -1.0), "c": (0.7, -2.0)})
    ['a', 'b']
    """

    def beaten(point: Sequence[float | None]) -> bool:
        return any(all((o or 0) >= (p or 0) for o, p in zip(other, point, strict=True)) and tuple(other) != tuple(point)
                   for other in points.values())  # fmt: skip

    return [name for name, point in points.items() if not beaten(point)]


def gathered_over(points: Sequence[AxisPoint], results: Sequence[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """Write the `results`, one for each point, to compare.json and compare.csv in `folder`, and return them."""
    keys = [key for key, _ in points[0].values]
    pairs = list(zip(points, results, strict=True))
    found = {"over": keys, "points": [{"at": dict(point.values), **result} for point, result in pairs]}
    write_atomically(folder / "compare.json", (json.dumps(found, indent=1, allow_nan=False) + "\n").encode())
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([*keys, "arm", "accuracy", "reach", "leak", "leak_reach", "chance"])
    for point, result in pairs:
        audit = result.get("audit")
        for line in result["methods"]:
            accuracy = line["table"]["accuracy"]
            attacked = audit["methods"].get(line["label"]) if audit else None
            leak = attacked[0]["figures"][audit["figure"]] if audit and attacked else {}
            values = [accuracy["mean"], accuracy["reach"], leak.get("mean"), leak.get("reach"), leak.get("chance")]
            writer.writerow([*(value for _, value in point.values), line["label"], *values])
    write_atomically(folder / "compare.csv", lines.getvalue().encode())
    return found
