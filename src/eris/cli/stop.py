"""`eris stop`: end a run for everybody."""

from __future__ import annotations

from typing import Annotated

import typer

from eris.cli.networking.options import DEFAULT_FILE, CredentialsOption, FederationFile

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def stop(
        file: FederationFile = DEFAULT_FILE,
        peer: Annotated[
            str | None, typer.Option(metavar="NAME", help="Who asks (default: the coordinator, or the only peer here).")
        ] = None,
        credentials: CredentialsOption = None,
    ) -> None:
        """End the run; who asked is on record. Started again in the same folders, it goes on where it was."""
        from eris.cli.networking.options import known_caller

        with known_caller(file, credentials, peer, coordinator=True) as (name, client):
            client.stop()
        typer.echo(f"the run has ended, stopped by {name}")
