"""`eris watch`: a run in progress, as a table in the terminal and as a page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from eris.cli.networking.options import CredentialsOption, WebPlace

if TYPE_CHECKING:
    from eris.web.live_facts import LiveFacts

__all__ = ["register"]

_EVERY = 0.5  # seconds between two looks


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def watch(
        place: Annotated[
            Path, typer.Argument(metavar="DIR", help="A run's folder; or FEDERATION.toml, to ask its coordinator.")
        ],
        web: Annotated[bool, typer.Option(help="Serve the live page too; its address is printed.")] = True,
        at: WebPlace = None,
        once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
        credentials: CredentialsOption = None,
    ) -> None:
        """Watch a run in progress: state, rounds, peers, lost shards, bytes, seconds, loss, exposure."""
        with _source(place, credentials) as (facts, look, ended):
            if once:
                look()
                _print_table(facts)
                return
            with ExitStack() as stack:
                _open_page(stack, facts, at, web=web)
                _show(facts, look, ended)


Source = tuple["LiveFacts", Callable[[], None], Callable[[], bool]]


@contextmanager
def _source(place: Path, credentials: Path | None) -> Iterator[Source]:
    if place.is_file():
        with _coordinator(place, credentials) as source:
            yield source
        return
    from eris.web.follow_folder import FolderFollower

    follower = FolderFollower(place)
    yield follower.facts, follower.look, lambda: follower.ended


@contextmanager
def _coordinator(file: Path, credentials: Path | None) -> Iterator[Source]:
    """Ask a coordinator for its status, with whatever credentials are found."""
    from eris.cli.networking.options import caller
    from eris.transport.link import LinkClosed, LinkTimeout
    from eris.web.live_facts import LiveFacts
    from eris.web.overview_facts import note_overview

    facts, over = LiveFacts(file.stem, kind="coordinator"), threading.Event()
    with caller(file, credentials) as client:

        def look() -> None:
            try:
                status = client.status()
            except (LinkClosed, LinkTimeout):
                facts.note(why="the coordinator does not answer")
                client.close()
                return
            facts.note(title=status.federation)
            note_overview(facts, status, client.name)
            if status.ended:
                over.set()

        yield facts, look, over.is_set


def _open_page(stack: ExitStack, facts: LiveFacts, at: str | None, *, web: bool) -> None:
    from eris.cli.networking.options import web_place

    if (place := web_place(web, at)) is None:
        return
    from eris.web.live_page import LivePage

    port, host = place
    served = stack.enter_context(LivePage(facts, host=host, port=port))
    typer.echo(f"live page: {served.address}")


def _show(facts: LiveFacts, look: Callable[[], None], ended: Callable[[], bool]) -> None:
    from eris.cli.live_table import shown_live

    console = Console()
    with ExitStack() as stack:
        look()
        if console.is_terminal:
            stack.enter_context(shown_live(facts, console))
        while not ended():
            time.sleep(_EVERY)
            look()
        look()
    _print_table(facts)


def _print_table(facts: LiveFacts) -> None:
    from eris.cli.live_table import live_table

    Console().print(live_table(facts.whole(), height=40))
