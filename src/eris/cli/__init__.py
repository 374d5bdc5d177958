"""The command line: one file for each verb.

A verb's module has `register(app)`, which adds its command. Heavy imports (torch, grpc, matplotlib) stay inside the
commands, so that `eris --help` answers at once.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from eris.atomic_file import is_full
from eris.cli.exit_code import ExitCode, code_of
from eris.errors import ConfigError, ErisError
from eris.printable import printable

__all__ = ["app", "main"]

app = typer.Typer(
    name="eris",
    help="Federated learning without a server.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _tell_version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        typer.echo(f"eris {metadata.version('eris-fl')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Federated learning without a server."""
    del version


_TRAINING = ("init", "run", "compare", "report", "audit", "reproduce", "data", "list", "plan", "bounds")
_NETWORK = ("up", "certs", "coordinator", "join", "watch", "relay", "status", "budget", "doctor", "leave", "stop")


def _verbs() -> list[ModuleType]:
    """Return the modules of all commands, in the order of the help."""
    return [importlib.import_module(f"eris.cli.{verb}") for verb in (*_TRAINING, *_NETWORK, "version")]


def _register() -> None:
    for verb in _verbs():
        verb.register(app)


def _require_posix(system: str = sys.platform) -> None:
    """Refuse systems without the file locks and signals that runs rely on."""
    if system in ("win32", "cygwin"):
        raise ConfigError(
            f"eris trains on Linux and, untested, on macOS; this is {system}",
            fix="use the Windows Subsystem for Linux (WSL 2) or a Linux container",
        )


def _say(sentence: str) -> None:
    Console(stderr=True).print(
        f"[bold red]error:[/] {escape(printable(sentence, lines=True))}", highlight=False, soft_wrap=True
    )


def main() -> None:
    """Run the command line; an error eris can explain ends in one sentence and its exit code, not in a traceback."""
    try:
        _require_posix()
        _register()
        app()
    except ErisError as error:
        _say(str(error))
        sys.exit(code_of(error))
    except ModuleNotFoundError as error:
        from eris.cli.missing import missing_extra

        if (extra := missing_extra(error)) is None:
            raise
        _say(str(extra))
        sys.exit(code_of(extra))
    except OSError as error:  # a file or folder named by the user cannot be used
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
