"""`eris join`: one peer of a real federation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from eris.cli.networking.options import CredentialsOption, FederationFile, JsonLogs, MetricsPort
from eris.errors import ConfigError, Reason, Refused

if TYPE_CHECKING:
    from eris.peer.doctor import Finding
    from eris.peer.federation import Federation
    from eris.peer.node_settings import NodeSettings
    from eris.peer.session import Notice, Session
    from eris.transport.credentials import Credentials

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def join(
        file: FederationFile,
        peer: Annotated[str, typer.Option(metavar="NAME", help="This peer's name in the file and on its certificate.")],
        credentials: CredentialsOption = None,
        task: Annotated[
            str | None,
            typer.Option(metavar="MODULE:TASK", help="Your own learning problem; called with (config, peer's number)."),
        ] = None,
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
        advertise: Annotated[
            str, typer.Option(metavar="HOST", help="Host under which others reach this peer, if it is another one.")
        ] = "",
        organisation: Annotated[str, typer.Option(metavar="ORG", help="Whom this peer belongs to.")] = "",
        min_aggregators: Annotated[int, typer.Option(min=1, help="Send nothing if fewer peers share the work.")] = 1,
        max_share: Annotated[
            float, typer.Option(min=0.0, max=1.0, help="Largest part of our update one peer may see.")
        ] = 1.0,
        max_organisation_share: Annotated[
            float, typer.Option(min=0.0, max=1.0, help="Largest part of our update one organisation may see.")
        ] = 1.0,
        min_contributors: Annotated[
            int, typer.Option(min=1, help="Send nothing if means of fewer members are published.")
        ] = 3,
        require: Annotated[
            list[str] | None, typer.Option(metavar="TRANSFORM", help="Must be on, e.g. gaussian_noise. Repeatable.")
        ] = None,
        out: Annotated[
            Path | None, typer.Option(help="This peer's folder (default: runs/FEDERATION-DIGEST/NAME).")
        ] = None,
        spill_above: Annotated[
            float,
            typer.Option(metavar="GIB", min=0.0, help="Vectors longer than this (GiB) lie in files of that folder."),
        ] = 1.0,
        reproducible: Annotated[
            bool, typer.Option("--reproducible", help="Derive all randomness from the seed: no privacy claim.")
        ] = False,
        evaluate: Annotated[bool, typer.Option(help="Evaluate the model on this peer's held-out data.")] = True,
        wait: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for the coordinator to come up.")] = 60.0,
        patience: Annotated[float, typer.Option(min=1.0, help="Seconds to go on without a word from it.")] = 300.0,
        metrics: MetricsPort = None,
        as_json: Annotated[bool, typer.Option("--json", help="Write what happens as JSON lines.")] = False,
        log_json: JsonLogs = False,
        with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
    ) -> None:
        """Take part in a run: train on this machine's data, aggregate a shard, follow the verdicts."""
        from eris.cli.networking.allocator import keep_few_arenas
        from eris.cli.networking.options import address_option, advertised, find_credentials
        from eris.peer.federation import load_federation
        from eris.peer.node_settings import NodeSettings
        from eris.protocol.floor import Floor

        if listen and no_listen:
            raise ConfigError("--listen and --no-listen contradict each other", fix="give one of them")
        federation = load_federation(file)
        federation.number(peer)
        _require_accepted(federation, accept)
        own = find_credentials(file, federation, credentials, peer)
        place = None if no_listen else address_option(listen, "--listen") or ("", 0)
        floor = Floor(min_aggregators, max_share, max_organisation_share, min_contributors, tuple(require or ()))
        settings = NodeSettings(
            name=peer,
            listen=place,
            advertise=advertise or advertised(place),
            organisation=organisation,
            floor=floor,
            patience=patience,
            wait=wait,
            spill_above=int(spill_above * 2**30),
        )
        folder = out or Path("runs") / f"{federation.name}-{federation.digest[:8]}" / peer
        if check:
            _check(federation, own, settings, task, folder)
            return
        keep_few_arenas()
        with _listeners(federation, peer, metrics, as_json=as_json) as listeners:
            session = _open(
                federation,
                own,
                settings,
                task,
                folder,
                reproducible=reproducible,
                evaluate=evaluate,
                listeners=listeners,
            )
            _start_logging(session, as_json=log_json, quiet=not (log_json or as_json))
            _warn(own, session, reproducible)
            summary = _run(session, with_parent=with_parent)
        _finish(summary, folder, as_json=as_json)


