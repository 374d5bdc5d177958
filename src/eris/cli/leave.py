"""`eris leave`: take a peer out of a run for good."""

from __future__ import annotations

from typing import Annotated

import typer

from eris.cli.networking.options import DEFAULT_FILE, CredentialsOption, FederationFile

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def leave(
        file: FederationFile = DEFAULT_FILE,
        peer: Annotated[
            str | None, typer.Option(metavar="NAME", help="Who leaves (default: the only peer with credentials here).")
        ] = None,
        credentials: CredentialsOption = None,
    ) -> None:
        """Leave a run: from the next round on it goes on without this peer. (Ctrl-C only interrupts `eris join`.)"""
        from eris.cli.networking.options import known_caller

        with known_caller(file, credentials, peer) as (name, client):
            client.leave({"for_good": True})
        typer.echo(f"{name} has left; the run goes on without it from the next round on")
