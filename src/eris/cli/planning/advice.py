"""`eris plan --advise`: what to choose, and what stands in the way of better."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from eris.cli.exit_code import ExitCode
from eris.cli.planning.notes import SHARE_NOTE, coalitions, make_table
from eris.cli.planning.request import Asked, describe, headline, scenario_of
from eris.planner import Advice, Scenario, Target, advise
from eris.planner.costs import finite
from eris.planner.quantity import parse_bytes, parse_share
from eris.report.figures import label_of
from eris.report.units import format_bytes, format_percent, format_seconds

__all__ = ["show_advice"]

_NAMED = 6  # peers listed with their shares


def show_advice(asked: Asked) -> None:
    """Print the advice; the exit code says if no plan reaches the target."""
    target = Target(
        round_time=asked.round_time,
        exposure=parse_share(asked.exposure) if asked.exposure else None,
        memory=parse_bytes(asked.memory) if asked.memory else None,
        coalition=asked.collude,
        largest_shard=parse_share(asked.largest_shard) if asked.largest_shard else None,
    )
    advice = advise(scenario_of(asked, choose=True), target, least_keep=parse_share(asked.least_keep))
    if asked.as_json:
        typer.echo(json.dumps(finite(_plain(advice)), indent=2, ensure_ascii=False))
    else:
        _print_advice(advice)
    if not advice.met:
        raise typer.Exit(ExitCode.NO_PLAN)


def _plain(advice: Advice) -> dict[str, Any]:
    return {
        "met": advice.met,
        "missed": list(advice.missed),
        "method": advice.method,
        "round": describe(advice.scenario),
        "round_time": advice.round_time,
        "exposure": advice.exposure,
        "memory": advice.memory,
        "block": advice.block,
        "chunk": advice.chunk,
        "limits": [{"kind": limit.kind, "peer": limit.peer, "price": limit.price} for limit in advice.limits],
        "fewer_aggregators_miss": advice.fewer,
        "collusion": [{"aggregators": c, "exposure": share} for c, share in advice.coalition_exposure],
    }


def _print_advice(advice: Advice) -> None:
    console, round = Console(highlight=False), advice.scenario
    console.print(headline(round), soft_wrap=True)
    if not advice.met:
        names = " and ".join(name.replace("_", " ") for name in advice.missed)
        console.print(f"[bold red]No plan reaches the target for {names}.[/] The nearest one:")
    table = make_table("Advice", "what", "choice", "target")
    table.columns[1].justify, table.columns[1].no_wrap, table.columns[1].ratio = "left", False, 1
    for row in _rows(advice):
        table.add_row(*map(Text, row))  # a name is a name, not rich's markup
    console.print(table)
    for sentence in _reasons(advice):
        console.print(f"– {sentence}", markup=False)
    seen = dict(advice.coalition_exposure)
    parts = ", ".join(f"{c} → {format_percent(seen[c])}" for c in coalitions(len(round.aggregators)))
    console.print(f"Colluding aggregators would see: {parts}")


def _rows(advice: Advice) -> list[tuple[str, str, str]]:
    round, target = advice.scenario, advice.target
    kept = (
        "" if round.keep == 1 else f", keep {format_percent(round.keep)} (ω = {round.omega:.4g}), {round.masks} masks"
    )
    seen, many = format_percent(advice.exposure), target.coalition
    if many > 1:
        seen += f", any {many} together {format_percent(_together(advice))}"
    return [
        ("method", f"{label_of(advice.method)}{kept}", ""),
        ("aggregators", f"{len(round.aggregators)} of {round.members} peers", ""),
        ("shards", _shares(round), _wanted(target.shard_limit(len(round.fleet.candidates)), format_percent)),
        ("block", f"{advice.block} values", ""),
        ("chunk", format_bytes(advice.chunk), ""),
        ("round", f"at least {format_seconds(advice.round_time)}", _wanted(target.round_time, format_seconds)),
        ("exposure", seen, _wanted(target.exposure, format_percent)),
        ("memory", format_bytes(advice.memory), _wanted(target.memory, format_bytes)),
    ]


def _together(advice: Advice) -> float:
    """Return what a coalition of the target's size sees; all aggregators if there are fewer."""
    return advice.coalition_exposure[min(advice.target.coalition, len(advice.coalition_exposure)) - 1][1]


def _wanted(value: float | None, write: Callable[[float | None], str]) -> str:
    return "" if value is None else f"≤ {write(value)}"


def _shares(round: Scenario) -> str:
    sizes = round.shard_sizes.tolist()
    if max(sizes) - min(sizes) <= max(sizes) / 100:
        return f"even, {format_percent(max(sizes) / round.model.n)} each"
    held = sorted(zip(sizes, round.aggregators, strict=True), key=lambda pair: (-pair[0], pair[1]))
    parts = [f"{round.fleet.peers[peer].name} {format_percent(size / round.model.n)}" for size, peer in held[:_NAMED]]
    return ", ".join(parts) + (f" and {len(held) - _NAMED} more" if len(held) > _NAMED else "")


_LIMITS = {
    "collect": "taking in contributions (download of {})",
    "send": "sending contributions (upload of {})",
    "publish": "publishing shards (upload of {})",
    "receive": "receiving the result (download of {})",
    "relay": "the relay",
    "memory": "memory ({})",
    "exposure": "the exposure that is allowed",
    "shard": "the largest shard that is allowed ({})",
}

_FEWER = {
    "round_time": "make the round longer than asked",
    "exposure": "show more of an update than asked",
    "memory": "need more memory than there is",
    "shard": "make a shard larger than allowed",
}


def _reasons(advice: Advice) -> list[str]:
    """Explain what binds: the dearest constraints of the programme, and what one aggregator fewer would miss."""
    peers: dict[str, list[str]] = {}
    for limit in advice.limits:
        peers.setdefault(limit.kind, []).append(limit.peer)
    found = []
    if not advice.met:
        what = f"all {len(advice.scenario.aggregators)} possible aggregators"
        found.append(f"Even with {what} and keeping no more than {format_percent(advice.scenario.keep)}.")
    if peers:
        parts = [_LIMITS[kind].format(_list(names)) for kind, names in list(peers.items())[:3]]
        found.append(f"What binds: {'; '.join(parts)}.")
    if advice.fewer:
        count = len(advice.scenario.aggregators) - 1
        fastest = advice.fewer == "round_time" and advice.target.round_time is None
        why = "make the round more than 1 % longer" if fastest else _FEWER[advice.fewer]
        found.append(f"{count} aggregator{'' if count == 1 else 's'} would {why}.")
    if advice.scenario.keep < 1:
        found.append("Compression adds variance: `eris bounds` says what step it allows.")
    return [*found, SHARE_NOTE]


def _list(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
