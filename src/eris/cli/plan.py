"""`eris plan`: what a round will cost, before anything is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eris.errors import ConfigError

if TYPE_CHECKING:
    from eris.cli.planning.request import Asked

__all__ = ["register"]

_FLEET, _METHOD, _TARGET, _OUTPUT = "The fleet", "The methods", "Advice", "Output"


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def plan(
        model: Annotated[
            str,
            typer.Argument(
                help="Values of the model (62K, 1.65M, 1.3B), its name, a spec (spec.json) or a run's settings (TOML)."
            ),
        ] = "resnet9",
        members: Annotated[
            int | None, typer.Option("--members", "-k", help="Number of members [50].", rich_help_panel=_FLEET)
        ] = None,
        aggregators: Annotated[
            str,
            typer.Option("--aggregators", "-a", help="How many, or names: oslo,bergen [all].", rich_help_panel=_FLEET),
        ] = "",
        rate: Annotated[
            str, typer.Option(help="Rate of every link: 20MB/s, 100Mbit/s.", rich_help_panel=_FLEET)
        ] = "20MB/s",
        server_rate: Annotated[
            str, typer.Option(help="Rate of the server, for methods that need one.", rich_help_panel=_FLEET)
        ] = "",
        relay_rate: Annotated[
            str,
            typer.Option(help="No peer opens a port: rate of the one relay between them.", rich_help_panel=_FLEET),
        ] = "",
        fleet: Annotated[
            Path | None,
            typer.Option(help="Peers with their own rates and memory (TOML or CSV).", rich_help_panel=_FLEET),
        ] = None,
        participation: Annotated[
            str, typer.Option(help="Share of the members that train in a round [100%].", rich_help_panel=_FLEET)
        ] = "",
        audience: Annotated[
            str, typer.Option(help="Who receives published shards: all, participants.", rich_help_panel=_FLEET)
        ] = "all",
        shards: Annotated[
            str, typer.Option(help="Shard sizes: even, or capacity (linear programme).", rich_help_panel=_FLEET)
        ] = "even",
        replicas: Annotated[
            int, typer.Option(min=1, max=2, help="Aggregators of each shard, to be compared.", rich_help_panel=_FLEET)
        ] = 1,
        header: Annotated[
            int, typer.Option(help="Bytes before every chunk (160 on eris' wire).", rich_help_panel=_FLEET)
        ] = 0,
        chunk: Annotated[int, typer.Option(help="Bytes of a chunk; 0: one for a message.", rich_help_panel=_FLEET)] = 0,
        keep: Annotated[
            str, typer.Option(help="Share of the values that DSC keeps, p = 1/(1+ω) [5%].", rich_help_panel=_METHOD)
        ] = "",
        omega: Annotated[
            float | None, typer.Option(help="The same as ω instead of --keep.", rich_help_panel=_METHOD)
        ] = None,
        masks: Annotated[
            str, typer.Option(help="DSC masks: shared, independent (secret), public [shared].", rich_help_panel=_METHOD)
        ] = "",
        method: Annotated[
            list[str] | None, typer.Option(help="Only this method (repeatable).", rich_help_panel=_METHOD)
        ] = None,
        prune: Annotated[
            float | None, typer.Option(help="PriPrune: share withheld [1%].", rich_help_panel=_METHOD)
        ] = None,
        degree: Annotated[int | None, typer.Option(help="Shatter: neighbours r [4].", rich_help_panel=_METHOD)] = None,
        chunks: Annotated[
            int | None, typer.Option(help="Shatter: virtual nodes l [2].", rich_help_panel=_METHOD)
        ] = None,
        partitions: Annotated[int | None, typer.Option(help="Ako: partitions p [5].", rich_help_panel=_METHOD)] = None,
        advise: Annotated[
            bool, typer.Option("--advise", help="Choose aggregators, shards and compression.", rich_help_panel=_TARGET)
        ] = False,
        round_time: Annotated[
            float | None, typer.Option(help="Target: seconds per round.", rich_help_panel=_TARGET)
        ] = None,
        exposure: Annotated[
            str, typer.Option(help="Target: largest share of an update that may be seen.", rich_help_panel=_TARGET)
        ] = "",
        memory: Annotated[
            str, typer.Option(help="Target: memory of an aggregator (500MB).", rich_help_panel=_TARGET)
        ] = "",
        collude: Annotated[
            int, typer.Option(help="How many colluding aggregators --exposure holds for.", rich_help_panel=_TARGET)
        ] = 1,
        largest_shard: Annotated[
            str,
            typer.Option(help="Largest share of the model for one aggregator [10%].", rich_help_panel=_TARGET),
        ] = "",
        least_keep: Annotated[
            str, typer.Option(help="Strongest compression to allow.", rich_help_panel=_TARGET)
        ] = "1%",
        as_printed: Annotated[
            bool, typer.Option("--as-printed", help="By the rules of the paper's tables.", rich_help_panel=_OUTPUT)
        ] = False,
        panel: Annotated[
            str,
            typer.Option(
                help="A table of the paper: cnn-dailymail, imdb, cifar-10, mnist or main-text.", rich_help_panel=_OUTPUT
            ),
        ] = "",
        plot: Annotated[
            Path | None, typer.Option(help="Draw time against clients, size and rate.", rich_help_panel=_OUTPUT)
        ] = None,
        figure: Annotated[
            str, typer.Option(help="With --plot: clients, size, rate or all.", rich_help_panel=_OUTPUT)
        ] = "all",
        as_json: Annotated[bool, typer.Option("--json", help="For programs.", rich_help_panel=_OUTPUT)] = False,
    ) -> None:
        """Say what a round will cost: bytes, time, memory and exposure of every method.

        Times are lower bounds: links at full rate, no latency, no local work. Units are decimal (1 MB = 10⁶ bytes).

        **Examples**

        `eris plan 1.65M --members 50 --aggregators 10 --keep 1%`

        `eris plan resnet18 --fleet fleet.toml --advise --round-time 5 --exposure 10% --collude 2`

        `eris plan 1.3B --as-printed --panel cnn-dailymail`
        """
        from eris.cli.planning.request import Asked, completed

        asked = Asked(
            model, members, aggregators, rate, server_rate, fleet, participation, audience, shards, header, chunk, keep,
            omega, masks, tuple(method or ()), prune, degree, chunks, partitions, round_time, exposure, memory, collude,
            largest_shard, least_keep, panel, figure, as_printed, as_json, replicas,
            relay_rate,
        )  # fmt: skip
        if relay_rate and (as_printed or panel):
            raise ConfigError("the paper's tables have no relay", fix="leave --as-printed and --panel out")
        if replicas > 1 and (plot is not None or as_printed or panel):
            raise ConfigError(
                "two replicas are neither drawn nor in the paper's tables", fix="leave --plot and --as-printed out"
            )
        advise = advise or round_time is not None or bool(exposure or memory)
        if collude != 1 and not advise:
            raise ConfigError(
                f"--collude {collude} is for advice", fix="add --advise or a target such as --exposure 10%"
            )
        asked = completed(asked)
        if plot is not None:
            _plot(asked, plot)
        _show(asked, advise=advise)


def _show(asked: Asked, *, advise: bool) -> None:
    if asked.as_printed or asked.panel:
        from eris.cli.planning.printed import show_printed

        show_printed(asked)
    elif advise:
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
