"""Options in groups: one flat command line, one object for each group."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer
from typer.testing import CliRunner

from eris.cli.option_groups import grouped, values_of


@dataclass(frozen=True)
class FleetOptions:
    help_panel: ClassVar = "The fleet"
    members: Annotated[int, typer.Option("--members", "-k", help="How many.")] = 50
    rate: Annotated[str, typer.Option(help="Of every link.")] = "20MB/s"


@dataclass(frozen=True)
class NameOptions:
    name: Annotated[str, typer.Option(help="Whose.")]


@grouped
def plan(model: str, *, fleet: FleetOptions, names: NameOptions) -> None:
    """Plan."""
    typer.echo(f"{model} {fleet} {names}")


def run(*words: str) -> str:
    app = typer.Typer(rich_markup_mode="markdown")
    app.command()(plan)
    done = CliRunner().invoke(app, words, env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.output


def test_a_command_is_called_with_its_groups():
    said = run("resnet9", "-k", "3", "--name", "ann")
    assert "resnet9 FleetOptions(members=3, rate='20MB/s') NameOptions(name='ann')" in said


def test_the_help_has_a_box_for_each_group():
    text = run("--help")
    assert "The fleet" in text
    assert "--members" in text
    assert text.index("--name") < text.index("The fleet") < text.index("--rate")


def test_options_keep_their_order_and_their_defaults():
    parameters = inspect.signature(plan).parameters
    assert list(parameters) == ["model", "members", "rate", "name"]
    assert parameters["rate"].default == "20MB/s"
    assert parameters["name"].default is inspect.Parameter.empty


def test_values_of_groups():
    assert values_of(FleetOptions(), NameOptions("ann")) == {"members": 50, "rate": "20MB/s", "name": "ann"}
