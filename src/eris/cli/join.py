"""`eris join`: one peer of a real federation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from eris.cli.networking.options import (
    CredentialsOption,
    FederationArgument,
    JsonLogs,
    MetricsPort,
    ProxyOption,
    RelayOption,
    WebOption,
    WebPlace,
)
from eris.cli.own_task import FlowerOption, NodeConfigOption, TaskOption
from eris.errors import ConfigError, Reason, Refused
from eris.printable import printable

if TYPE_CHECKING:
    from eris.events import Event, Listener
    from eris.peer.budget import MemberBudget
    from eris.peer.federation_file import FederationFile
    from eris.peer.node_settings import NodeSettings
    from eris.peer.own_task import MakeTask
    from eris.peer.preflight import CheckResult
    from eris.peer.session import Session
    from eris.transport.credentials import Credentials
    from eris.web.live_facts import LiveFacts

__all__ = ["register"]


_PLAIN_NOTE = (
    "plain shards: each aggregator sees its part of your update; "
    'masking = "pairs" under [privacy] in FEDERATION.toml would show it only sums over many members'
)


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def join(
        file: FederationArgument,
        peer: Annotated[str, typer.Option(metavar="NAME", help="This peer's name in the file and on its certificate.")],
        credentials: CredentialsOption = None,
        task: TaskOption = None,
        flower: FlowerOption = None,
        node_config: NodeConfigOption = "",
        accept: Annotated[
            str | None, typer.Option(metavar="DIGEST", help="Refuse to join unless the run has this digest.")
        ] = None,
        check: Annotated[
            bool, typer.Option("--check", help="Check everything that can be checked, then exit.")
        ] = False,
        listen: Annotated[
            str | None, typer.Option(metavar="HOST:PORT", help="Where members dial in (default: any free port).")
        ] = None,
        no_listen: Annotated[
            bool, typer.Option("--no-listen", help="Only dial out; this peer then never aggregates.")
        ] = False,
        relay: RelayOption = None,
        proxy: ProxyOption = None,
        advertise: Annotated[
            str, typer.Option(metavar="HOST", help="Host under which others reach this peer, if it differs.")
        ] = "",
        organisation: Annotated[
            str, typer.Option(metavar="ORG", help="The organisation that this peer belongs to.")
        ] = "",
        min_aggregators: Annotated[
            int | None, typer.Option(min=1, help="Send nothing if fewer peers share the work (default: the file's).")
        ] = None,
        max_share: Annotated[
            float | None,
            typer.Option(min=0.0, max=1.0, help="Largest part of our update one peer may see (default: the file's)."),
        ] = None,
        show_more: Annotated[
            bool,
            typer.Option(
                "--show-more-than-agreed", help="Allow a floor below the file's: others see more of our update."
            ),
        ] = False,
        max_organisation_share: Annotated[
            float, typer.Option(min=0.0, max=1.0, help="Largest part of our update one organisation may see.")
        ] = 1.0,
        min_contributors: Annotated[
            int, typer.Option(min=1, help="Send nothing if means of fewer members are published.")
        ] = 3,
        share_figures: Annotated[
            bool,
            typer.Option(
                "--share-figures",
                help="Share sums of our scores: all learn the mean over members, one aggregator learns ours "
                "(none, if masked).",
            ),
        ] = False,
        require: Annotated[
            list[str] | None, typer.Option(metavar="TRANSFORM", help="Must be on, e.g. gaussian_noise. Repeatable.")
        ] = None,
        out: Annotated[
            Path | None, typer.Option(help="This peer's folder (default: runs/FEDERATION-DIGEST/NAME).")
        ] = None,
        spill_above: Annotated[
            float,
            typer.Option(metavar="GIB", min=0.0, help="Keep vectors longer than this (GiB) in files of that folder."),
        ] = 1.0,
        reproducible: Annotated[
            bool, typer.Option("--reproducible", help="Derive all randomness from the seed: no privacy claim.")
        ] = False,
        evaluate: Annotated[bool, typer.Option(help="Evaluate the model on this peer's held-out data.")] = True,
        report: Annotated[
            bool, typer.Option(envvar="ERIS_REPORT", help="Write report.html at the end (extra `report`).")
        ] = True,
        wait: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for the coordinator to come up.")] = 60.0,
        patience: Annotated[float, typer.Option(min=1.0, help="Seconds to carry on without hearing from it.")] = 300.0,
        budget: Annotated[
            str | None,
            typer.Option(
                metavar="DIR",
                envvar="ERIS_BUDGET",
                help="Where this member keeps what it spends over all runs (default: its state folder); none: nowhere.",
            ),
        ] = None,
        max_epsilon: Annotated[
            float, typer.Option(min=0.0, help="Do not begin if all runs together might spend more than this ε. 0: any.")
        ] = 0.0,
        metrics: MetricsPort = None,
        web: WebOption = False,
        web_at: WebPlace = None,
        track: Annotated[
            list[str] | None,
            typer.Option(help="Send this peer's figures elsewhere too: tensorboard, mlflow, wandb, or module:name."),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Write what happens as JSON lines.")] = False,
        log_json: JsonLogs = False,
        with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
    ) -> None:
        """Take part in a run: train on this machine's data, aggregate a shard, follow the verdicts."""
        from eris.cli.networking.allocator import keep_few_arenas
        from eris.cli.networking.options import address_option, advertised, find_credentials, relays_option, web_place
        from eris.cli.own_task import for_peer
        from eris.peer.federation_file import load_federation
        from eris.peer.node_settings import NodeSettings
        from eris.transport.route import Proxy
        from eris.web.live_facts import LiveFacts

        if listen and no_listen:
            raise ConfigError("--listen and --no-listen contradict each other", fix="give one of them")
        federation = load_federation(file)
        federation.number(peer)
        _require_accepted(federation, accept)
        own = find_credentials(file, federation, credentials, peer)
        if relay and no_listen:
            raise ConfigError("--relay and --no-listen contradict each other", fix="--relay alone opens no port")
        place = None if no_listen or (relay and not listen) else address_option(listen, "--listen") or ("", 0)
        floor = federation.floor_of(
            min_aggregators=min_aggregators,
            max_share=max_share,
            may_be_weaker=show_more,
            max_organisation_share=max_organisation_share,
            min_contributors=min_contributors,
            transforms=tuple(require or ()),
            share_figures=share_figures,
        )
        settings = NodeSettings(
            name=peer,
            listen=place,
            relays=relays_option(relay),
            proxy=Proxy.chosen(proxy),
            advertise=advertise or advertised(place),
            organisation=organisation,
            floor=floor,
            patience=patience,
            wait=wait,
            spill_above=int(spill_above * 2**30),
        )
        folder = out or Path("runs") / f"{federation.name}-{federation.digest[:8]}" / peer
        problem = for_peer(task, flower, node_config)
        if check:
            _check(federation, own, settings, problem, folder)
            return
        keep_few_arenas()
        tracked, page = (track or [], folder), web_place(web, web_at)
        if page is not None or (Console().is_terminal and not as_json):
            facts = LiveFacts(peer, federation.peers, kind="peer", rounds=federation.config.rounds)
        else:
            facts = None
        with _listeners(federation, own, metrics, tracked, facts, as_json=as_json) as listeners:
            session = _open(
                federation,
                own,
                settings,
                problem,
                folder,
                reproducible=reproducible,
                evaluate=evaluate,
                listeners=listeners,
                budget=_budget(budget, peer),
                max_epsilon=max_epsilon,
            )
            _start_logging(session, facts, as_json=log_json, quiet=not (log_json or as_json))
            _warn(own, session, reproducible, alone=not with_parent)
            with _shown(session, facts, page, own, as_json=as_json):
                summary = _run(session, with_parent=with_parent)
            written = _reported(summary, folder, listeners) if report else None
        _finish(summary, folder, written, as_json=as_json)


