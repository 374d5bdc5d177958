"""`eris coordinator`: rendezvous and round clock of a federation. No update, shard or model passes through it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eris.cli.networking.options import CredentialsOption, FederationFile, JsonLogs, MetricsPort

if TYPE_CHECKING:
    from eris.peer.coordinate import CoordinatorNode

__all__ = ["register"]

_LINGER = 30.0  # seconds that a busy peer has to hear of the end; those that are gone are not waited for


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def coordinator(
        file: FederationFile,
        credentials: CredentialsOption = None,
        listen: Annotated[
            str | None,
            typer.Option(metavar="HOST:PORT", help="Where to listen (default: the file's port, everywhere)."),
        ] = None,
        state: Annotated[
            Path | None,
            typer.Option(metavar="DIR", help="Where plans and verdicts are kept (default: beside the file)."),
        ] = None,
        begin_with: Annotated[
            int,
            typer.Option(
                min=0, metavar="N", help="Begin when N listed peers are here; the others may come later. 0: all."
            ),
        ] = 0,
        wait: Annotated[
            float, typer.Option(min=0.0, metavar="SECONDS", help="End if too few peers have come by then.")
        ] = 86_400.0,
        metrics: MetricsPort = None,
        as_json: Annotated[bool, typer.Option("--json", help="Write what happens as JSON lines.")] = False,
        log_json: JsonLogs = False,
        with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
    ) -> None:
        """Take peers in, keep the clock, write verdicts; on any machine that all peers can reach."""
        from eris.cli.networking.allocator import keep_few_arenas
        from eris.cli.networking.logs import start_logging
        from eris.cli.networking.options import address_option, find_credentials
        from eris.peer.coordinate import CoordinatorNode
        from eris.peer.federation import load_federation
        from eris.transport.control import COORDINATOR

        keep_few_arenas()
        federation = load_federation(file)
        own = find_credentials(file, federation, credentials, COORDINATOR)
        place = address_option(listen, "--listen") or ("", federation.coordinator[1])
        folder = state or file.parent / f"{federation.name}-{federation.digest[:8]}-coordinator"
        start_logging(as_json=log_json, quiet=as_json and not log_json, context=lambda: {"peer": COORDINATOR})
        node = CoordinatorNode(federation, own, folder, listen=place, begin_with=begin_with, wait=wait)
        _announce(node, as_json=as_json)
        _serve_until_the_end(node, metrics, as_json=as_json, with_parent=with_parent)


def _announce(node: CoordinatorNode, *, as_json: bool) -> None:
    federation, (host, port) = node.federation, node.address
    place = f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"
    if as_json:
        typer.echo(json.dumps({"event": "listening", "address": place, "port": port, "digest": federation.digest}))
        return
    typer.echo(f"federation {federation.name} at {place}, waiting for {', '.join(federation.peers)}")
    typer.echo(f"digest {federation.digest}")


def _serve_until_the_end(node: CoordinatorNode, metrics: int | None, *, as_json: bool, with_parent: bool) -> None:
    from eris.cli.exit_code import ExitCode, code_of_end
    from eris.cli.networking.interruption import interruptible, stop_with_parent

    away = threading.Event()

    def go_away(how: str) -> None:
        del how
        away.set()

    if with_parent:
        stop_with_parent(go_away)
    if metrics is not None:
        from eris.peer.gauges import CoordinatorGauges

        CoordinatorGauges(node, metrics)
    ended = ""
    try:
        with interruptible(go_away):
            while not away.is_set() and not (ended := node.wait(0.2)):
                pass
            if ended:
                node.linger(_LINGER)
    finally:
        node.close()
    _finish(ended, as_json=as_json)
    if node.failure is not None:
        raise node.failure
    if not ended:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if code := code_of_end(ended):
        raise typer.Exit(code)


def _finish(ended: str, *, as_json: bool) -> None:
    how = ended or "interrupted"
    typer.echo(json.dumps({"event": "end", "how": how}) if as_json else how)
