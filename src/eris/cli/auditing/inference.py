"""`eris audit property` and `eris audit source`: which classes a member holds, and whose sample it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eris.cli.auditing.answer import ResultsTable, show
from eris.cli.auditing.interruption import resumable
from eris.cli.auditing.options import Changes, Json, Out, Source, settings, stamped_folder
from eris.cli.auditing.progress import Rounds

if TYPE_CHECKING:
    from eris.audit.inference import Question

__all__ = ["property_inference", "source_inference"]

_Observer = Annotated[str, typer.Option(help="aggregator (default), pair (with masks), coalition:C, server or wire.")]
_Seeds = Annotated[int, typer.Option(min=1, help="Number of trainings, each with its own seed; a claim needs ten.")]


def property_inference(
    source: Source = None,
    changes: Changes = None,
    observer: _Observer = "aggregator",
    seeds: _Seeds = 3,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Guess from what an observer saw which classes each member holds.

    The members' classes must differ, so the preset divides the digits unevenly (dirichlet, α = 0.3).

    **Examples**

    `eris audit property`

    `eris audit property my.toml --observer coalition:3 --seeds 10`
    """
    from eris.audit.inference import SMALL_PROPERTY

    _ask("property", source, [*(changes or [])], SMALL_PROPERTY, observer, seeds, 0, out, as_json=as_json)


def source_inference(
    source: Source = None,
    changes: Changes = None,
    observer: _Observer = "aggregator",
    asked: Annotated[int, typer.Option(min=1, help="Samples of each member to ask about.")] = 8,
    seeds: _Seeds = 3,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Guess from what an observer saw which member trained on a given sample.

    **Examples**

    `eris audit source`

    `eris audit source --observer server --set method=fedavg --seeds 10`
    """
    from eris.audit.inference import SMALL_SOURCE

    _ask("source", source, [*(changes or [])], SMALL_SOURCE, observer, seeds, asked, out, as_json=as_json)


def _ask(
    question: Question,
    source: Path | None,
    changes: list[str],
    preset: tuple[str, ...],
    observer: str,
    seeds: int,
    asked: int,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    from eris.audit.inference import audit_inference
    from eris.audit.observer import parse_observer

    folder = out or stamped_folder()
    config = settings(source, changes, preset=preset)
    chosen = range(config.seed, config.seed + seeds)
    with resumable(folder), Rounds(seeds * config.rounds, visible=not as_json) as progress:
        found = audit_inference(
            question, config, folder, parse_observer(observer), seeds=chosen, asked=asked, listeners=[progress]
        )
    if as_json:
        typer.echo(json.dumps({"path": str(folder), **found}))
        return
    show(_table(question, found), _footnotes(question, found, folder))


def _table(question: Question, found: dict[str, Any]) -> ResultsTable:
    figure = "AUC" if question == "property" else "named correctly"
    table = ResultsTable(("seed", "observer", figure, "95 %", "chance", "asked"), names=("observer",))
    rows = [dict(run) for run in found["runs"]]
    if found["over_seeds"] is not None:
        over_seeds = {"seed": "all", "observer": rows[0]["observer"], "chance": found["chance"], "asked": ""}
        rows.append({**over_seeds, **found["over_seeds"]})
    for row in rows:
        interval = f"{row['low']:.2f}–{row['high']:.2f}"
        table.add(
            str(row["seed"]), row["observer"], f"{row['value']:.2f}", interval, f"{row['chance']:.2f}",
            str(row["asked"]),
        )  # fmt: skip
    return table


def _footnotes(question: Question, found: dict[str, Any], folder: Path) -> str:
    return (
        f"{found['note']}.\n"
        "95 %: within a run; over all seeds, by Student's t. The observer itself is left out.\n"
        f"results: {folder / f'{question}.json'}"
    )
