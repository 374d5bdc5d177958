"""`eris relay`: joins the streams of peers that open no port. It carries ciphertext and can read none of it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eris.cli.networking.options import JsonLogs

if TYPE_CHECKING:
    from eris.transport.relay import RelayNews

__all__ = ["register"]

_WORDS = {
    "waits": "{peer} waits here",
    "gone": "{peer} no longer waits here",
    "joined": "{peer} is joined with {other}",
    "parted": "{peer} and {other} have parted: {carried:,} bytes",
    "refused": "{peer} is refused: {why}",
}


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def relay(
        certs: Annotated[
            Path, typer.Option(metavar="DIR", help="Credentials of the relay, made by `eris certs issue DIR relay`.")
        ],
        federation: Annotated[
            Path, typer.Option(metavar="FEDERATION.toml", help="The federation whose listed peers may use the relay.")
        ],
        listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where peers dial in.")] = ":7445",
        as_json: Annotated[bool, typer.Option("--json", help="Write what happens as JSON lines.")] = False,
        log_json: JsonLogs = False,
    ) -> None:
        """Connect peers that nobody can dial; run it on any machine that all of them can reach."""
        from eris.cli.networking.interruption import interruptible
        from eris.cli.networking.logs import start_logging
        from eris.cli.networking.options import address_option
        from eris.errors import ConfigError
        from eris.peer.federation_file import load_federation
        from eris.transport.control import COORDINATOR
        from eris.transport.credentials import Credentials
        from eris.transport.relay import RelayServer
        from eris.transport.route import address_text

        shared, own = load_federation(federation), Credentials(certs)
        if own.federation != shared.name:
            raise ConfigError(
                f"the certificate belongs to federation {own.federation!r}, the file to {shared.name!r}",
                fix="use the credentials and the file of the same federation",
                folder=certs,
            )
        start_logging(as_json=log_json, quiet=True)
        place = address_option(listen, "--listen") or ("", 7445)
        over = threading.Event()
        # The coordinator is carried too: it checks that a peer can be reached before it gives it a shard.
        listed = (*shared.peers, COORDINATOR)
        with RelayServer(own, place, listed=listed, tell=lambda news: _say(news, as_json=as_json)) as server:
            where = address_text(server.address)
            if as_json:
                typer.echo(json.dumps({"event": "listening", "address": where, "peers": len(shared.peers)}))
            else:
                typer.echo(f"relay of federation {shared.name} at {where}, for {len(shared.peers)} peers")
            if warning := own.expiry_warning():
                typer.secho(warning, fg=typer.colors.YELLOW, err=True)
            with interruptible(lambda _: over.set()):
                over.wait()
        carried = server.carried
        typer.echo(
            json.dumps({"event": "ended", "carried": carried}) if as_json else f"ended; {carried:,} bytes carried"
        )


def _say(news: RelayNews, *, as_json: bool) -> None:
    from dataclasses import asdict

    said = {key: value for key, value in asdict(news).items() if value not in ("", None)}
    typer.echo(json.dumps(said) if as_json else _WORDS[news.event].format(**asdict(news)))
