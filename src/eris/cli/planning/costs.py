"""The default table of `eris plan`: every method by the honest forms."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from eris.cli.planning.notes import SHARE_NOTE, Notes, coalitions, make_table
from eris.cli.planning.request import Asked, describe, headline, scenario_of
from eris.methods.masked import is_masked
from eris.planner import METHODS, Bottleneck, Scenario, exposure, require_memory
from eris.planner.costs import Cost, cost, finite, sharded
from eris.report.figures import label_of
from eris.report.units import format_bytes, format_percent, format_seconds
from eris.transport.document_sizes import require_document_sizes
from eris.transport.process_limits import coordinator_descriptors, coordinator_memory, link_memory, peer_descriptors

__all__ = ["show_costs"]


def show_costs(asked: Asked) -> None:
    """Print what every method costs."""
    round = scenario_of(asked)
    costs = [cost(method, round) for method in asked.methods or METHODS]
    ours = [entry for entry in costs if sharded(entry.method)]
    if ours and not any(entry.memory_fits for entry in ours):
        require_memory(ours[-1].method, round)
    if asked.as_json:
        colluding = [
            {"method": entry.method, "aggregators": c, "exposure": exposure(entry.method, round, coalition=c).share}
            for entry in ours
            for c in coalitions(len(round.aggregators))
        ]
        data = {
            "round": describe(round),
            "methods": [entry.to_dict() for entry in costs],
            "collusion": colluding,
            "control": _control(round),
        }
        typer.echo(json.dumps(finite(data), indent=2, ensure_ascii=False))
        return
    _print_costs(round, costs)


def _print_costs(round: Scenario, costs: list[Cost]) -> None:
    console = Console(highlight=False)
    console.print(headline(round), soft_wrap=True)
    notes = Notes()
    marks = {entry.method: _mark(entry, notes) for entry in costs}
    console.print(_bytes_table(costs, marks))
    console.print(_other_table(round, costs, notes.mark(f"Exposure: {SHARE_NOTE}")))
    notes.print(console)
    _print_relay(console, round, costs)
    _print_control(console, round)
    _print_collusion(console, round, [entry.method for entry in costs if sharded(entry.method)])


def _mark(entry: Cost, notes: Notes) -> str:
    """Return the mark of the method's footnote: what to know of its exposure and its memory."""
    parts = []
    if entry.exposure.note:
        parts.append(f"Exposure: {entry.exposure.note}.")
    if not entry.memory_fits:
        parts.append("An aggregator offers less memory than it needs.")
    return notes.mark(f"[bold]{label_of(entry.method)}[/] – {' '.join(parts)}") if parts else ""


def _bytes_table(costs: list[Cost], marks: dict[str, str]) -> Table:
    table = make_table(
        "Bytes per round: a member (↑ ↓ Σ), a node in both roles (↑ ↓)",
        "method",
        "keeps",
        "member ↑",
        "↓",
        "Σ",
        "node ↑",
        "↓",
        "network",
    )
    for entry in costs:
        sizes = (
            entry.member_upload, entry.member_download, entry.member_total,
            entry.node_upload, entry.node_download, entry.network,
        )  # fmt: skip
        name = f"{label_of(entry.method)} {marks[entry.method]}"
        table.add_row(name, format_percent(entry.keep), *(format_bytes(size) for size in sizes))
    return table


def _other_table(round: Scenario, costs: list[Cost], mark: str) -> Table:
    table = make_table(f"Time, memory, exposure {mark}", "method", "time ≥", "waits for", "memory", "exposure", "to")
    for entry in costs:
        memory = format_bytes(entry.memory)
        table.add_row(
            label_of(entry.method),
            format_seconds(entry.seconds),
            ", ".join(dict.fromkeys(_link(wait, round) for wait in entry.waits_for)),
            memory if entry.memory_fits else f"[red]{memory}[/]",
            format_percent(entry.exposure.share),
            entry.exposure.observer,
        )
    return table


def _link(wait: Bottleneck, round: Scenario) -> str:
    several = "all peers" if wait.equals >= round.members else f"{wait.equals} peers"
    who = several if wait.equals > 1 else escape(wait.node)
    return f"{who} {'↑' if wait.way == 'upload' else '↓'}"


def _control(round: Scenario) -> dict[str, int]:
    """Return the bytes of everything said between peers and coordinator, and the descriptors both need."""
    members, aggregators = round.members, len(round.aggregators)
    masked = round.config.privacy.unmaskers if is_masked(round.config) else 0
    sizes = require_document_sizes(members, aggregators, replicas=round.replicas, unmaskers=masked)
    return asdict(sizes) | {
        "coordinator_descriptors": coordinator_descriptors(members),
        "aggregator_descriptors": peer_descriptors(members, aggregators),
        "coordinator_memory": coordinator_memory(members, sizes.kept),
        "aggregator_process_memory": link_memory(members, aggregators),
    }


def _print_relay(console: Console, round: Scenario, costs: list[Cost]) -> None:
    if round.fleet.relay is None:
        return
    parts = ", ".join(f"{label_of(entry.method)} {format_bytes(entry.relayed)}" for entry in costs if entry.relayed)
    console.print(f"Per round the relay receives and passes on: {parts or 'nothing'}.", soft_wrap=True)


def _print_control(console: Console, round: Scenario) -> None:
    need = _control(round)
    size = {name: format_bytes(value) for name, value in need.items()}
    console.print(
        f"Control plane, at most: plan {size['plan']}, verdict {size['verdict']} ({size['longest_verdict']} if no two "
        f"shards have the same contributors), report {size['report']}, manifest {size['manifest']}; the roster once, "
        f"{size['roster']}. Per round: the coordinator ↑ {size['coordinator_sends']} "
        f"({size['coordinator_sends_at_most']}) ↓ {size['coordinator_hears']}, a peer ↑ {size['peer_sends']} "
        f"↓ {size['peer_hears']}. File descriptors: coordinator {need['coordinator_descriptors']:,}, "
        f"aggregator {need['aggregator_descriptors']:,}. Memory: coordinator {size['coordinator_memory']}, "
        f"an aggregator's process and links {size['aggregator_process_memory']}, vectors and task on top.",
        soft_wrap=True,
    )


def _print_collusion(console: Console, round: Scenario, methods: list[str]) -> None:
    for method in methods:
        seen = [(c, exposure(method, round, coalition=c).share) for c in coalitions(len(round.aggregators))]
        parts = ", ".join(f"{c} → {format_percent(share)}" for c, share in seen)
        console.print(f"Colluding aggregators see, {label_of(method)}: {parts}", soft_wrap=True)
    if methods:
        console.print(
            "These shares are for one round and a member that aggregates nothing. One that aggregates keeps its own "
            "shard to itself, and `eris audit` counts its update without it.",
            soft_wrap=True,
        )
