"""`eris status`: who is there, which round, what was lost."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eris.cli.networking.options import DEFAULT_FILE, CredentialsOption, FederationArgument
from eris.printable import printable_words

if TYPE_CHECKING:
    from eris.transport.control_client import ControlClient

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def status(
        file: FederationArgument = DEFAULT_FILE,
        credentials: CredentialsOption = None,
        wait: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for a coordinator to come up.")] = 0.0,
        as_json: Annotated[bool, typer.Option("--json", help="Print what the coordinator says, as JSON.")] = False,
    ) -> None:
        """Ask the coordinator who is there and how far the run has got."""
        from eris.cli.networking.options import caller

        with caller(file, credentials) as client:
            answer = _ask(client, time.monotonic() + wait)
        if as_json:
            typer.echo(json.dumps(answer, indent=2))
        else:
            _show(printable_words(answer), Console())


def _ask(client: ControlClient, until: float) -> dict[str, Any]:
    """Return what the coordinator says, who it is and where, and its term; wait for it until then."""
    from eris.protocol.take_over import term_of
    from eris.transport.link import LinkClosed, LinkTimeout
    from eris.transport.route import address_text
    from eris.wire.schema import plain

    while True:
        try:
            said: dict[str, Any] = plain(client.status())
        except (LinkClosed, LinkTimeout):
            if time.monotonic() >= until:
                raise
            client.close()
            time.sleep(0.2)
        else:
            who = {"coordinator": client.name, "coordinator_at": address_text(client.address)}
            return {**said, **who, "term": term_of(said["epoch"])}


def _show(status: dict[str, Any], console: Console) -> None:
    from eris.transport.credentials import EXPIRY_WARNING_DAYS

    state = status["ended"] or (f"round {status['round']} of {status['rounds']}" if status["started"] else "not begun")
    console.print(
        f"federation {status['federation']}, run {status['run'] or '–'}: {state}", highlight=False, markup=False
    )
    if not status["ended"]:
        state, why = status["state"], status["why"]
        style = "" if state == "training" else "yellow"
        said = why if why.startswith(state) else f"{state}{why and f': {why}'}"
        console.print(said, style=style, markup=False, highlight=False, soft_wrap=True)
    who = f"{status['coordinator']} at {status['coordinator_at']}"
    term = f"term {status['term']}, epoch {status['epoch']}"
    console.print(f"coordinator {who}, {term}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"digest {status['digest']}", highlight=False, soft_wrap=True, markup=False)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("peer", "here", "aggregates", "reached", "organisation"):
        table.add_column(title)
    for peer in status["peers"]:
        words = ("yes" if peer[key] else "no" for key in ("here", "aggregates"))
        table.add_row(
            Text(peer["name"]),
            *words,
            Text(status["ways"][peer["way"]] if peer["way"] >= 0 else "–"),
            Text(peer["organisation"]),
        )
    console.print(table)
    for name, expires in (("coordinator", status["expires"]), *((p["name"], p["expires"]) for p in status["peers"])):
        days = (expires - status["time"]) / 86_400
        if expires and days <= EXPIRY_WARNING_DAYS:
            when = "has expired" if days <= 0 else f"expires in {days:.0f} days"
            console.print(f"the certificate of {name} {when}: `eris certs renew`", style="yellow", markup=False)
    for reason, count in status["lost"].items():
        console.print(f"{count} shards lost: {reason}", style="yellow", markup=False)
    for finding in status.get("disagreements", ()):
        console.print(f"two aggregators disagree: {finding}", style="red", markup=False)
