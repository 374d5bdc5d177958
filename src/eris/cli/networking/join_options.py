"""The options of `eris join`, in the groups of its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from eris.cli.networking.options import JsonLogs, MetricsPort, ProxyOption, RelayOption, WebOption, WebPlace
from eris.errors import ConfigError

__all__ = ["BudgetOptions", "FloorOptions", "ReachOptions", "RunOptions", "WatchOptions"]


@dataclass(frozen=True)
class ReachOptions:
    """Where this peer is, and how it gets out."""

    help_panel: ClassVar = "How others reach this peer"

    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where members dial in (default: any free port).")
    ] = None
    no_listen: Annotated[bool, typer.Option("--no-listen", help="Only dial out; this peer then never aggregates.")] = (
        False
    )
    relay: RelayOption = None
    proxy: ProxyOption = None
    advertise: Annotated[
        str, typer.Option(metavar="HOST", help="Host under which others reach this peer, if it differs.")
    ] = ""
    organisation: Annotated[str, typer.Option(metavar="ORG", help="The organisation that this peer belongs to.")] = ""

    def require_one_way(self) -> None:
        """Refuse options that contradict each other."""
        if self.listen and self.no_listen:
            raise ConfigError("--listen and --no-listen contradict each other", fix="give one of them")
        if self.relay and self.no_listen:
            raise ConfigError("--relay and --no-listen contradict each other", fix="--relay alone opens no port")


@dataclass(frozen=True)
class FloorOptions:
    """The least that a member asks of a round before it sends anything."""

    help_panel: ClassVar = "What this member insists on"

    min_aggregators: Annotated[
        int | None, typer.Option(min=1, help="Send nothing if fewer peers share the work (default: the file's).")
    ] = None
    max_share: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Largest part of our update one peer may see (default: the file's)."),
    ] = None
    show_more: Annotated[
        bool,
        typer.Option("--show-more-than-agreed", help="Allow a floor below the file's: others see more of our update."),
    ] = False
    max_organisation_share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Largest part of our update one organisation may see.")
    ] = 1.0
    min_contributors: Annotated[
        int, typer.Option(min=1, help="Send nothing if means of fewer members are published.")
    ] = 3
    require: Annotated[
        list[str] | None,
        typer.Option(metavar="TRANSFORM", help="A transform that must be on, e.g. gaussian_noise. Repeatable."),
    ] = None
    share_figures: Annotated[
        bool,
        typer.Option(
            "--share-figures",
            help="Share sums of our scores: all learn the mean over members, one aggregator learns ours "
            "(none, if masked).",
        ),
    ] = False


@dataclass(frozen=True)
class RunOptions:
    """What this peer keeps, and how long it waits."""

    help_panel: ClassVar = "This peer's run"

    out: Annotated[Path | None, typer.Option(help="This peer's folder (default: runs/FEDERATION-DIGEST/NAME).")] = None
    spill_above: Annotated[
        float,
        typer.Option(metavar="GIB", min=0.0, help="Keep vectors longer than this (GiB) in files of that folder."),
    ] = 1.0
    reproducible: Annotated[
        bool, typer.Option("--reproducible", help="Derive all randomness from the seed: no privacy claim.")
    ] = False
    evaluate: Annotated[bool, typer.Option(help="Evaluate the model on this peer's held-out data.")] = True
    report: Annotated[
        bool, typer.Option(envvar="ERIS_REPORT", help="Write report.html at the end (extra `report`).")
    ] = True
    wait: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for the coordinator to come up.")] = 60.0
    patience: Annotated[float, typer.Option(min=1.0, help="Seconds to carry on without hearing from it.")] = 300.0


@dataclass(frozen=True)
class BudgetOptions:
    """What this member may spend, over all runs that it takes part in."""

    help_panel: ClassVar = "Privacy over all runs"

    budget: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            envvar="ERIS_BUDGET",
            help="Where to record what this member spends over all runs (default: its state folder); none: no record.",
        ),
    ] = None
    max_epsilon: Annotated[
        float,
        typer.Option(min=0.0, help="Do not begin if all runs together might spend more than this ε. 0: no limit."),
    ] = 0.0


@dataclass(frozen=True)
class WatchOptions:
    """Who hears what happens, and how."""

    help_panel: ClassVar = "Watching"

    metrics: MetricsPort = None
    web: WebOption = False
    web_at: WebPlace = None
    track: Annotated[
        list[str] | None,
        typer.Option(help="Send this peer's figures elsewhere too: tensorboard, mlflow, wandb, or module:name."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Write what happens as JSON lines.")] = False
    log_json: JsonLogs = False