def _budget(folder: str | None, peer: str) -> MemberBudget | None:
    from eris.peer.budget import MemberBudget, budget_folder

    return None if folder == "none" else MemberBudget(Path(folder) if folder else budget_folder(), peer)


@contextmanager
def _shown(
    session: Session, facts: LiveFacts | None, page: tuple[int, str] | None, own: Credentials, *, as_json: bool
) -> Iterator[None]:
    """Show the run as a page to who asked for one, and as a table in a terminal."""
    if facts is None:
        yield
        return
    from eris.cli.live_table import shown_live
    from eris.web.peer_facts import PeerFacts

    more, console = PeerFacts(facts, session.node, session.budget, lambda: own.identity.not_after), Console()
    with ExitStack() as stack:
        if page is not None:
            from eris.web.live_page import LivePage

            served = stack.enter_context(LivePage(facts, host=page[1], port=page[0], refresh=more.refresh))
            typer.echo(f"live page: {served.address}", err=as_json)
        if console.is_terminal and not as_json:
            stack.enter_context(shown_live(facts, console, more.refresh))
        yield


def _require_accepted(federation: FederationFile, accept: str | None) -> None:
    if accept is not None and accept != federation.digest:
        raise Refused(
            Reason.WRONG_RUN,
            f"the run has digest {federation.digest}, --accept names another",
            fix="compare FEDERATION.toml with the one you agreed to",
        )


def _check(
    federation: FederationFile, own: Credentials, settings: NodeSettings, task: str | MakeTask | None, folder: Path
) -> None:
    from eris.cli.doctor import network_findings
    from eris.cli.networking.findings import show_findings
    from eris.peer.preflight import examine_task

    def findings() -> Iterator[CheckResult]:
        yield from network_findings(federation, own, settings)
        number = federation.number(settings.name)
        yield from examine_task(federation, task, settings.floor, number, folder, spill_above=settings.spill_above)

    typer.echo(f"digest {federation.digest}")
    show_findings(findings())


