"""The options of `eris plan`, in the groups of its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

__all__ = ["AdviceOptions", "FleetOptions", "MethodChoice", "OutputOptions"]


@dataclass(frozen=True)
class FleetOptions:
    """Who takes part, over which links."""

    help_panel: ClassVar = "The fleet"

    members: Annotated[int | None, typer.Option("--members", "-k", help="Number of members [50].")] = None
    aggregators: Annotated[
        str,
        typer.Option("--aggregators", "-a", help="How many, or names: oslo,bergen [all]."),
    ] = ""
    rate: Annotated[str, typer.Option(help="Rate of every link: 20MB/s, 100Mbit/s.")] = "20MB/s"
    server_rate: Annotated[str, typer.Option(help="Rate of the server, for methods that need one.")] = ""
    relay_rate: Annotated[
        str,
        typer.Option(help="No peer opens a port: rate of the one relay between them."),
    ] = ""
    fleet: Annotated[
        Path | None,
        typer.Option(help="Peers with their own rates and memory (TOML or CSV)."),
    ] = None
    participation: Annotated[str, typer.Option(help="Share of the members that train in a round [100%].")] = ""
    audience: Annotated[str, typer.Option(help="Who receives published shards: all, participants.")] = "all"
    shards: Annotated[str, typer.Option(help="Shard sizes: even, or capacity (linear programme).")] = "even"
    replicas: Annotated[int, typer.Option(min=1, max=2, help="Aggregators of each shard, to be compared.")] = 1
    header: Annotated[int, typer.Option(help="Bytes before every chunk (eris uses 160).")] = 0
    chunk: Annotated[int, typer.Option(help="Bytes per chunk; 0: one chunk per message.")] = 0


@dataclass(frozen=True)
class MethodChoice:
    """Which methods, and how they compress."""

    help_panel: ClassVar = "The methods"

    keep: Annotated[str, typer.Option(help="Share of the values that DSC keeps, p = 1/(1+ω) [5%].")] = ""
    omega: Annotated[float | None, typer.Option(help="The same as ω instead of --keep.")] = None
    masks: Annotated[str, typer.Option(help="DSC masks: shared, independent (secret), public [shared].")] = ""
    method: Annotated[list[str] | None, typer.Option(help="Only this method; repeatable.")] = None
    prune: Annotated[float | None, typer.Option(help="PriPrune: share withheld [1%].")] = None
    degree: Annotated[int | None, typer.Option(help="Shatter: neighbours r [4].")] = None
    chunks: Annotated[int | None, typer.Option(help="Shatter: virtual nodes l [2].")] = None
    partitions: Annotated[int | None, typer.Option(help="Ako: partitions p [5].")] = None

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that were named; none: all of them."""
        return tuple(self.method or ())


@dataclass(frozen=True)
class AdviceOptions:
    """What the advice is to reach, and what it may not."""

    help_panel: ClassVar = "Advice"

    advise: Annotated[bool, typer.Option("--advise", help="Choose aggregators, shards and compression.")] = False
    round_time: Annotated[float | None, typer.Option(help="Target: seconds per round.")] = None
    exposure: Annotated[str, typer.Option(help="Target: largest share of an update that may be seen.")] = ""
    memory: Annotated[str, typer.Option(help="Target: memory of an aggregator (500MB).")] = ""
    collude: Annotated[int, typer.Option(help="How many colluding aggregators --exposure holds for.")] = 1
    largest_shard: Annotated[
        str,
        typer.Option(help="Largest share of the model for one aggregator [10%]."),
    ] = ""
    least_keep: Annotated[str, typer.Option(help="Strongest compression to allow.")] = "1%"

    @property
    def wants_advice(self) -> bool:
        """Whether advice was asked for, by name or by a target."""
        return self.advise or self.round_time is not None or bool(self.exposure or self.memory)


@dataclass(frozen=True)
class OutputOptions:
    """What is printed or drawn."""

    help_panel: ClassVar = "Output"

    as_printed: Annotated[bool, typer.Option("--as-printed", help="Compute by the rules of the paper's tables.")] = (
        False
    )
    panel: Annotated[
        str,
        typer.Option(help="A table of the paper: cnn-dailymail, imdb, cifar-10, mnist or main-text."),
    ] = ""
    plot: Annotated[Path | None, typer.Option(help="Draw time against clients, size and rate.")] = None
    figure: Annotated[str, typer.Option(help="With --plot: clients, size, rate or all.")] = "all"
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False
