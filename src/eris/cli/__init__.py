"""The command line: one file for each verb.

A verb's module has `register(app)`, which adds its command. Heavy imports (torch, grpc, matplotlib) stay inside the
commands, so that `eris --help` answers at once.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from eris.atomic_file import is_full
from eris.cli.exit_code import ExitCode, code_of
from eris.errors import ErisError

__all__ = ["app", "main"]

app = typer.Typer(
    name="eris",
    help="Federated learning without a server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"eris {metadata.version('eris-fl')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version, do nothing.")
    ] = False,
) -> None:
    """Federated learning without a server."""
    del version


def _register() -> None:
    from eris.cli import (
        audit,
        bounds,
        certs,
        compare,
        coordinator,
        data,
        doctor,
        init,
        join,
        leave,
        plan,
        report,
        run,
        status,
        stop,
        up,
        version,
    )

    training = (init, run, compare, report, audit, data, plan, bounds)
    network = (up, certs, coordinator, join, status, doctor, leave, stop)
    for verb in (*training, *network, version):
        verb.register(app)


def _say(sentence: str) -> None:
    Console(stderr=True).print(f"[bold red]error:[/] {escape(sentence)}", highlight=False, soft_wrap=True)


def main() -> None:
    """Run the command line; an error eris can explain ends in one sentence and its exit code, not in a traceback."""
    try:
        _register()
        app()
    except ErisError as error:
        _say(str(error))
        sys.exit(code_of(error))
    except OSError as error:  # a file or folder that was named cannot be what it is wanted for
        if error.filename is None and not is_full(error):
            raise
        _say(f"{error.filename}: {error.strerror}" if error.filename is not None else f"{error.strerror}")
        sys.exit(ExitCode.NO_ROOM if is_full(error) else ExitCode.USAGE)
    except MemoryError:
        _say(
            "this machine has too little memory for what was asked: use a smaller batch or model, more aggregators "
            "(smaller shards), or files for long vectors (`eris join --spill-above`); `eris plan` says what is needed"
        )
        sys.exit(ExitCode.OUT_OF_MEMORY)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
