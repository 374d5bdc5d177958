"""`eris audit poisoning`: let a few members do harm, and see what each way to add contributions up makes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from eris.cli.auditing.answer import ResultsTable, drawn, percent_interval, show
from eris.cli.auditing.interruption import resumable
from eris.cli.auditing.options import Changes, Json, Out, settings, stamped_folder
from eris.cli.auditing.progress import Rounds

__all__ = ["poisoning"]


def poisoning(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG or RUN DIR]", help="Settings to train with (default: a small preset)."),
    ] = None,
    changes: Changes = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(help="none, sign-flip, label-flip, scaled, backdoor (default: all); may be given several times."),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(help="mean, median, trimmed mean, fixed point (default: all); may be given several times."),
    ] = None,
    attackers: Annotated[int, typer.Option(min=1, help="Members that do harm; fewer than half.")] = 2,
    target: Annotated[int, typer.Option(min=0, help="The class that the backdoor leads to.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each pair; a claim needs ten.")] = 3,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Let a few members do harm, and see what is left of the model under each rule.

    Fixed point stands for masked sums as well: they are the same bits. What masks take away is seen here, too: no rule
    that looks at single members' values, and nobody who could be named.

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
        results = audit_poisoning(config, folder, plan, seeds=chosen, listeners=[progress])
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
        "called the target's with the trigger on; chance: attack none. Fixed point stands for masked sums.\n"
        f"results: {path}\npicture: {picture}"
    )
