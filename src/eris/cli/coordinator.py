"""`eris coordinator`: rendezvous and round clock of a federation. No update, shard or model passes through it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from eris.cli.networking.options import (
    CredentialsOption,
    FederationArgument,
    JsonLogs,
    MetricsPort,
    WebOption,
    WebPlace,
)

if TYPE_CHECKING:
    from eris.coordinate.service import CoordinatorService
    from eris.peer.federation_file import FederationFile
    from eris.transport.credentials import Credentials

__all__ = ["register"]

_LINGER = 30.0  # seconds that a busy peer has to hear of the end; those that are gone are not waited for


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def coordinator(
        file: FederationArgument,
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
                min=0, metavar="N", help="Begin when N listed peers have joined; the others may join later. 0: all."
            ),
        ] = 0,
        wait: Annotated[
            float, typer.Option(min=0.0, metavar="SECONDS", help="End if too few peers have joined by then.")
        ] = 86_400.0,
        patience: Annotated[
            float,
            typer.Option(
                min=0.0, metavar="SECONDS", help="Wait this long when too few members are present for a round."
            ),
        ] = 3600.0,
        linger: Annotated[
            float,
            typer.Option(min=0.0, metavar="SECONDS", help="At the end, stay this long for members without the model."),
        ] = 300.0,
        lost_rounds: Annotated[
            int, typer.Option(min=0, metavar="N", help="End when N rounds in a row committed nothing. 0: never.")
        ] = 10,
        take_over: Annotated[
            bool,
            typer.Option(
                "--take-over",
                help="Take over from a coordinator that is lost: wait for the votes of more than half of the listed "
                "peers, and continue from what they keep.",
            ),
        ] = False,
        metrics: MetricsPort = None,
        web: WebOption = False,
        web_at: WebPlace = None,
        as_json: Annotated[bool, typer.Option("--json", help="Write what happens as JSON lines.")] = False,
        log_json: JsonLogs = False,
        with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
    ) -> None:
        """Admit peers, keep the clock, write verdicts; run it on any machine that all peers can reach."""
        from eris.cli.networking.allocator import keep_few_arenas
        from eris.cli.networking.logs import start_logging
        from eris.cli.networking.options import address_option, find_credentials, web_place
        from eris.coordinate.service import CoordinatorService
        from eris.coordinate.take_over import require_not_taken_over
        from eris.peer.federation_file import load_federation
        from eris.transport.control import COORDINATOR

        keep_few_arenas()
        federation = load_federation(file)
        own = find_credentials(file, federation, credentials, *_names(federation, take_over=take_over))
        place = address_option(listen, "--listen") or ("", federation.coordinators[own.name][1])
        folder = state or file.parent / f"{federation.name}-{federation.digest[:8]}-{own.name}"
        place_of_page = web_place(web, web_at)
        view = _View(federation) if place_of_page is not None or (Console().is_terminal and not as_json) else None
        start_logging(
            as_json=log_json,
            quiet=(as_json and not log_json) or (view is not None and Console().is_terminal),
            context=lambda: {"peer": COORDINATOR},
            also=[view.log] if view is not None else [],
        )
        if take_over:
            _take_over(federation, own, folder, place, wait, with_parent=with_parent)
        elif federation.settings.standbys:
            require_not_taken_over(federation, own)
        node = CoordinatorService(
            federation,
            own,
            folder,
            listen=place,
            begin_with=begin_with,
            wait=wait,
            patience=patience,
            linger=linger,
            lost_rounds=lost_rounds,
            listeners=[view.facts] if view is not None else [],
        )
        _announce(node, as_json=as_json)
        with view.open(node, place_of_page, as_json=as_json) if view is not None else nullcontext():
            _serve_until_the_end(node, metrics, as_json=as_json, with_parent=with_parent)


def _names(federation: FederationFile, *, take_over: bool) -> tuple[str, ...]:
    """Return whose credentials to look for: to take over, a standby's first."""
    from eris.errors import ConfigError

    names = tuple(federation.coordinators)
    if take_over and len(names) == 1:
        raise ConfigError(
            "this federation lists no standby that may take over",
            fix='add one to every peer\'s file, before the run: standbys.NAME = "host:port" under [federation]',
            key="federation.standbys",
        )
    return (*names[1:], names[0]) if take_over else names


