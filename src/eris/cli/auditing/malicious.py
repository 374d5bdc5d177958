"""`eris audit malicious`: an aggregator signs a false mean, and reads single pictures out of the next updates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from eris.cli.auditing.answer import ResultsTable, percent_interval, show
from eris.cli.auditing.interruption import resumable
from eris.cli.auditing.options import Changes, Json, Out, stamped_folder
from eris.cli.auditing.progress import Attacks

__all__ = ["malicious"]


def malicious(
    changes: Changes = None,
    aggregators: Annotated[int, typer.Option(min=2, help="Number of aggregators; one of them lies.")] = 8,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of batches, each with its own seed; a claim needs ten.")
    ] = 5,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Sign a false mean that plants traps or fishes for a class, and see which single pictures that exposes.

    The model is a perceptron with ReLU; the audit runs with and without each defence.

    **Examples**

    `eris audit malicious`

    `eris audit malicious --set data.samples=64 --aggregators 4 --seeds 10`
    """
    from eris.audit.malicious import audit_malicious

    folder = out or stamped_folder()
    with resumable(folder), Attacks(visible=not as_json) as progress:
        results = audit_malicious(
            folder, changes=changes or [], aggregators=aggregators, seeds=range(1, seeds + 1), notice=progress
        )
    if as_json:
        typer.echo(json.dumps({"path": str(folder), "results": results}))
        return
    notes = (
        "Isolated: pictures of a batch that one row shows alone. Read: the share of their pixels that was read.\n"
        "Fishing: how much of one class's output row is that class's alone (cosine). Chance: honest mean.\n"
        f"{_dropped(results)}95 %: Student's t over {seeds} seeds.\nresults: {folder / 'malicious.json'}"
    )
    show(_table(results), notes)


def _dropped(results: Sequence[dict[str, Any]]) -> str:
    """Say what became of false means that another aggregator contradicted, and what an honest one had read there."""
    played = [result for result in results if "dropped" in result]
    shares = ", ".join(f"{result['dropped']:.0%} ({result['plan']})" for result in played)
    honest = ", ".join(f"{result['honest']:.0%} ({result['plan']})" for result in played)
    return (
        f"Second aggregator: of the shards with a false mean {shares} were dropped.\n"
        f"The same aggregator, holding the same two shards, isolates {honest} when it is honest.\n"
    )


def _table(results: Sequence[dict[str, Any]]) -> ResultsTable:
    table = ResultsTable(("plan", "defence", "isolated", "95 %", "read", "fishing"), names=("plan", "defence"))
    for result in results:
        found = result["isolated"]
        figures = (
            f"{found['value']:.0%}",
            percent_interval(found),
            f"{result['read']:.0%}",
            f"{result['fishing']['value']:.2f}",
        )
        table.add(result["plan"], result["defence"], *figures)
    return table
