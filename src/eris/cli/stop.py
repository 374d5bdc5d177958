"""`eris stop`: end a run for everybody."""

from __future__ import annotations

from typing import Annotated

import typer

from eris.cli.networking.options import DEFAULT_FILE, CredentialsOption, FederationArgument, YesOption

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def stop(
        file: FederationArgument = DEFAULT_FILE,
        peer: Annotated[
            str | None, typer.Option(metavar="NAME", help="Who asks (default: the coordinator, or the only peer here).")
        ] = None,
        credentials: CredentialsOption = None,
        yes: YesOption = False,
    ) -> None:
        """End a run for everybody, on record. Restarted in the same folders, it continues where it stopped."""
        from eris.cli.networking.options import known_caller
        from eris.cli.networking.outlook import ask, if_stopped

        with known_caller(file, credentials, peer, coordinator=True) as (name, client):
            ask(if_stopped(client.status()), yes=yes)
            client.stop()
        typer.echo(f"the run has ended, stopped by {name}")