def _take_over(
    federation: FederationFile,
    own: Credentials,
    folder: Path,
    place: tuple[str, int],
    wait: float,
    *,
    with_parent: bool,
) -> None:
    """Wait until the listed peers have voted for us; say so, and by whom."""
    from eris.cli.exit_code import ExitCode
    from eris.coordinate.take_over import take_over
    from eris.errors import RunStopped

    typer.echo(
        f"{own.name} asks {', '.join(federation.peers)} for their votes; more than half of them must vote", err=True
    )
    away = threading.Event()
    try:
        with _interruptible(away, with_parent=with_parent):
            mandate = take_over(federation, own, folder, listen=place, wait=wait, stopped=away.is_set)
    except RunStopped:
        if away.is_set():
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        raise
    votes = ", ".join(vote.voter for vote in mandate.votes)
    typer.echo(f"{own.name} coordinates in term {mandate.term}, with the votes of {votes}", err=True)


@contextmanager
def _interruptible(away: threading.Event, *, with_parent: bool) -> Iterator[None]:
    """Set `away` on a signal or when the parent process ends, instead of stopping in the middle of something."""
    from eris.cli.networking.interruption import interruptible, stop_with_parent

    def go_away(how: str) -> None:
        del how
        away.set()

    if with_parent:
        stop_with_parent(go_away)
    with interruptible(go_away):
        yield


class _View:
    """What is shown of the run: a page if one was asked for, a table in a terminal."""

    def __init__(self, federation: FederationFile) -> None:
        from eris.web.live_facts import LiveFacts, LogLines, masking_of

        self.facts = LiveFacts(federation.name, federation.peers, kind="coordinator", rounds=federation.config.rounds)
        self.facts.note(masking=masking_of(federation.config))
        self.log = LogLines(self.facts)

    @contextmanager
    def open(self, node: CoordinatorService, page: tuple[int, str] | None, *, as_json: bool) -> Iterator[None]:
        from eris.web.overview_facts import note_overview

        console = Console()

        def look() -> None:
            note_overview(self.facts, node.overview(), node.name)

        with ExitStack() as stack:
            if page is not None:
                from eris.web.live_page import LivePage

                served = stack.enter_context(LivePage(self.facts, host=page[1], port=page[0], refresh=look))
                typer.echo(f"live page: {served.address}", err=as_json)
            if console.is_terminal and not as_json:
                from eris.cli.live_table import shown_live

                stack.enter_context(shown_live(self.facts, console, look))
            yield


def _announce(node: CoordinatorService, *, as_json: bool) -> None:
    federation, (host, port) = node.federation, node.address
    place = f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"
    if as_json:
        from eris.cli.networking.event_lines import event_line
        from eris.events import CoordinatorListening
        from eris.transport.control import COORDINATOR

        typer.echo(event_line(CoordinatorListening(place, federation.digest), COORDINATOR))
        return
    typer.echo(f"federation {federation.name} at {place}, waiting for {', '.join(federation.peers)}")
    typer.echo(f"digest {federation.digest}")


def _serve_until_the_end(node: CoordinatorService, metrics: str | None, *, as_json: bool, with_parent: bool) -> None:
    from eris.cli.exit_code import ExitCode, code_of_end

    if metrics is not None:
        from eris.cli.networking.options import metrics_place
        from eris.coordinate.gauges import CoordinatorGauges

        CoordinatorGauges(node, *metrics_place(metrics))
    ended, began, away = "", time.monotonic(), threading.Event()
    try:
        with _interruptible(away, with_parent=with_parent):
            while not away.is_set() and not (ended := node.wait(0.2)):
                pass
            if ended:
                node.linger(_LINGER)
    finally:
        node.close()
    _finish(node, ended, time.monotonic() - began, as_json=as_json)
    if node.failure is not None:
        raise node.failure
    if not ended:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if code := code_of_end(ended):
        raise typer.Exit(code)


def _finish(node: CoordinatorService, ended: str, seconds: float, *, as_json: bool) -> None:
    from eris.cli.networking.event_lines import event_line
    from eris.events import RunEnded
    from eris.transport.control import COORDINATOR

    how, rounds = ended or "interrupted", node.coordinator.round if node.coordinator is not None else 0
    event = RunEnded(rounds, ended == "finished", "", seconds, how)
    typer.echo(event_line(event, COORDINATOR) if as_json else how)