def _require_accepted(federation: Federation, accept: str | None) -> None:
    if accept is not None and accept != federation.digest:
        raise Refused(
            Reason.WRONG_RUN,
            f"the run has digest {federation.digest}, --accept names another",
            fix="compare FEDERATION.toml with the one you agreed to",
        )


def _check(federation: Federation, own: Credentials, settings: NodeSettings, task: str | None, folder: Path) -> None:
    from eris.cli.doctor import network_findings
    from eris.cli.networking.findings import show_findings
    from eris.peer.rehearsal import examine_task

    def findings() -> Iterator[Finding]:
        yield from network_findings(federation, own, settings.listen, settings.advertise)
        number = federation.number(settings.name)
        yield from examine_task(federation, task, settings.floor, number, folder, spill_above=settings.spill_above)

    typer.echo(f"digest {federation.digest}")
    show_findings(findings())


def _open(
    federation: Federation,
    own: Credentials,
    settings: NodeSettings,
    task: str | None,
    folder: Path,
    *,
    reproducible: bool,
    evaluate: bool,
    listeners: list[Callable[[Notice], None]],
) -> Session:
    from eris.peer.own_task import task_for
    from eris.peer.peer_folder import PeerFolder
    from eris.peer.private_file import private_root_in
    from eris.peer.session import Session
    from eris.seeds import private_root

    number = federation.number(settings.name)
    root = private_root(federation.config.seed, number) if reproducible else private_root_in(folder, settings.name)
    return Session(
        federation,
        own,
        task_for(task, federation.config, number),
        root,
        settings,
        PeerFolder(folder, federation, settings.name),
        reproducible=reproducible,
        evaluate=evaluate,
        listeners=listeners,
    )


@contextmanager
def _listeners(
    federation: Federation, peer: str, metrics: int | None, *, as_json: bool
) -> Iterator[list[Callable[[Notice], None]]]:
    """Open whatever shows what happens: lines or a live view, and metrics for who asked for them."""
    from eris.cli.networking.live_view import LiveView, PeerLines

    console = Console()
    with ExitStack() as stack:
        if as_json:
            show: Callable[[Notice], None] = _print_json
        elif console.is_terminal:
            show = stack.enter_context(LiveView((peer,), federation.config.rounds, console))
        else:
            show = PeerLines(federation, console)
        gauges: list[Callable[[Notice], None]] = []
        if metrics is not None:
            from eris.peer.gauges import PeerGauges

            served = PeerGauges(federation.name, peer, metrics)
            stack.callback(served.close)
            gauges.append(served)
        yield [show, *gauges]


def _print_json(notice: Notice) -> None:
    typer.echo(json.dumps(notice))


def _start_logging(session: Session, *, as_json: bool, quiet: bool) -> None:
    from eris.cli.networking.logs import start_logging

    node = session.node

    def context() -> dict[str, Any]:
        return {"run": session.run_name, "round": node.member.round, "peer": session.name}

    start_logging(as_json=as_json, quiet=quiet, context=context)


def _warn(own: Credentials, session: Session, reproducible: bool) -> None:
    from eris.peer.stay import NOISE_NOTE

    console = Console(stderr=True)
    if warning := own.expiry_warning():
        console.print(warning, style="yellow")
    if reproducible and session.node.noise is not None:
        console.print(NOISE_NOTE, style="yellow")


def _run(session: Session, *, with_parent: bool) -> dict[str, Any]:
    from eris.cli.networking.interruption import interruptible, stop_with_parent

    if with_parent:
        stop_with_parent(session.node.stop)
    with interruptible(session.node.stop):
        return session.run()


def _finish(summary: dict[str, Any], folder: Path, *, as_json: bool) -> None:
    from eris.cli.exit_code import ExitCode, code_of_end
    from eris.cli.networking.interruption import INTERRUPTED

    if not as_json:
        typer.echo(f"{summary['ended']} after {summary['rounds']} rounds; everything is in {folder}")
        typer.echo(f"model_digest {summary['model_digest']}")
    if summary["ended"] == INTERRUPTED:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not summary["finished"] and (code := code_of_end(summary["ended"])):
        raise typer.Exit(code)
