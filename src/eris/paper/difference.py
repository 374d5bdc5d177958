"""Find where the paper's tables and the planner's forms give different numbers for the same round, and say why.

>>> from eris.planner.fleet import Fleet
>>> from eris.planner.scenario import scenario
>>> found = differences("ako", scenario(n=1_300_000_000, fleet=Fleet.uniform(10, rate=20e6)))
>>> [(entry.quantity, entry.honest, entry.printed) for entry in found]
[('time', 468.0, 936.0), ('formula', 468.0, 260.0)]
"""

from __future__ import annotations

from dataclasses import dataclass

from eris.paper.table_rules import PRINTED, formula_time, row_of, settings_of
from eris.planner.duration import distribution_time
from eris.planner.scenario import Scenario
from eris.planner.traffic import traffic

__all__ = ["Difference", "differences"]

_TOLERANCE = 1e-3  # relative; smaller differences are rounding

_WHY = {
    ("priprune", "upload"): "which values are withheld depends on the data, so their positions travel too",
    ("priprune", "total"): "which values are withheld depends on the data, so their positions travel too",
    ("priprune", "time"): "which values are withheld depends on the data, so their positions travel too",
    ("shatter", "upload"): "every chunk goes to r neighbours: r models move each way, less what stays inside a node",
    ("shatter", "download"): "every chunk goes to r neighbours: r models move each way, less what stays inside a node",
    ("shatter", "total"): "the paper's total, (1+2r) models, is not the sum of its own upload and download",
    ("shatter", "time"): "the paper's bound counts r models at the receivers, edges inside one node among them",
    ("ako", "time"): "the table sends and receives in turn; here, as for every method, both happen at once",
    ("qdpsgd", "total"): "the paper's total is not quantised, while its upload and download are",
    ("qdpsgd", "time"): "the table sends and receives in turn; here, as for every method, both happen at once",
    ("eris", "upload"): "members that do not aggregate have no shard of their own to keep back",
    ("eris", "download"): "members that do not aggregate have no shard of their own to keep back",
    ("eris", "total"): "members that do not aggregate have no shard of their own to keep back",
    ("eris", "node"): "the paper counts a client's role alone; an aggregator also takes in and gives out a shard",
    ("eris", "time"): "the table leaves out the links of members that do not aggregate",
    ("eris", "formula"): "the formula in the text assumes a member that aggregates nothing, even where all do",
    ("ako", "formula"): "the formula in the text means one part for each other member (p = K−1), the table p = 5",
}  # fmt: skip

_WHY_SPARSE = {
    "shared": "with shared masks the published mean is as sparse as the uploads; the paper counts it whole",
    "public": "with public masks only what some member kept is published; the paper counts it whole",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One quantity for which the honest form and the paper differ, with both values and the reason."""

    method: str
    quantity: str  # upload, download, total, node, time (table), formula (time by the text's formula)
    honest: float
    printed: float
    why: str


def differences(method: str, scenario: Scenario) -> list[Difference]:
    """Return the differences for this round; none where the paper's rules do not apply (rates differ, some sit out)."""
    rate = scenario.fleet.rate
    if (
        method not in PRINTED
        or rate is None
        or len(scenario.participants) != scenario.members
        or scenario.model.buffers
    ):
        return []
    printed = row_of(method, scenario, rate=rate, baselines=settings_of(scenario))
    honest, time = traffic(method, scenario), distribution_time(method, scenario)
    pairs = {
        "upload": (honest.member_upload, printed.upload),
        "download": (honest.member_download, printed.download),
        "total": (honest.member_total, printed.total),
        "time": (time, printed.time),
    }
    if method in ("eris", "eris+dsc"):
        pairs["node"] = (honest.node_upload, printed.upload)
    if method in ("eris", "ako"):
        pairs["formula"] = (time, formula_time(method, scenario))
    return [
        Difference(method, quantity, ours, theirs, _why(method, quantity, scenario))
        for quantity, (ours, theirs) in pairs.items()
        if abs(ours - theirs) > _TOLERANCE * max(ours, theirs)
    ]


def _why(method: str, quantity: str, scenario: Scenario) -> str:
    if method == "eris+dsc":
        if quantity in ("download", "total", "time") and scenario.masks in _WHY_SPARSE:
            return _WHY_SPARSE[scenario.masks]
        method = "eris"
    return _WHY.get((method, quantity), "the paper's rule counts otherwise")
