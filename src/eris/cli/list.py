"""`eris list`: everything that has a name, one line each, and whose it is."""

from __future__ import annotations

import json
from dataclasses import asdict
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from eris.registry import Registry

__all__ = ["KINDS", "register"]

KINDS = {  # kind → where its registry is; imported when it is asked for
    "methods": "eris.methods:METHODS",
    "compressors": "eris.transforms.named:COMPRESSORS",
    "transforms": "eris.methods.named_transforms:TRANSFORMS",
    "corrections": "eris.local.correction:CORRECTIONS",
    "rules": "eris.aggregate.choose:RULES",
    "optimizers": "eris.step.choose:OPTIMIZERS",
    "schedules": "eris.step.schedule:SCHEDULES",
    "datasets": "eris.data.catalogue:DATASETS",
    "partitions": "eris.data.partition:PARTITIONS",
    "models": "eris.models.registry:MODELS",
    "tasks": "eris.tasks:TASKS",
    "attacks": "eris.audit.attacks.by_name:ATTACKS",
    "reconstructions": "eris.audit.reconstruction.attack:RECONSTRUCTION_ATTACKS",
    "trackers": "eris.interop.trackers:TRACKERS",
    "sections": "eris.report.page:SECTIONS",
}


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command("list")
    def list_(
        kind: Annotated[str, typer.Argument(help=f"What: {', '.join(KINDS)} (default: all).")] = "",
        options: Annotated[bool, typer.Option("--options", help="Show the options that each takes.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
    ) -> None:
        """List everything with a name: built in, or from an installed package.

        Each can also be given as module:name, or as an object in Python (docs/extend.md).

        **Examples**

        `eris list methods`

        `eris list compressors --json`
        """
        kinds = [_known(kind)] if kind else list(KINDS)
        if as_json:
            found = {each: [asdict(line) for line in registry_of(each).listed()] for each in kinds}
            typer.echo(json.dumps(found[kinds[0]] if kind else found, ensure_ascii=False, indent=2))
            return
        for each in kinds:
            if not kind:
                typer.echo(f"{each} ({registry_of(each).group})")
            _print(each, indent="" if kind else "  ", options=options)


def registry_of(kind: str) -> Registry[object]:
    """Return the registry of a kind."""
    from eris.registry import imported

    return imported(KINDS[kind], kind)  # type: ignore[no-any-return]


def _known(kind: str) -> str:
    from eris.registry import Registry

    return (
        kind if kind in KINDS else str(Registry("kind of thing to list", "", {each: each for each in KINDS}).find(kind))
    )


def _print(kind: str, indent: str, *, options: bool) -> None:
    """Print each on a line, or on several if it is long; what is not built in says where it comes from."""
    from eris.registry import BUILT_IN

    width, lines = Console().width, registry_of(kind).listed()
    column = min(len(indent) + max((len(line.name) for line in lines), default=0) + 2, width // 2)
    for line in lines:
        more = line.problem or (line.options if options else "")
        words = [line.about, "" if line.origin == BUILT_IN else f"({line.origin})", f"– {more}" if more else ""]
        first = f"{indent}{line.name:<{column - len(indent) - 2}}  "
        text = " ".join(filter(None, words)) or "–"
        typer.echo(fill(text, width, initial_indent=first, subsequent_indent=" " * column, break_on_hyphens=False))
