"""`eris plan`: what a round will cost, before anything is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eris.cli.option_groups import grouped, values_of
from eris.cli.planning.plan_options import AdviceOptions, FleetOptions, MethodChoice, OutputOptions
from eris.errors import ConfigError

if TYPE_CHECKING:
    from eris.cli.planning.request import Asked

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    @grouped
    def plan(
        model: Annotated[
            str,
            typer.Argument(
                help="Values of the model (62K, 1.65M, 1.3B), its name, a spec (spec.json) or a run's settings (TOML)."
            ),
        ] = "resnet9",
        *,
        fleet: FleetOptions,
        methods: MethodChoice,
        advice: AdviceOptions,
        output: OutputOptions,
    ) -> None:
        """Show what a round will cost: bytes, time, memory and exposure of every method.

        Times are lower bounds: links at full rate, no latency, no local work. Units are decimal (1 MB = 10⁶ bytes).

        **Examples**

        `eris plan 1.65M --members 50 --aggregators 10 --keep 1%`

        `eris plan resnet18 --fleet fleet.toml --advise --round-time 5 --exposure 10% --collude 2`

        `eris plan 1.3B --as-printed --panel cnn-dailymail`
        """
        from eris.cli.planning.request import Asked, completed

        asked = Asked(model=model, **values_of(fleet, methods, advice, output))
        if asked.relay_rate and (asked.as_printed or asked.panel):
            raise ConfigError("the paper's tables have no relay", fix="leave out --as-printed and --panel")
        if asked.replicas > 1 and (asked.plot is not None or asked.as_printed or asked.panel):
            raise ConfigError(
                "two replicas are neither drawn nor in the paper's tables", fix="leave out --plot and --as-printed"
            )
        if asked.collude != 1 and not asked.wants_advice:
            raise ConfigError(
                f"--collude {asked.collude} is for advice", fix="add --advise or a target such as --exposure 10%"
            )
        asked = completed(asked)
        if asked.plot is not None:
            _plot(asked, asked.plot)
        _show(asked)


def _show(asked: Asked) -> None:
    if asked.as_printed or asked.panel:
        from eris.cli.planning.printed import show_printed

        show_printed(asked)
    elif asked.wants_advice:
        from eris.cli.planning.advice import show_advice

        show_advice(asked)
    else:
        from eris.cli.planning.costs import show_costs

        show_costs(asked)


def _plot(asked: Asked, path: Path) -> None:
    from dataclasses import replace

    from eris.cli.planning.request import config_of, kept_of, printed_settings
    from eris.paper.duration_figures import FigureRequest, draw
    from eris.planner import model_size
    from eris.planner.quantity import parse_rate

    if asked.as_printed:
        asked = replace(asked, prune=printed_settings(asked).prune)  # the paper's, unless said otherwise
    question = FigureRequest(
        n=model_size(asked.model).values,
        members=50 if asked.members is None else asked.members,
        rate=parse_rate(asked.rate),
        keep=kept_of(asked),
        masks=asked.masks,  # type: ignore[arg-type]
        as_printed=asked.as_printed,
        config=config_of(asked),
    )
    draw(path, question, kinds=("clients", "size", "rate") if asked.figure == "all" else (asked.figure,))
    typer.echo(str(path), err=True)
