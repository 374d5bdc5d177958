"""`eris version`: what is installed."""

from __future__ import annotations

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def version() -> None:
        """Print the versions that matter for reproducing a run."""
        from importlib import metadata

        for package in ("eris-fl", "numpy", "torch"):
            try:
                typer.echo(f"{package} {metadata.version(package)}")
            except metadata.PackageNotFoundError:
                typer.echo(f"{package} (not installed)")
