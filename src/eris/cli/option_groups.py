"""Options of a command in groups: a dataclass for each, a box of its own in `--help`.

    @dataclass(frozen=True)
    class FleetOptions:
        help_panel: ClassVar = "The fleet"
        members: Annotated[int, typer.Option(help="How many.")] = 50
        rate: Annotated[str, typer.Option(help="Of every link.")] = "20MB/s"

    @app.command()
    @grouped
    def plan(model: str, fleet: FleetOptions) -> None: ...

Typer sees one flat parameter for each field; the command gets one object for each group.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

from typer.models import ParameterInfo

__all__ = ["grouped", "values_of"]


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command take dataclasses: every field is an option, the class's `help_panel` its box in the help."""
    groups: dict[str, type[Any]] = {}
    flat: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if is_dataclass(group := parameter.annotation):
            assert isinstance(group, type)
            groups[name] = group
            flat += _options(group)
        else:
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def call(**given: Any) -> Any:
        made = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)}) for name, group in groups.items()
        }
        return command(**given, **made)

    call.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return call


def _options(group: type[Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for each in fields(group):
        default = inspect.Parameter.empty if each.default is MISSING else each.default
        annotation = _in_panel(hints[each.name], getattr(group, "help_panel", None))
        yield inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _in_panel(annotation: Any, panel: str | None) -> Any:
    """Return the annotation of an option that is shown in that box; options may be shared, so it is a copy."""
    [info] = (each for each in annotation.__metadata__ if isinstance(each, ParameterInfo))
    info = copy(info)
    info.rich_help_panel = panel
    return Annotated[annotation.__origin__, info]


def values_of(*groups: Any) -> dict[str, Any]:
    """Return the options of some groups by name.

    >>> from dataclasses import make_dataclass
    >>> values_of(make_dataclass("One", ["a"])(1), make_dataclass("Two", ["b", "c"])(2, 3))
    {'a': 1, 'b': 2, 'c': 3}
    """
    return {each.name: getattr(group, each.name) for group in groups for each in fields(group)}
