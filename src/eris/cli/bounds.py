"""`eris bounds`: what the theory promises, and what is known against each promise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eris.cli.option_groups import grouped, values_of
from eris.cli.planning.bounds_options import LeakageOptions, RateOptions, StartOptions, StepOptions

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    @grouped
    def bounds(
        context: typer.Context,
        steps: StepOptions,
        start: StartOptions,
        leakage: LeakageOptions,
        rates: RateOptions,
        run: Annotated[
            Path | None,
            typer.Option("--from", help="A finished run to estimate constants from.", metavar="DIR"),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
    ) -> None:
        """Show what the theory allows and promises: steps, utility, rounds, leakage, rates.

        Every number comes with the known objections to it. None of them is a measurement: leakage in particular has to
        be measured with an attack.

        **Examples**

        `eris bounds --members 50 --omega 19 --masks independent --samples 64 --batch 16`

        `eris bounds --model lenet5 --aggregators 50 --keep 3.3% --rounds 120 --snr 0.01 --collude 2`

        `eris bounds --from runs/digits`
        """
        from eris.cli.planning.question import BoundsQuestion
        from eris.cli.planning.theory import show_bounds

        given = frozenset(name for name in context.params if _on_command_line(context, name))
        show_bounds(BoundsQuestion(**values_of(steps, start, leakage, rates), run=run, as_json=as_json, given=given))


def _on_command_line(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
