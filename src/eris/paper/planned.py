"""Results that need no training: communication tables, distribution time and rates, from the planner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eris.errors import ConfigError

__all__ = ["draw_planned", "planned_figures"]


def planned_figures(settings: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of the calculation that the setting `what` names."""
    del options
    makers = {"communication": _communication, "speed-up": _speed_up, "rate": _rate}
    if settings.get("what") not in makers:
        raise ConfigError(f"there is no calculation {settings.get('what')!r}", fix=f"use one of {', '.join(makers)}")
    return makers[settings["what"]](settings)


def _communication(settings: Mapping[str, str]) -> dict[str, Any]:
    from eris.paper.panels import panel, rows

    line = rows(panel(settings["panel"]))[int(settings["row"])]
    row = line.row
    found = {"upload": row.upload, "download": row.download, "total": row.total, "time": row.time}
    texts = dict(zip(("compression", "upload", "download", "total", "time"), line.cells, strict=True))
    return {**{key: {"value": float(value)} for key, value in found.items()}, "texts": texts}


def _speed_up(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the speed-up of ERIS+DSC's distribution over others, by the text's formula and with both roles counted."""
    from eris.paper.table_rules import formula_time
    from eris.planner.duration import distribution_time
    from eris.planner.fleet import Fleet
    from eris.planner.scenario import scenario

    members, aggregators = int(settings["members"]), int(settings["aggregators"])
    rate, n = float(settings["rate"]), int(settings["n"])
    round = scenario(n=n, fleet=Fleet.uniform(members, rate), aggregators=aggregators, keep=0.05)
    ratio = {
        name: time("fedavg", round) / time("eris+dsc", round)
        for name, time in (("formula", formula_time), ("honest", distribution_time))
    }
    soteria = formula_time("soteriafl", round) / formula_time("eris+dsc", round)
    return {
        "over_fedavg": {"value": ratio["formula"]},
        "over_soteriafl": {"value": soteria},
        "honest": {"value": ratio["honest"]},
    }


def _rate(settings: Mapping[str, str]) -> dict[str, Any]:
    from eris.planner.rates import rates

    found = rates(n=61_706, members=50, samples=64, omega=19, epsilon=10, delta=1e-5, nu=float(settings["nu"]))
    value = next(rate.value for rate in found if rate.algorithm == settings["algorithm"])
    return {"rate": {"value": value}}


def draw_planned(name: str, path: Path) -> bool:
    """Draw the paper's figures on distribution time; return False for other calculations, which have none."""
    from eris.paper.duration_figures import FigureRequest, draw

    kinds = {"figure-distribution-time": ("clients", "size"), "figure-rate": ("rate",)}
    if name not in kinds:
        return False
    draw(path, FigureRequest(as_printed=True), kinds=kinds[name])
    return True
