"""The experiment: one table or figure of the paper as plain data, and the cells that it consists of.

A panel (usually a data set) has arms (the rows), points of an axis (samples, aggregators, …) and folds. Each
combination is a cell, which is nothing but settings and what to measure, so two tables that need the same training
share it.

>>> from eris.paper.reading import ERIS
>>> row, place = Treatment("ERIS", ("method=eris",)), Point(8, ("data.samples=16",))
>>> panel = Panel("MNIST", ("rounds=3",), arms=(row,), points=(place,))
>>> [cell] = Experiment("a-table", "A table", "", sizes={"smoke": (panel,)}).cells("smoke", ERIS)
>>> cell.label, cell.settings
('MNIST · ERIS · 8 · fold 0', ('rounds=3', 'data.samples=16', 'method=eris', 'data.fold=0', 'seed=1'))
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from eris.paper.reading import PAPER, Reading

__all__ = [
    "ACCURACY",
    "AUC",
    "BEST_ROUND",
    "LPIPS",
    "MIA",
    "ROUGE",
    "SIZES",
    "Cell",
    "Experiment",
    "Kind",
    "Measure",
    "Metric",
    "Panel",
    "Point",
    "Settings",
    "Size",
    "Treatment",
]  # fmt: skip

Settings = tuple[str, ...]
Size = Literal["smoke", "small", "paper"]
Kind = Literal["training", "reconstruction", "gaussianity", "planned"]
SIZES: tuple[Size, ...] = ("smoke", "small", "paper")


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure that a cell measures, and its name in the printed table."""

    key: str
    label: str
    printed: str = ""  # the end of the printed column's name
    unit: str = ""  # "%": shares are shown times 100; "MB": bytes in millions
    digits: int = 1
    chance: bool = False  # whether a chance level is shown beside it

    @property
    def scale(self) -> float:
        """The factor by which a value is multiplied to be shown."""
        return {"%": 100.0, "MB": 1e-6}.get(self.unit, 1.0)

    @property
    def most(self) -> float:
        """The largest value possible, which shares and AUCs have; infinite for others."""
        return self.scale if self.unit == "%" or self.key == "auc" else math.inf


ACCURACY = Metric("accuracy", "accuracy", "acc", "%")
MIA = Metric("mia", "membership (paper's attack)", "mia", "%", chance=True)
AUC = Metric("auc", "AUC (strongest)", digits=3, chance=True)
BEST_ROUND = Metric("best_round", "best round", "round", digits=0)
ROUGE = Metric("rouge1", "ROUGE-1", "rouge1", "%")
LPIPS = Metric("lpips", "LPIPS", "lpips", digits=3)


@dataclass(frozen=True, slots=True)
class Treatment:
    """A row of a table: a defence and its settings, which may name a value of the point: `compression.keep={keep}`."""

    label: str
    settings: Settings
    row: str = ""  # its name in the printed table, if different
    options: Mapping[str, Any] = field(default_factory=dict)  # of the measurement
    prefix: str = ""  # of its figures' names, where a cell has those of several rows


@dataclass(frozen=True, slots=True)
class Point:
    """A point on the axis of a panel, with the settings that it changes."""

    value: float | str = ""
    settings: Settings = ()
    values: Mapping[str, Any] = field(default_factory=dict)  # values that the arms' settings may name
    options: Mapping[str, Any] = field(default_factory=dict)  # of the measurement
    prefix: str = ""  # of its figures' names, where a cell has those of several points


@dataclass(frozen=True, slots=True)
class Measure:
    """What to measure in a cell, and its options."""

    kind: Kind = "training"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Panel:
    """One part of a table or figure: a data set with its arms, points and folds."""

    label: str
    base: Settings
    arms: tuple[Treatment, ...]
    points: tuple[Point, ...] = (Point(),)
    folds: int = 1
    measure: Measure = Measure()
    printed: str = ""  # the printed table
    column: str = ""  # the start of its columns' names; {x} is the point
    rows: str = "{row}"  # how its rows are named
    stand_in: str = ""  # the substitute used here for what the paper used


@dataclass(frozen=True, slots=True)
class Cell:
    """One training, attack or calculation, as plain data; cells with the same `key` do the same work."""

    experiment: str
    panel: str
    arm: str
    point: float | str
    fold: int
    kind: Kind
    settings: Settings
    options: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The cell's place in the experiment, in words."""
        parts = (self.panel, self.arm, *([f"{self.point}"] if self.point != "" else []), f"fold {self.fold}")
        return " · ".join(parts)

    @property
    def key(self) -> str:
        """A digest of the work, so that experiments share cells that do the same."""
        plain = json.dumps([self.kind, self.settings, dict(self.options)], sort_keys=True)
        return sha256(plain.encode()).hexdigest()[:16]

    def plain(self) -> dict[str, Any]:
        """Return plain data."""
        return {"kind": self.kind, "settings": list(self.settings), "options": dict(self.options), "label": self.label}


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper, with its panels in each size."""

    name: str
    title: str
    shows: str
    sizes: Mapping[Size, tuple[Panel, ...]]
    metrics: tuple[Metric, ...] = (ACCURACY, ROUGE, MIA, AUC)
    axis: str = ""
    shape: Literal["lines", "bars", "front", "histograms", "planned"] = "bars"
    averaged: bool = False  # whether the table shows means over the points, as Table 1 does
    logarithmic: bool = False
    notes: tuple[str, ...] = ()

    def cells(self, size: Size, reading: Reading = PAPER) -> list[Cell]:
        """Return every cell of a size, fold by fold, so that an interrupted run has whole folds."""
        panels = self.sizes[size]
        return [
            _cell(self.name, panel, arm, point, fold, reading)
            for fold in range(max(panel.folds for panel in panels))
            for panel in panels
            if fold < panel.folds
            for point in panel.points
            for arm in panel.arms
        ]


def _cell(experiment: str, panel: Panel, arm: Treatment, point: Point, fold: int, reading: Reading) -> Cell:
    own = tuple(setting.format_map(_Named(point.values)) for setting in arm.settings)
    options = {**panel.measure.options, **point.options, **arm.options}
    if panel.measure.kind == "planned":
        settings = (*panel.base, *point.settings, *own)
    else:
        settings = (*panel.base, *point.settings, *own, *reading.of_fold(fold), *reading.settings)
        options |= reading.options(panel.measure.kind)
    return Cell(experiment, panel.label, arm.label, point.value, fold, panel.measure.kind, settings, options)


class _Named(dict[str, Any]):
    """A mapping for `format_map` that leaves unknown names in braces, such as those of a TOML table, unchanged."""

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"
