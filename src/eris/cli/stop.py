"""`eris stop`: end a run for everybody."""

from __future__ import annotations

import typer

from eris.cli.networking.options import DEFAULT_FILE, CredentialsOption, FederationFile

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def stop(file: FederationFile = DEFAULT_FILE, credentials: CredentialsOption = None) -> None:
        """End the run; who asked is on record. Started again in the same folders, it goes on where it was."""
        from eris.cli.networking.options import caller

        with caller(file, credentials) as client:
            client.stop()
        typer.echo("the run has ended")
