"""`eris leave`: take a peer out of a run for good."""

from __future__ import annotations

from typing import Annotated

import typer

from eris.cli.networking.options import DEFAULT_FILE, CredentialsOption, FederationArgument, YesOption

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def leave(
        file: FederationArgument = DEFAULT_FILE,
        peer: Annotated[
            str | None, typer.Option(metavar="NAME", help="Who leaves (default: the only peer with credentials here).")
        ] = None,
        credentials: CredentialsOption = None,
        yes: YesOption = False,
    ) -> None:
        """Leave a run for good, after saying what that does to it. (Ctrl-C only interrupts `eris join`.)"""
        from eris.cli.networking.options import known_caller
        from eris.cli.networking.outlook import ask, if_one_leaves
        from eris.peer.federation_file import load_federation

        with known_caller(file, credentials, peer) as (name, client):
            least = load_federation(file).config.server.min_contributors
            ask(if_one_leaves(client.status(), name, least), yes=yes)
            client.leave(for_good=True)
        typer.echo(f"{name} has left")
