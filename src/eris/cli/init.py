"""`eris init`: a commented configuration to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eris.errors import ConfigError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def init(
        path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("eris.toml"),
        force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    ) -> None:
        """Write a configuration with every setting, its default and what it means."""
        from eris.config import commented_config
        from eris.methods import commented_options

        if path.exists() and not force:
            raise ConfigError("there is such a file already", fix="choose another name, or use --force", path=path)
        path.write_text(commented_config() + commented_options(), encoding="utf-8")
        typer.echo(f"wrote {path}; run it with: eris run {path}")
