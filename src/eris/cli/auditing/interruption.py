"""Ctrl-C during a long command: finished work is kept, and the same command continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console

from eris.cli.exit_code import ExitCode

__all__ = ["resumable"]


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """On Ctrl-C, say how to continue instead of printing a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True).print(
            f"interrupted: the same command with --out {folder} continues", soft_wrap=True, markup=False
        )
        raise typer.Exit(ExitCode.INTERRUPTED) from None
