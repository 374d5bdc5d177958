"""`eris data`: list data sets and pretrained models, and fetch them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from eris.data.cache import CacheManifest

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb with its two commands."""
    data = typer.Typer(name="data", help="List and fetch data sets.", no_args_is_help=True)
    data.command("list")(list_sets)
    data.command("get")(get_set)
    app.add_typer(data)


def list_sets(
    sources: Annotated[bool, typer.Option("--sources", help="Say where each came from, or could come from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead of a table.")] = False,
) -> None:
    """Show every data set, one line each: what it is and whether it is here."""
    rows = _rows()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console

    from eris.data.cache import cache_folder

    console = Console()
    if sources:
        console.print(_sources(rows))
    else:
        typer.echo(_table(rows, console.width))
    console.print(f"cache: {cache_folder()}  (set ERIS_DATA to move it)", style="dim", highlight=False, markup=False)


def get_set(
    name: Annotated[str, typer.Argument(help="Its name in `eris data list`.")],
    path: Annotated[Path | None, typer.Option("--from", help="Your own copy: a folder or an archive.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch it again even if it is here.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a sentence.")] = False,
) -> None:
    """Fetch a data set once into the cache and check that it is what it claims to be."""
    from eris.data.built_in import BUILT_IN
    from eris.data.cache import manifest_of

    if name in BUILT_IN:
        typer.echo(json.dumps(_built_in(name), indent=2) if as_json else f"{name} is {BUILT_IN[name].source}: ready")
        return
    _require_known(name)
    manifest = None if force else manifest_of(name)
    fetched = manifest is None or path is not None
    if manifest is None or path is not None:
        manifest = _fetch(name, path, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(_facts(manifest), indent=2))
        return
    verb = "fetched" if fetched else "is already here"
    counts = " + ".join(f"{count:,}" for count in manifest.samples.values())
    what = f"{counts} samples ({manifest.edition})" if counts else manifest.edition
    typer.echo(f"{name} {verb}: {what}, {_size(manifest.bytes)}, from {manifest.source}")


def _require_known(name: str) -> None:
    from eris.audit.networks import NETWORKS
    from eris.data.catalogue import entry_by_name
    from eris.models.pretrained import PRETRAINED

    if name not in PRETRAINED and name not in NETWORKS:
        entry_by_name(name)


def _fetch(name: str, path: Path | None, *, quiet: bool) -> CacheManifest:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from eris.audit.networks import NETWORKS, get_network
    from eris.data.fetch import get
    from eris.models.pretrained import PRETRAINED, get_pretrained

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as display:
        line = display.add_task(f"looking for {name}", total=None)

        def progress(what: str, share: float | None) -> None:
            display.update(line, description=what, total=None if share is None else 1.0, completed=share or 0.0)

        if name in PRETRAINED:
            return get_pretrained(name, progress)
        if name in NETWORKS:
            return get_network(name, progress)
        return get(name, path=path, progress=progress)


def _rows() -> list[dict[str, Any]]:
    from eris.audit.networks import NETWORKS
    from eris.data.built_in import BUILT_IN
    from eris.data.cache import manifest_of
    from eris.data.catalogue import CATALOGUE
    from eris.models.pretrained import PRETRAINED

    rows = [_built_in(name) for name in BUILT_IN]
    wanted: list[tuple[str, str, tuple[object, ...]]]
    wanted = [(entry.name, entry.about, entry.sources) for entry in CATALOGUE.values()]
    wanted += [(model.name, model.about, (model.package,)) for model in PRETRAINED.values()]
    wanted += [(network.name, network.about, (network.source,)) for network in NETWORKS.values()]
    for name, about, sources in wanted:
        row: dict[str, Any] = {"name": name, "about": about, "present": False}
        if (manifest := manifest_of(name)) is not None:
            row |= {"present": True, **_facts(manifest)}
        else:
            row["source"] = ", ".join(str(source) for source in sources) or "local files (--from)"
        rows.append(row)
    return rows


def _built_in(name: str) -> dict[str, Any]:
    from eris.data.built_in import BUILT_IN

    each = BUILT_IN[name]
    samples = dict(zip(("train", "test"), each.samples or (), strict=False))
    row = {"name": name, "about": each.about, "present": True, "edition": each.edition, "source": each.source}
    return {**row, "samples": samples}


def _facts(manifest: CacheManifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "samples": manifest.samples,
        "edition": manifest.edition,
        "source": manifest.source,
        "bytes": manifest.bytes,
        "digest": manifest.digest,
        "checked": manifest.checked,
    }


def _table(rows: list[dict[str, Any]], width: int) -> str:
    """Return a line for each; what does not fit is cut off at the end."""
    heads = ("name", "here", "samples", "size", "what")
    lines = [heads, *(_line(row) for row in rows)]
    sides = "<<>>"  # names to the left, numbers to the right
    widths = [max(len(line[column]) for line in lines) for column in range(len(sides))]
    texts = [
        "  ".join([*(f"{text:{side}{wide}}" for text, side, wide in zip(line, sides, widths, strict=False)), line[-1]])
        for line in lines
    ]
    return "\n".join(text if len(text) <= width else f"{text[: width - 1]}…" for text in texts)


def _line(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    counts = " + ".join(f"{count:,}" for count in row.get("samples", {}).values())
    size = _size(row["bytes"]) if "bytes" in row else ""
    return row["name"], "yes" if row["present"] else "no", counts, size, row["about"]


def _sources(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("source")
    for row in rows:
        table.add_row(Text(row["name"]), Text(row["source"]))
    return table


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
