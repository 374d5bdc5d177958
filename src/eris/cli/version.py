"""`eris version`: what is installed."""

from __future__ import annotations

from contextlib import suppress

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def version() -> None:
        """Print the versions and devices that matter for reproducing a run."""
        from importlib import metadata

        from eris.local.devices import BITS, devices_there

        for package in ("eris-fl", "numpy", "torch"):
            try:
                typer.echo(f"{package} {metadata.version(package)}")
            except metadata.PackageNotFoundError:
                typer.echo(f"{package} (not installed)")
        with suppress(ImportError):
            typer.echo(f"devices {', '.join(devices_there())}")
        typer.echo(f"bits: {BITS}")
