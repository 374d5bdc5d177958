"""`eris reproduce`: a table or figure of the paper by its name, beside the printed numbers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from eris.cli.auditing.interruption import resumable
from eris.cli.exit_code import ExitCode
from eris.errors import ConfigError

if TYPE_CHECKING:
    from eris.paper.experiment import Cell, Experiment, Size
    from eris.paper.reading import Reading
    from eris.paper.run import CellDone, CellStore

__all__ = ["register"]

_PAUSE = 10.0  # seconds between two lines where nobody could see a bar move


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def reproduce(
        names: Annotated[
            list[str] | None, typer.Argument(metavar="NAME…", help="Experiments (--list), all, or claims.")
        ] = None,
        listed: Annotated[bool, typer.Option("--list", help="List every experiment with its cells and times.")] = False,
        size: Annotated[str, typer.Option(help="smoke (seconds), small (minutes to hours) or paper (days).")] = "smoke",
        out: Annotated[Path | None, typer.Option(help="Folder of the results (default: paper/SIZE).")] = None,
        only: Annotated[
            list[str] | None,
            typer.Option(help="Only cells whose name has these words: ERIS, MNIST, fold 0; repeatable."),
        ] = None,
        reading: Annotated[
            str,
            typer.Option(help="paper: as its numbers were made; eris: as they should be meant (docs/reproduce.md)."),
        ] = "paper",
        workers: Annotated[int, typer.Option(min=0, help="Processes; 0 for one per core.")] = 0,
        ray: Annotated[bool, typer.Option("--ray", help="Run the cells on a Ray cluster instead.")] = False,
        tables_only: Annotated[
            bool, typer.Option("--tables-only", help="Run nothing; write the tables from what is there.")
        ] = False,
        page: Annotated[
            Path | None, typer.Option(help="For claims: the page to write (default: OUT/claims.md).")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON, nothing else.")] = False,
    ) -> None:
        """Run a table or figure of the paper and show the results beside the printed numbers.

        Cells are saved one by one: the same command continues where it was interrupted, and experiments share
        the cells they have in common.

        **Examples**

        `eris reproduce --list`

        `eris reproduce table-communication`

        `eris reproduce figure-dropout --size small --out paper/small`

        `eris reproduce all --size small --out paper/small`

        `eris reproduce claims --size small --out paper/small`
        """
        from eris.paper.catalogue import experiment_by_name, experiments_by_name
        from eris.paper.experiment import SIZES
        from eris.paper.reading import reading_by_name
        from eris.paper.run import CellStore, run_cells

        if listed:
            _list(as_json=as_json)
            return
        if size not in SIZES:
            raise ConfigError(f"there is no size {size!r}", fix=f"use one of {', '.join(SIZES)}")
        if not names:
            raise ConfigError("which experiment?", fix="name one of `eris reproduce --list`, or all")
        chosen_size: Size = size
        folder, read = out or Path("paper") / size, reading_by_name(reading)
        if names == ["claims"]:
            _claims(folder, chosen_size, read, page, as_json=as_json)
            return
        everything = names == ["all"]
        chosen = list(experiments_by_name().values()) if everything else [experiment_by_name(name) for name in names]
        cells = _asked([cell for experiment in chosen for cell in experiment.cells(chosen_size, read)], only or [])
        store = CellStore(folder)
        if not tables_only:
            with resumable(folder), _Progress(cells, store, workers, visible=not as_json) as progress:
                run_cells(cells, store, progress, workers=workers, ray=ray)
        _report(chosen, chosen_size, store, read, as_json=as_json, overview=everything)
        if not tables_only and (failed := [cell for cell in cells if "failed" in (store.find(cell) or {})]):
            Console(stderr=True).print(f"{len(failed)} of {len(cells)} cells failed; the tables say why")
            raise typer.Exit(ExitCode.TASK_FAILED)


def _asked(cells: Sequence[Cell], words: Sequence[str]) -> list[Cell]:
    """Return the cells whose name holds all the words."""
    found = [cell for cell in cells if all(word.casefold() in cell.label.casefold() for word in words)]
    if not found:
        raise ConfigError(f"no cell has a name with {' and '.join(words)}", fix="see the names in a result's table")
    return found


def _list(*, as_json: bool) -> None:
    from eris.paper.catalogue import experiments_by_name
    from eris.paper.estimate import estimated_seconds
    from eris.paper.experiment import SIZES
    from eris.paper.run import cores

    lines: list[dict[str, Any]] = [
        {
            "name": experiment.name,
            "shows": experiment.shows,
            "sizes": {
                size: {
                    "cells": len({cell.key for cell in experiment.cells(size)}),
                    "seconds": round(estimated_seconds(experiment.cells(size)) / cores(), 1),
                }
                for size in SIZES
            },
        }
        for experiment in experiments_by_name().values()
    ]
    if as_json:
        typer.echo(json.dumps(lines))
        return
    width = max(len(experiment.name) for experiment in experiments_by_name().values())
    typer.echo(f"{'':{width}}" + "".join(f"  {size:>14}" for size in SIZES))
    typer.echo(f"{'experiment':{width}}" + f"  {'cells':>5} {'time':>8}" * len(SIZES))
    for line in lines:
        sizes = line["sizes"].values()
        counts = [f"  {each['cells']:>5} {_roughly(each['seconds']):>8}" for each in sizes]
        typer.echo(f"{line['name']:{width}}{''.join(counts)}")
        typer.echo(fill(line["shows"], Console().width, initial_indent="  ", subsequent_indent="  "))
    about = f"Times are estimates for {cores()} processors of this machine; experiments share cells."
    typer.echo("\n" + fill(about, Console().width))


def _roughly(seconds: float) -> str:
    """Write a time in its largest unit: an estimate is no more precise.

    >>> [_roughly(each) for each in (0.2, 90, 5400, 400_000, 4e7)]
    ['1 s', '90 s', '90 min', '4.6 d', '463 d']
    """
    units = (("s", 1, 100), ("min", 60, 100), ("h", 3600, 72), ("d", 86400, float("inf")))
    unit, length = next((unit, length) for unit, length, limit in units if seconds / length < limit)
    value = max(seconds / length, 1.0)
    return f"{value:.1f} {unit}" if unit in ("h", "d") and value < 10 else f"{value:.0f} {unit}"


class _Progress:
    """Says how many cells are done and how long the rest will take: a bar, or lines where the output is piped."""

    def __init__(self, cells: Sequence[Cell], store: CellStore, workers: int, *, visible: bool) -> None:
        from eris.paper.estimate import Remaining, corrections
        from eris.paper.run import cores
        from eris.report.units import format_seconds

        missing = store.missing(cells)
        at_once = min(workers or cores(), max(1, len(missing)))
        self._total, self._visible, self._console = len(missing), visible, Console(stderr=True)
        self._left = Remaining(missing, at_once, corrections(store.finished(cells)))
        self._done, self._said, self._format = 0, 0.0, format_seconds
        kept = len({cell.key for cell in cells}) - len(missing)
        work = format_seconds(self._left.processor_seconds)
        self._begin = (
            f"{len(missing)} cells to do, {kept} done before; about {work} of processor time, "
            f"{format_seconds(self._left.seconds)} with {at_once} processor{'s' if at_once > 1 else ''} of its own"
        )
        self._bar: Any = None

    def __enter__(self) -> _Progress:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        if self._visible:
            self._console.print(self._begin, highlight=False, soft_wrap=True)
        if self._visible and self._console.is_terminal and self._total:
            columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=self._console)
            self._row = self._bar.add_task("", total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: CellDone) -> None:
        """Note that a cell is over."""
        self._done += 1
        self._left.finished(done.cell, done.processor_seconds)
        words = f"{self._format(self._left.seconds)} left  {done.cell.experiment}: {done.cell.label}"
        if done.failed:
            words += f"  failed: {done.failed}"
        if self._bar is not None:
            self._bar.update(self._row, completed=self._done, description=words[: max(20, self._console.width - 45)])
        elif self._visible and (done.failed or self._done == self._total or time.monotonic() - self._said > _PAUSE):
            self._said = time.monotonic()
            line = f"{self._done}/{self._total}  {words}  ({done.seconds:.1f} s)"
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)
            sys.stderr.flush()


def _report(
    chosen: Sequence[Experiment], size: Size, store: CellStore, reading: Reading, *, as_json: bool, overview: bool
) -> None:
    from eris.paper.page import write_overview, write_result
    from eris.paper.result import gather
    from eris.paper.table import natural_width, result_tables

    results = [gather(experiment, size, store, reading) for experiment in chosen]
    paths = [write_result(result, store.folder) for result in results]
    if overview:
        write_overview(results, store.folder)
    if as_json:
        typer.echo(json.dumps([result.plain() for result in results], allow_nan=False))
        return
    console = Console()
    for result, written in zip(results, paths, strict=True):
        if len(results) <= 3:
            for table in result_tables(result, console.width):
                Console(width=max(console.width, natural_width(table))).print(table)
        console.print(f"{result.experiment.name}: {', '.join(str(path) for path in written)}", soft_wrap=True,
                      highlight=False, markup=False)  # fmt: skip


def _claims(folder: Path, size: Size, reading: Reading, page: Path | None, *, as_json: bool) -> None:
    from eris.paper.claims import decide, write_claims

    found = decide(folder, size, reading)
    path = write_claims(found, folder, page)
    if as_json:
        typer.echo(json.dumps([claim.plain() for claim in found], allow_nan=False))
        return
    console = Console()
    for claim in found:
        console.print(f"{claim.says}: {claim.verdict}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"page: {path}", soft_wrap=True, highlight=False, markup=False)
