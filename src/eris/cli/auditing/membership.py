"""`eris audit membership`: plant canaries, train, and guess who was in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from eris.cli.auditing.answer import drawn, show
from eris.cli.auditing.interruption import resumable
from eris.cli.auditing.options import (
    AttackName,
    Canaries,
    Changes,
    Json,
    Out,
    Source,
    Views,
    attacks,
    settings,
    stamped_folder,
)
from eris.cli.auditing.progress import Rounds
from eris.cli.auditing.tables import membership_footnotes, membership_table, runs_footnote

if TYPE_CHECKING:
    from eris.audit.memory_need import AuditMemory

__all__ = ["membership"]

_SEEDS = 5  # without --seeds
_MasksKnown = Annotated[
    bool, typer.Option("--masks-known", help="Tell the attacker what each member kept under independent masks.")
]


def membership(
    source: Source = None,
    changes: Changes = None,
    observer: Annotated[
        list[str] | None,
        typer.Option(
            help="aggregator (default), pair, unmasker (both masked), coalition:C, server, neighbour, broadcast, wire; "
            "repeatable."
        ),
    ] = None,
    attack: AttackName = "best",
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="5",
            help="Number of trainings, each with a seed that nothing was tuned on; a claim needs ten.",
        ),
    ] = None,
    canaries: Canaries = 64,
    views: Views = 8,
    masks_known: _MasksKnown = False,
    filler: Annotated[
        str, typer.Option(help="For --attack spv on texts: a local model that fills gaps (BERT, T5, GPT).")
    ] = "",
    copies: Annotated[int, typer.Option(min=1, help="For --attack spv: changed copies of each text.")] = 10,
    crafted: Annotated[
        bool,
        typer.Option("--crafted", help="Canaries whose gradients look like nothing else: an upper bound for samples."),
    ] = False,
    losses_only: Annotated[
        bool, typer.Option("--losses-only", help="Build no gradients of single samples; for models too large for that.")
    ] = False,
    all_attacks: Annotated[
        bool,
        typer.Option(
            "--all-attacks", help="Let every attack listen, so that another one can be asked later without training."
        ),
    ] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, show_default="cores", help="Trainings to run at once.")
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Plant canaries, train, and guess from what an observer saw which of them were trained on.

    Canaries must be planted before the training, so of a finished run only the settings are used, and it is trained
    again. A run that an audit made (audits/…/runs/eris) is only attacked again.

    **Examples**

    `eris audit membership`

    `eris audit membership --seeds 10`

    `eris audit membership --seeds 1 --set method=eris --all-attacks`

    `eris audit membership runs/digits --observer aggregator --observer coalition:5`

    `eris audit membership --set method=eris --set aggregators=4 --attack paper --json`
    """
    from eris.audit.attacks.by_name import TUNING
    from eris.audit.membership_run import AuditPlan, attack_again, audit_membership, finished_audit, over_seeds
    from eris.audit.observer import parse_observer
    from eris.audit.plots import plot_membership

    folder, asked = out or stamped_folder(), attacks(attack)
    if (
        source is not None
        and not (changes or observer or (seeds or 1) > 1)
        and (before := finished_audit(source, asked)) is not None
    ):
        trials = attack_again(source, folder, before)
    else:
        config = settings(source, changes or [])
        observers = tuple(parse_observer(text) for text in observer or ["aggregator"])
        plan = AuditPlan(
            observers,
            asked,
            canaries=canaries,
            views=views,
            masks_known=masks_known,
            filler=filler,
            copies=copies,
            crafted=crafted,
            losses_only=losses_only,
            heard=() if all_attacks else asked,
        )
        count = seeds or _SEEDS
        chosen = TUNING.other_seeds(config.seed, count) if count > 1 else ()
        total = count * len(config.methods) * config.rounds
        with resumable(folder), Rounds(total, visible=not as_json) as progress:
            trials = audit_membership(
                config,
                folder,
                plan,
                seeds=chosen,
                listeners=[progress],
                notice=_memory_note(visible=not as_json),
                processes=processes or ((os.cpu_count() or 1) if config.workers == 1 else 1),
            )
    plain, together = [trial.plain() for trial in trials], over_seeds(trials)
    path = folder / "membership.png"
    picture = drawn(lambda: plot_membership(together or plain, path), path)
    if as_json:
        typer.echo(json.dumps({"path": str(folder), "over_seeds": together, "trials": plain}))
        return
    notes = membership_footnotes(together or plain, folder / "membership.json", picture)
    which = "".join(f"Attack: {choice}.\n" for choice in dict.fromkeys(trial.choice for trial in trials) if choice)
    table = membership_table(together or plain, "method", "method")
    show(table, f"{which}{runs_footnote(plain, together)}\n{notes}")


def _memory_note(*, visible: bool) -> Callable[[AuditMemory], None]:
    """Say once how much memory is needed, before it is taken."""
    said: set[str] = set()

    def say(need: AuditMemory) -> None:
        if visible and not said:
            Console(stderr=True).print(f"memory besides the training: {need}", soft_wrap=True, highlight=False)
        said.add(str(need))

    return say