def _open(
    federation: FederationFile,
    own: Credentials,
    settings: NodeSettings,
    task: str | MakeTask | None,
    folder: Path,
    *,
    reproducible: bool,
    evaluate: bool,
    listeners: list[Listener],
    budget: MemberBudget | None,
    max_epsilon: float,
) -> Session:
    from eris.peer.own_task import task_for
    from eris.peer.peer_folder import PeerFolder, private_root_in
    from eris.peer.session import Session
    from eris.seeds import private_root

    number = federation.number(settings.name)
    trained = task_for(task, federation.config, number)  # first: where it cannot be had, nothing is left behind
    root = private_root(federation.config.seed, number) if reproducible else private_root_in(folder, settings.name)
    return Session(
        federation,
        own,
        trained,
        root,
        settings,
        PeerFolder(folder, federation, settings.name, spill_above=settings.spill_above),
        reproducible=reproducible,
        evaluate=evaluate,
        listeners=listeners,
        own_task=task if isinstance(task, str) else federation.config.model.name if task else "",
        budget=budget,
        max_epsilon=max_epsilon,
    )


@contextmanager
def _listeners(
    federation: FederationFile,
    own: Credentials,
    metrics: str | None,
    tracked: tuple[list[str], Path],
    facts: LiveFacts | None,
    *,
    as_json: bool,
) -> Iterator[list[Listener]]:
    """Open whatever shows what happens: lines or facts for a table and a page, and metrics for who asked for them."""
    from eris.cli.networking.event_lines import SPOKEN, event_line
    from eris.cli.networking.live_view import PeerLines
    from eris.events import hears

    peer, console = own.name, Console()
    with ExitStack() as stack:
        listeners: list[Listener] = [facts] if facts is not None else []
        if as_json:

            @hears(*SPOKEN)
            def speak(event: Event) -> None:
                typer.echo(event_line(event, peer))

            listeners.append(speak)
        elif not console.is_terminal:
            listeners.append(PeerLines(peer, console))
        if metrics is not None:
            from eris.cli.networking.options import metrics_place
            from eris.peer.gauges import PeerGauges

            served = PeerGauges(federation.name, peer, *metrics_place(metrics), lambda: own.identity.not_after)
            stack.callback(served.close)
            listeners.append(served)
        if tracked[0]:
            from eris.interop.trackers import Tracking

            listeners.append(stack.enter_context(Tracking(*tracked, federation.config)))
        yield listeners


def _start_logging(session: Session, facts: LiveFacts | None, *, as_json: bool, quiet: bool) -> None:
    from eris.cli.networking.logs import start_logging
    from eris.web.live_facts import LogLines

    node = session.node

    def context() -> dict[str, Any]:
        return {"run": node.composition.run, "round": node.member.round, "peer": session.name}

    also = [LogLines(facts)] if facts is not None else []
    start_logging(as_json=as_json, quiet=quiet, context=context, also=also)


def _warn(own: Credentials, session: Session, reproducible: bool, *, alone: bool) -> None:
    from eris.compose import could_be_masked
    from eris.peer.node import NOISE_NOTE

    console = Console(stderr=True)
    if warning := own.expiry_warning():
        console.print(warning, style="yellow")
    if reproducible and session.node.composition.noise is not None:
        console.print(NOISE_NOTE, style="yellow")
    if alone and could_be_masked(session.node.federation.config):
        console.print(_PLAIN_NOTE, style="yellow", soft_wrap=True, markup=False)


def _run(session: Session, *, with_parent: bool) -> dict[str, Any]:
    from eris.cli.networking.interruption import interruptible, stop_with_parent

    if with_parent:
        stop_with_parent(session.node.stop)
    with interruptible(session.node.stop):
        return session.run()


def _reported(summary: dict[str, Any], folder: Path, listeners: list[Listener]) -> Path | str | None:
    """Write the report of a run that had rounds, and hand it to trackers; return where it is, or why not."""
    from eris.cli.report import report_or_reason
    from eris.interop.trackers import Tracking

    written = report_or_reason(folder) if summary["rounds"] else None
    for listener in listeners:
        if isinstance(listener, Tracking) and isinstance(written, Path):
            listener.artefact(written)
    return written


def _finish(summary: dict[str, Any], folder: Path, written: Path | str | None, *, as_json: bool) -> None:
    from eris.cli.exit_code import ExitCode, code_of_end
    from eris.cli.networking.interruption import INTERRUPTED

    if not as_json:
        typer.echo(f"{printable(summary['ended'])} after {summary['rounds']} rounds; everything is in {folder}")
        for note in summary["notes"]:
            typer.echo(f"note: {printable(note)}")
        if "budget" in summary:
            typer.echo(f"over all runs: {summary['budget']['text']}")
        if written is not None:
            typer.echo(f"report: {written}")
        typer.echo(f"model_digest {summary['model_digest']}")
    if summary["ended"] == INTERRUPTED:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not summary["finished"] and (code := code_of_end(summary["ended"])):
        raise typer.Exit(code)
