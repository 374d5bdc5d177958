"""The paper's own arithmetic: the rules behind its communication tables, and the formulas in its text.

They are kept apart from the honest forms because they disagree with them, and in places with each other; `differences`
says where and why. Everything follows from n, K, A, the rate, p and r. All links have one rate, and all members take
part.

>>> row = table_row("eris", n=1_300_000_000, members=10, rate=20e6)
>>> size_text(row.upload), size_text(row.total), time_text(row.time)
('4.68 GB', '9.36 GB', '468.0 s')
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eris.errors import ConfigError
from eris.methods import METHODS
from eris.planner.model_size import VALUE_BYTES
from eris.planner.scenario import Scenario

__all__ = [
    "PRINTED",
    "BaselineSettings",
    "PrintedRow",
    "formula_time",
    "row_of",
    "settings_of",
    "share_text",
    "size_text",
    "table_row",
    "time_text",
]


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """One row of a communication table: a client's bytes and the distribution time, before rounding."""

    compression: float
    upload: float
    download: float
    total: float
    time: float


@dataclass(frozen=True, slots=True)
class BaselineSettings:
    """The baselines' settings in the rules of the paper's tables; the defaults are those that its cells follow."""

    prune: float = 0.3  # PriPrune: share of an update that is withheld
    soteria_keep: float = 0.05
    ako_partitions: int = 5
    shatter_degree: int = 4  # neighbours of a virtual node
    shatter_chunks: int = 2  # virtual nodes of a real one
    graph_share: float = 0.4  # Q-DPSGD-1: mean degree over the number of other members
    quantised: float = 3 / 16  # Q-DPSGD-1: size of a quantised model

    def __post_init__(self) -> None:
        shares = {"prune": self.prune, "soteria_keep": self.soteria_keep, "graph_share": self.graph_share}
        for name, share in (shares | {"quantised": self.quantised}).items():
            if not (0 <= share <= 1 if name == "prune" else 0 < share <= 1):
                raise ConfigError(f"{name} is {share}", fix="use a share of one")
        for name in ("ako_partitions", "shatter_degree", "shatter_chunks"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", fix="use 1 or more")


def settings_of(scenario: Scenario) -> BaselineSettings:
    """Convert the methods' options of a round to the settings of the tables' rules."""
    round = scenario.planned
    ours = {
        name: METHODS[name].settings(round.config) for name in ("priprune", "soteriafl", "ako", "shatter", "qdpsgd")
    }
    others, size = max(round.participants - 1, 1), METHODS["qdpsgd"].facts.kept
    assert size is not None
    return BaselineSettings(
        prune=ours["priprune"].prune,
        soteria_keep=ours["soteriafl"].keep,
        ako_partitions=ours["ako"].partitions,
        shatter_degree=ours["shatter"].virtual_degree,
        shatter_chunks=ours["shatter"].virtual_nodes,
        graph_share=(ours["qdpsgd"].degree or others) / others,
        quantised=min(1.0, size(round)),
    )


@dataclass(frozen=True, slots=True)
class _Inputs:
    size: int  # b, bytes of the model
    members: int
    aggregators: int
    rate: float
    keep: float
    settings: BaselineSettings


def table_row(
    method: str,
    *,
    n: int,
    members: int,
    rate: float,
    aggregators: int | None = None,
    keep: float = 1.0,
    baselines: BaselineSettings | None = None,
) -> PrintedRow:
    """Return a method's row by the rule that its printed cells follow.

    Args:
        method: its name.
        n: the number of weights.
        members: K.
        rate: of every link, in bytes per second.
        aggregators: A; K unless given.
        keep: the share that DSC keeps.
        baselines: settings of the baselines.
    """
    if method not in _RULES:
        raise ConfigError(f"no method is named {method!r}", fix=f"use one of {', '.join(_RULES)}")
    count = members if aggregators is None else aggregators
    return _RULES[method](_Inputs(VALUE_BYTES * n, members, count, rate, keep, baselines or BaselineSettings()))


def row_of(method: str, scenario: Scenario, *, rate: float, baselines: BaselineSettings) -> PrintedRow:
    """Return a method's row for the model, members and aggregators of a planned round.

    Args:
        method: its name.
        scenario: the round.
        rate: of every link, in bytes per second.
        baselines: settings of the baselines.
    """
    return table_row(
        method,
        n=scenario.model.values,
        members=scenario.members,
        aggregators=len(scenario.aggregators),
        rate=rate,
        keep=scenario.keep,
        baselines=baselines,
    )


def _central(given: _Inputs, share: float) -> PrintedRow:
    upload, download = share * given.size, given.size
    return PrintedRow(share, upload, download, upload + download, given.members * (upload + download) / given.rate)


def _shatter(given: _Inputs) -> PrintedRow:
    """Return Shatter's row: upload and download are printed as b, total as (1+2r)b, time by the text's formula."""
    degree, size = given.settings.shatter_degree, given.size
    time = max(size, degree * size, degree * size / given.members) / given.rate
    return PrintedRow(1.0, size, size, (1 + 2 * degree) * size, time)


def _ako(given: _Inputs) -> PrintedRow:
    each = (given.members - 1) * given.size / given.settings.ako_partitions
    return PrintedRow(1.0, each, each, 2 * each, 2 * each / given.rate)


def _qdpsgd(given: _Inputs) -> PrintedRow:
    """Return Q-DPSGD-1's row: upload, download and time are quantised, the total is not."""
    plain = given.settings.graph_share * (given.members - 1) * given.size
    each = plain * given.settings.quantised
    return PrintedRow(given.settings.quantised, each, each, 2 * plain, 2 * each / given.rate)


def _eris(given: _Inputs, keep: float) -> PrintedRow:
    """Return ERIS's row: it counts only the client's role, and omits the terms of members that do not aggregate."""
    elsewhere = (given.aggregators - 1) / given.aggregators
    upload, download = elsewhere * (keep * given.size), elsewhere * given.size
    load = (given.members - 1) / given.aggregators
    time = (load * (keep * given.size) + load * given.size) / given.rate
    return PrintedRow(keep, upload, download, upload + download, time)


_RULES: dict[str, Callable[[_Inputs], PrintedRow]] = {
    "fedavg": lambda given: _central(given, 1.0),
    "priprune": lambda given: _central(given, 1 - given.settings.prune),
    "soteriafl": lambda given: _central(given, given.settings.soteria_keep),
    "ako": _ako,
    "shatter": _shatter,
    "qdpsgd": _qdpsgd,
    "eris": lambda given: _eris(given, 1.0),
    "eris+dsc": lambda given: _eris(given, given.keep),
}


PRINTED = tuple(_RULES)  # the methods that the paper's tables have


def formula_time(method: str, scenario: Scenario) -> float:
    """Return the minimum distribution time by the formula in the paper's text (Q-DPSGD-1 has none: its table rule)."""
    fleet, size = scenario.fleet, float(scenario.model.bytes)
    up, down = float(fleet.uploads[:-1].min()), float(fleet.downloads[:-1].min())
    settings, members = settings_of(scenario), scenario.members
    if method == "ako":
        return max(size / down, size / up)
    if method == "shatter":
        flow = settings.shatter_degree * size
        return max(size / up, flow / down, flow / float(fleet.uploads[:-1].sum()))
    if method == "qdpsgd":
        return 2 * settings.graph_share * (members - 1) * settings.quantised * size / min(up, down)
    if method in ("eris", "eris+dsc"):
        return _eris_formula(scenario, size * (scenario.keep if method == "eris+dsc" else 1))
    kept = {"fedavg": 1.0, "priprune": 1 - settings.prune, "soteriafl": settings.soteria_keep}
    if method not in kept:
        raise ConfigError(f"no method is named {method!r}", fix=f"use one of {', '.join(_RULES)}")
    upload = kept[method] * size
    into, out = float(fleet.downloads[-1]), float(fleet.uploads[-1])
    return max(members * upload / into, upload / up) + max(members * size / out, size / down)


def _eris_formula(scenario: Scenario, upload: float) -> float:
    fleet, owners, size = scenario.fleet, list(scenario.aggregators), scenario.model.bytes
    load = (scenario.members - 1) / len(owners)
    collect = max(load * upload / fleet.downloads[owners].min(), upload / fleet.uploads[:-1].min())
    publish = max(load * size / fleet.uploads[owners].min(), size / fleet.downloads[:-1].min())
    return float(collect + publish)


def size_text(count: float) -> str:
    """Write bytes as the appendix tables do: the unit by size, rounded to two decimals, no zero after the first.

    >>> size_text(268e6), size_text(2_412_000_000), size_text(8018.64)
    ('268.0 MB', '2.41 GB', '8.02 KB')
    """
    count = round(count, 3)  # the last bits of 0.4 · 49 · 3/16 · b must not decide a tie
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{round(count / factor, 2)} {unit}"
    return f"{round(count / 1e3, 2)} KB"


def time_text(seconds: float) -> str:
    """Write seconds as the appendix tables do."""
    return f"{round(seconds, 2)} s"


def share_text(share: float) -> str:
    """Write a compression as the appendix tables do.

    >>> share_text(1), share_text(3 / 16), share_text(0.00012)
    ('100%', '18.8%', '0.012%')
    """
    percent = 100 * share
    return f"{round(percent, 1) if percent >= 1 else round(percent, 4):g}%"
