"""`eris join`: one peer of a real federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from eris.cli.networking.join_options import BudgetOptions, FloorOptions, ReachOptions, RunOptions, WatchOptions
from eris.cli.networking.options import CredentialsOption, FederationArgument
from eris.cli.option_groups import grouped
from eris.cli.own_task import FlowerOption, NodeConfigOption, TaskOption
from eris.errors import Reason, Refused
from eris.printable import printable

if TYPE_CHECKING:
    from eris.events import Listener
    from eris.peer.budget import MemberBudget
    from eris.peer.federation_file import FederationFile
    from eris.peer.node_settings import NodeSettings
    from eris.peer.own_task import MakeTask
    from eris.peer.session import Session
    from eris.transport.credentials import Credentials

__all__ = ["register"]


_PLAIN_NOTE = (
    "plain shards: each aggregator sees its part of your update; "
    'masking = "pairs" under [privacy] in FEDERATION.toml would show it only sums over many members'
)


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    @grouped
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
        *,
        reach: ReachOptions,
        floor: FloorOptions,
        run: RunOptions,
        spending: BudgetOptions,
        watching: WatchOptions,
        with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
    ) -> None:
        """Take part in a run: train on this machine's data, aggregate a shard, follow the verdicts."""
        from eris.cli.networking.allocator import keep_few_arenas
        from eris.cli.networking.options import find_credentials
        from eris.cli.networking.peer_view import facts_of, listeners_of, shown, start_logs
        from eris.cli.own_task import for_peer
        from eris.peer.federation_file import load_federation

        reach.require_one_way()
        federation = load_federation(file)
        federation.number(peer)
        _require_accepted(federation, accept)
        own = find_credentials(file, federation, credentials, peer)
        settings = _settings(federation, peer, reach, floor, run)
        folder = run.out or Path("runs") / f"{federation.name}-{federation.digest[:8]}" / peer
        problem = for_peer(task, flower, node_config)
        if check:
            from eris.cli.doctor import check_peer

            check_peer(federation, own, settings, problem, folder)
            return
        keep_few_arenas()
        facts = facts_of(federation, peer, watching)
        with listeners_of(federation, own, folder, facts, watching) as listeners:
            session = _open(federation, own, settings, problem, folder, run, spending, listeners)
            start_logs(session, facts, watching)
            _warn(own, session, run.reproducible, alone=not with_parent)
            with shown(session, facts, own, watching):
                summary = _run(session, with_parent=with_parent)
            written = _reported(summary, folder, listeners) if run.report else None
        _finish(summary, folder, written, as_json=watching.as_json)


def _settings(
    federation: FederationFile, peer: str, reach: ReachOptions, floor: FloorOptions, run: RunOptions
) -> NodeSettings:
    from eris.cli.networking.options import address_option, advertised, relays_option
    from eris.peer.node_settings import NodeSettings
    from eris.transport.route import Proxy

    closed = reach.no_listen or (reach.relay and not reach.listen)
    place = None if closed else address_option(reach.listen, "--listen") or ("", 0)
    return NodeSettings(
        name=peer,
        listen=place,
        relays=relays_option(reach.relay),
        proxy=Proxy.chosen(reach.proxy),
        advertise=reach.advertise or advertised(place),
        organisation=reach.organisation,
        floor=federation.floor_of(
            min_aggregators=floor.min_aggregators,
            max_share=floor.max_share,
            may_be_weaker=floor.show_more,
            max_organisation_share=floor.max_organisation_share,
            min_contributors=floor.min_contributors,
            transforms=tuple(floor.require or ()),
            share_figures=floor.share_figures,
        ),
        patience=run.patience,
        wait=run.wait,
        spill_above=int(run.spill_above * 2**30),
    )


def _budget(folder: str | None, peer: str) -> MemberBudget | None:
    from eris.peer.budget import MemberBudget, budget_folder

    return None if folder == "none" else MemberBudget(Path(folder) if folder else budget_folder(), peer)


def _require_accepted(federation: FederationFile, accept: str | None) -> None:
    if accept is not None and accept != federation.digest:
        raise Refused(
            Reason.WRONG_RUN,
            f"the run has digest {federation.digest}, --accept names another",
            fix="compare FEDERATION.toml with the one you agreed to",
        )


def _open(
    federation: FederationFile,
    own: Credentials,
    settings: NodeSettings,
    task: str | MakeTask | None,
    folder: Path,
    run: RunOptions,
    spending: BudgetOptions,
    listeners: list[Listener],
) -> Session:
    from eris.peer.own_task import task_for
    from eris.peer.peer_folder import PeerFolder, private_root_in
    from eris.peer.session import Session
    from eris.seeds import private_root

    number = federation.number(settings.name)
    trained = task_for(task, federation.config, number)  # first: if it fails, nothing is left behind
    root = private_root(federation.config.seed, number) if run.reproducible else private_root_in(folder, settings.name)
    return Session(
        federation,
        own,
        trained,
        root,
        settings,
        PeerFolder(folder, federation, settings.name, spill_above=settings.spill_above),
        reproducible=run.reproducible,
        evaluate=run.evaluate,
        listeners=listeners,
        own_task=task if isinstance(task, str) else federation.config.model.name if task else "",
        budget=_budget(spending.budget, settings.name),
        max_epsilon=spending.max_epsilon,
    )


def _warn(own: Credentials, session: Session, reproducible: bool, *, alone: bool) -> None:
    from eris.compose import could_be_masked
    from eris.peer.run_events import NOISE_NOTE

    console = Console(stderr=True)
    if warning := own.expiry_warning():
        console.print(warning, style="yellow", markup=False)
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
