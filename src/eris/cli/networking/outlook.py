"""What becomes of a run if somebody leaves or stops it: said beforehand, and confirmed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from eris.errors import ConfigError
from eris.transport.calls import Overview

__all__ = ["ask", "if_one_leaves", "if_stopped"]

_NAMED = 10


def if_one_leaves(status: Overview, name: str, least: int) -> str:
    """Return what becomes of a run that a peer leaves for good; a mean of fewer than `least` is not published."""
    others = [peer.name for peer in status.peers if peer.name != name]
    here = [peer.name for peer in status.peers if peer.name != name and peer.here]
    away = [other for other in others if other not in here]
    if status.ended:
        return f"the run has ended already ({status.ended}); {name} is removed from it"
    if not status.started:
        return f"the run has not begun; it keeps waiting for all listed peers, and {name} may still join"
    if len(others) < least:
        left = f"{len(others)} members are left, and means of fewer than {least} are not published"
        return f"the run ends for all members after {status.round} of {status.rounds} rounds (exit code 14): {left}"
    if len(here) < least:
        return f"the run waits without {name}: {len(here)} are present, {least} are needed; away: {_named(away)}"
    return f"the run continues without {name} from the next round, with {_named(here)}"


def if_stopped(status: Overview) -> str:
    """Return what becomes of a run that is stopped by hand."""
    if status.ended:
        return f"the run has ended already ({status.ended})"
    here = [peer.name for peer in status.peers if peer.here]
    done = f"after {status.round} of {status.rounds} rounds" if status.started else "before its first round"
    whom = f"for {_named(here)}" if here else "and no peer is present"
    return f"the run ends {done} {whom} (exit code 24); the same commands in the same folders continue it"


def ask(outlook: str, *, yes: bool) -> None:
    """Say what will happen and ask for confirmation; end the command if it is not given."""
    typer.echo(outlook)
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("there is no terminal here to ask for confirmation", fix="give --yes to confirm")
    typer.confirm("continue?", abort=True)


def _named(names: Sequence[str]) -> str:
    """Name some.

    >>> _named(["amber", "birch"]), _named([])
    ('amber, birch', 'nobody')
    """
    others = f" and {len(names) - _NAMED:,} others" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) or "nobody") + others
