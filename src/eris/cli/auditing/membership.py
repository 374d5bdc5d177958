"""`eris audit membership`: plant canaries, train, and guess who was in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from eris.cli.auditing.interruption import resumable
from eris.cli.auditing.membership_table import membership_footnotes, membership_table
from eris.cli.auditing.options import (
    AttackName,
    Canaries,
    Changes,
    Json,
    Out,
    Views,
    attacks,
    settings,
    stamped_folder,
)
from eris.cli.auditing.rounds import Rounds
from eris.errors import MissingExtra

__all__ = ["membership"]

_MasksKnown = Annotated[
    bool, typer.Option("--masks-known", help="Tell the attacker what each member kept under independent masks.")
]


def membership(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG or RUN DIR]", help="Settings to train with; without: a small preset."),
    ] = None,
    changes: Changes = None,
    observer: Annotated[
        list[str] | None,
        typer.Option(
            help="aggregator (default), coalition:C, server, neighbour, broadcast or wire; more than one may be given."
        ),
    ] = None,
    attack: AttackName = "adaptive",
    canaries: Canaries = 64,
    views: Views = 8,
    masks_known: _MasksKnown = False,
    filler: Annotated[
        str, typer.Option(help="For --attack spv on texts: a local model that fills gaps (BERT, T5, GPT).")
    ] = "",
    copies: Annotated[int, typer.Option(min=1, help="For --attack spv: changed copies of each text.")] = 10,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Plant canaries, train, and tell from what an observer saw which of them were trained on.

    Canaries must be planted before the training, so a finished run's folder gives its settings and is trained again;
    unless an audit made it (audits/…/runs/eris): then it is only attacked again.

    **Examples**

    `eris audit membership`

    `eris audit membership runs/digits --observer aggregator --observer coalition:5`

    `eris audit membership --set method=eris --set aggregators=4 --attack paper --json`
    """
    from eris.audit.attempt import Plan, planted
    from eris.audit.observer import parse_observer
    from eris.audit.trial import ask_again, audit_membership

    folder = out or stamped_folder()
    if source is not None and not (changes or observer) and (before := planted(source, attacks(attack))) is not None:
        trials = ask_again(source, folder, before)
    else:
        config = settings(source, changes or [])
        observers = tuple(parse_observer(text) for text in observer or ["aggregator"])
        plan = Plan(
            observers,
            attacks(attack),
            canaries=canaries,
            views=views,
            masks_known=masks_known,
            filler=filler,
            copies=copies,
        )
        with resumable(folder), Rounds(len(config.methods) * config.rounds, visible=not as_json) as progress:
            trials = audit_membership(config, folder, plan, listeners=[progress])
    plain = [trial.plain() for trial in trials]
    picture = _draw(plain, folder / "membership.png")
    if as_json:
        typer.echo(json.dumps({"path": str(folder), "trials": plain}))
        return
    console = Console()
    console.print(membership_table(plain, "method", "method"))
    console.print(membership_footnotes(plain, folder / "membership.json", picture), soft_wrap=True, highlight=False)


def _draw(trials: list[dict[str, Any]], path: Path) -> str:
    from eris.audit.plot import plot_membership

    try:
        plot_membership(trials, path)
    except MissingExtra as error:
        return f"not drawn ({error})"
    return str(path)
