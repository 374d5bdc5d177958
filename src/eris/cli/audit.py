"""`eris audit`: attack a training run as a good attacker would, and report the result."""

from __future__ import annotations

import typer

from eris.cli.auditing.inference import property_inference, source_inference
from eris.cli.auditing.malicious import malicious
from eris.cli.auditing.membership import membership
from eris.cli.auditing.poisoning import poisoning
from eris.cli.auditing.reconstruction import reconstruction
from eris.cli.auditing.sweep import sweep
from eris.cli.auditing.text import text

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    audit = typer.Typer(help="Attack a training run as a good attacker would, and report the result.")
    audit.callback(no_args_is_help=True)(_audit)
    audit.command()(malicious)
    audit.command()(membership)
    audit.command()(poisoning)
    audit.command()(reconstruction)
    audit.command("property")(property_inference)
    audit.command("source")(source_inference)
    audit.command()(sweep)
    audit.command()(text)
    app.add_typer(audit, name="audit")


def _audit() -> None:
    """Attack a training run as a good attacker would, and report the result."""
