"""`eris audit text`: recover the words of a text from one gradient step of a transformer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from eris.cli.auditing.answer import ResultsTable, percent_interval, show
from eris.cli.auditing.interruption import resumable
from eris.cli.auditing.options import Json, Out, stamped_folder
from eris.cli.auditing.progress import Attacks
from eris.errors import ConfigError

__all__ = ["text"]


def text(
    model: Annotated[
        str, typer.Option(help="tiny (ours), or an encoder that `eris data get` fetched: minilm-l6.")
    ] = "tiny",
    lora: Annotated[int, typer.Option(min=0, help="Train adapters of this rank instead of all weights.")] = 0,
    attack: Annotated[
        list[str] | None,
        typer.Option(help="span (default: DAGER's check) or search (in the manner of LAMP, seconds per text)."),
    ] = None,
    aggregators: Annotated[str, typer.Option(help="Numbers of aggregators; 1 is a server.")] = "1,8,32",
    tokens: Annotated[str, typer.Option(help="Lengths of texts.")] = "8,32",
    plan: Annotated[
        list[str] | None,
        typer.Option(help="contiguous, blocks of 1024, blocks of 32, random; repeatable."),
    ] = None,
    keep: Annotated[str, typer.Option(help="Shares of a shard that compression sends.")] = "1",
    noise: Annotated[str, typer.Option(help="Noise multipliers, with the gradient clipped to its own length.")] = "0",
    texts: Annotated[int, typer.Option(min=1, help="Texts for each point of the grid.")] = 5,
    steps_before: Annotated[
        int, typer.Option(min=0, help="Steps on other texts before the attacked one; adapters start half at zero.")
    ] = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Recover the words of a text from what an aggregator saw of one gradient step, over a grid of settings.

    **Examples**

    `eris audit text`

    `eris audit text --attack search --aggregators 8,32 --tokens 8 --plan random`

    `eris audit text --lora 16 --tokens 8 --keep 1,0.2 --noise 0,0.001`

    `eris audit text --lora 16 --attack span --attack search --model minilm-l6 --tokens 4 --aggregators 1,8`
    """
    from eris.audit.text.run import TextPlan, audit_text

    folder, standard = out or stamped_folder(), TextPlan()
    asked = TextPlan(
        model=model,
        lora=lora,
        attacks=tuple(dict.fromkeys(attack or standard.attacks)),
        aggregators=tuple(int(count) for count in _numbers(aggregators, least=1)),
        tokens=tuple(int(count) for count in _numbers(tokens, least=1)),
        plans=tuple(dict.fromkeys(plan or standard.plans)),
        keeps=_numbers(keep),
        noises=_numbers(noise),
        texts=texts,
        steps_before=steps_before,
    )
    with resumable(folder), Attacks(visible=not as_json) as progress:
        results = audit_text(asked, folder, notice=progress)
    if as_json:
        typer.echo(json.dumps({"path": str(folder), "results": results}))
        return
    chance = f"Chance: {results[0]['chance']:.2%} of the tokens."
    notes = f"{chance} 95 %: Student's t over {texts} synthetic texts.\nresults: {folder / 'text.json'}"
    show(_table(results), notes)


def _numbers(text: str, *, least: float = 0.0) -> tuple[float, ...]:
    """Read numbers separated by commas."""
    try:
        found = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise ConfigError(f"{text!r} is not a list of numbers", fix="separate them by commas: 1,8,32") from None
    if min(found) < least:
        raise ConfigError(f"{min(found):g} is less than {least:g}", fix="use larger numbers")
    return found


def _table(results: Sequence[dict[str, Any]]) -> ResultsTable:
    several = [name for name in ("attack", "keep", "noise") if len({result[name] for result in results}) > 1]
    columns = ("A", "tokens", "plan", *several, "sees", "recovered", "95 %", "exact")
    table = ResultsTable(columns, names=("plan", *several))
    for result in results:
        found = result["recovered"]
        recovered = (f"{found['value']:.0%}", percent_interval(found))
        names = (str(result["aggregators"]), str(result["tokens"]), result["plan"])
        own = (*names, *(str(result[name]) for name in several))
        table.add(*own, f"{result['sees']:.1%}", *recovered, f"{result['exact']:.0%}")
    return table
