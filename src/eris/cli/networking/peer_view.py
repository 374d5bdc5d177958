"""What a peer shows while it takes part: lines or a table, a live page, metrics, logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from eris.cli.networking.join_options import WatchOptions
    from eris.events import Event, Listener
    from eris.peer.federation_file import FederationFile
    from eris.peer.session import Session
    from eris.transport.credentials import Credentials
    from eris.web.live_facts import LiveFacts

__all__ = ["facts_of", "listeners_of", "shown", "start_logs"]


def facts_of(federation: FederationFile, peer: str, watching: WatchOptions) -> LiveFacts | None:
    """Return the facts behind a page or a table; None if there is neither."""
    from eris.cli.networking.options import web_place
    from eris.web.live_facts import LiveFacts

    page = web_place(watching.web, watching.web_at)
    if page is None and (watching.as_json or not Console().is_terminal):
        return None
    return LiveFacts(peer, federation.peers, kind="peer", rounds=federation.config.rounds)


@contextmanager
def shown(session: Session, facts: LiveFacts | None, own: Credentials, watching: WatchOptions) -> Iterator[None]:
    """Show the run as a page if one was asked for, and as a table in a terminal."""
    if facts is None:
        yield
        return
    from eris.cli.live_table import shown_live
    from eris.cli.networking.options import web_place
    from eris.web.peer_facts import PeerFacts

    page, as_json = web_place(watching.web, watching.web_at), watching.as_json
    more, console = PeerFacts(facts, session.node, session.budget, lambda: own.identity.not_after), Console()
    with ExitStack() as stack:
        if page is not None:
            from eris.web.live_page import LivePage

            served = stack.enter_context(LivePage(facts, host=page[1], port=page[0], refresh=more.refresh))
            typer.echo(f"live page: {served.address}", err=as_json)
        if console.is_terminal and not as_json:
            stack.enter_context(shown_live(facts, console, more.refresh))
        yield


@contextmanager
def listeners_of(
    federation: FederationFile, own: Credentials, folder: Path, facts: LiveFacts | None, watching: WatchOptions
) -> Iterator[list[Listener]]:
    """Open everything that shows the run: lines, or facts for a table and a page; metrics and trackers if asked for.

    Args:
        federation: the file that all peers share.
        own: this peer's credentials.
        folder: this peer's folder.
        facts: behind the table and the page, if there is one.
        watching: what was asked for.
    """
    from eris.cli.networking.event_lines import SPOKEN, event_line
    from eris.cli.networking.live_view import PeerLines
    from eris.events import hears

    peer, console = own.name, Console()
    with ExitStack() as stack:
        listeners: list[Listener] = [facts] if facts is not None else []
        if watching.as_json:

            @hears(*SPOKEN)
            def speak(event: Event) -> None:
                typer.echo(event_line(event, peer))

            listeners.append(speak)
        elif not console.is_terminal:
            listeners.append(PeerLines(peer, console))
        if watching.metrics is not None:
            from eris.cli.networking.options import metrics_place
            from eris.peer.gauges import PeerGauges

            served = PeerGauges(federation.name, peer, *metrics_place(watching.metrics), lambda: own.identity.not_after)
            stack.callback(served.close)
            listeners.append(served)
        if watching.track:
            from eris.interop.trackers import Tracking

            listeners.append(stack.enter_context(Tracking(watching.track, folder, federation.config)))
        yield listeners


def start_logs(session: Session, facts: LiveFacts | None, watching: WatchOptions) -> None:
    """Write logs as was asked, each line with its run, round and peer; the live page has them too."""
    from eris.cli.networking.logs import start_logging
    from eris.web.live_facts import LogLines

    node = session.node

    def context() -> dict[str, Any]:
        return {"run": node.composition.run, "round": node.member.round, "peer": session.name}

    also = [LogLines(facts)] if facts is not None else []
    quiet = not (watching.log_json or watching.as_json)
    start_logging(as_json=watching.log_json, quiet=quiet, context=context, also=also)
