"""`eris audit poisoning`: let a few members attack, and see how each rule of aggregation copes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from eris.cli.auditing.answer import ResultsTable, drawn, percent_interval, show
from eris.cli.auditing.interruption import resumable
from eris.cli.auditing.options import Changes, Json, Out, Source, settings, stamped_folder
from eris.cli.auditing.progress import Rounds

__all__ = ["poisoning"]


def poisoning(
    source: Source = None,
    changes: Changes = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(help="none, sign-flip, label-flip, scaled, backdoor (default: all); repeatable."),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(help="mean, median, trimmed mean, fixed point (default: these), masked; repeatable."),
    ] = None,
    attackers: Annotated[int, typer.Option(min=1, help="Number of attackers; fewer than half of the members.")] = 2,
    target: Annotated[int, typer.Option(min=0, help="The class that the backdoor leads to.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per attack and rule; a claim needs ten.")] = 3,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Let a few members attack, and see what is left of the model under each rule.

    Fixed point stands for masked sums too: their bits are the same. It also shows what masks cost: no rule can look
    at single members' values, and nobody can be blamed.

    **Examples**

    `eris audit poisoning`

    `eris audit poisoning my.toml --attackers 4 --attack backdoor --rule mean --rule median --seeds 10`
    """
    from eris.audit.plots import plot_poisoning
    from eris.audit.poisoning import SMALL_POISONING, PoisoningPlan, audit_poisoning

    folder = out or stamped_folder()
    config = settings(source, changes or [], preset=SMALL_POISONING)
    standard = PoisoningPlan(attackers=attackers, target=target)
    plan = PoisoningPlan(
        tuple(dict.fromkeys(attack or standard.attacks)),
        tuple(dict.fromkeys(rule or standard.rules)),
        attackers=attackers,
        target=target,
    )
    chosen = range(config.seed, config.seed + seeds)
    total = seeds * len(plan.attacks) * len(plan.rules) * config.rounds
    with resumable(folder), Rounds(total, visible=not as_json, what="rounds") as progress:
        processes = (os.cpu_count() or 1) if config.workers == 1 else 1
        results = audit_poisoning(config, folder, plan, seeds=chosen, listeners=[progress], processes=processes)
    path = folder / "poisoning.png"
    picture = drawn(lambda: plot_poisoning(results, path), path)
    if as_json:
        typer.echo(json.dumps({"path": str(folder), "results": results}))
        return
    show(_table(results), _footnotes(attackers, config.members, chosen, folder / "poisoning.json", picture))


def _table(results: Sequence[dict[str, Any]]) -> ResultsTable:
    table = ResultsTable(("attack", "rule", "accuracy", "95 %", "backdoor", "95 %"), names=("attack", "rule"))
    for result in results:
        cells = [cell for name in ("accuracy", "backdoor_rate") for cell in _cells(result[name])]
        table.add(result["attack"], result["rule"], *cells)
    return table


def _cells(figure: dict[str, Any] | None) -> list[str]:
    if figure is None:
        return ["–", "–"]
    return [f"{figure['value']:.1%}", percent_interval(figure)]


def _footnotes(attackers: int, members: int, seeds: Sequence[int], path: Path, picture: str) -> str:
    over = f"{len(seeds)} seeds, Student's t" if len(seeds) > 1 else "one run, so no intervals"
    return (
        f"{attackers} of {members} members attack; {over}. Backdoor: test samples of other classes that are\n"
        "classified as the target if they carry the trigger; chance: attack none. Fixed point stands for masked sums.\n"
        f"results: {path}\npicture: {picture}"
    )
