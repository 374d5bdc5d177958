"""The outcome of a federation on this machine: a row for each peer and, in its own words, what went wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from eris.cli.exit_code import ExitCode

if TYPE_CHECKING:
    from rich.table import Table

    from eris.cli.networking.local_federation import LocalFederation, Outcome, PeerOutcome

__all__ = ["last_error", "show_outcome"]

_PLAIN: dict[str, Any] = {"soft_wrap": True, "highlight": False, "markup": False}
_ERROR = "error: "
Codes = Mapping[str, int | None]  # of each process, the coordinator's among them


def show_outcome(outcome: Outcome, codes: Codes, local: LocalFederation, console: Console) -> None:
    """Print the table and the verdict; failures go to standard error.

    `outcome` says how the peers ended, `codes` are the exit codes of all processes, `local` has their logs.
    """
    from eris.peer.run_events import NOISE_NOTE

    console.print(_table(outcome))
    _show_quality(outcome.peers[0], console)
    if noise := next((peer.privacy for peer in outcome.peers if peer.privacy), ""):
        console.print(noise, **_PLAIN)
        console.print(NOISE_NOTE, style="yellow")
    for sentence in _failures(codes, local):
        Console(stderr=True).print(sentence, style="red", **_PLAIN)
    if outcome.model_digest:
        console.print(
            f"all {len(outcome.peers)} peers have the same model: model_digest {outcome.model_digest}", **_PLAIN
        )
    elif outcome.all_well:
        console.print("the peers' models differ", style="bold red")
    console.print(f"everything is in {local.path}", **_PLAIN)


def last_error(log: Path) -> str:
    """Return the sentence a process ended with, as its log has it; empty if there is none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.removeprefix(_ERROR) for line in reversed(lines) if line.startswith(_ERROR)), "")


def _failures(codes: Codes, local: LocalFederation) -> Iterator[str]:
    """Repeat what each failed process said, once if several say the same."""
    said: dict[tuple[int, str], list[str]] = {}
    for name, code in codes.items():
        if code is not None and _is_failure(code):
            said.setdefault((code, last_error(local.log(name))), []).append(name)
    for (code, sentence), names in said.items():
        log = local.log(names[0])
        why = f"{sentence} (log: {log})" if sentence else f"see {log}"
        yield f"{', '.join(names)} ended with exit code {code}: {why}"


def _is_failure(code: int) -> bool:
    """Whether a process ended by itself and badly; below zero it was ended by us, with the others."""
    return code > 0 and code not in (ExitCode.INTERRUPTED, ExitCode.STOPPED_BY_HAND)


def _show_quality(first: PeerOutcome, console: Console) -> None:
    from eris.report.units import format_percent

    if first.accuracy is not None:
        console.print(f"accuracy {format_percent(first.accuracy)}", **_PLAIN)
    elif first.loss is not None:
        console.print(f"loss {first.loss:.4g}", **_PLAIN)


def _table(outcome: Outcome) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from eris.report.units import format_bytes

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for title in ("peer", "process", "ended", "rounds", "sent", "received", "model"):
        table.add_column(title, justify="left" if title in ("peer", "ended", "model") else "right", no_wrap=True)
    for peer in outcome.peers:
        sent, received = format_bytes(peer.sent), format_bytes(peer.received)
        row = (peer.name, str(peer.pid or ""), _how(peer), str(peer.rounds), sent, received, peer.model_digest[:12])
        table.add_row(*row)
    return table


def _how(peer: PeerOutcome) -> str:
    if _is_failure(peer.exit_code or 0):
        return peer.ended if peer.ended not in ("", "interrupted") else f"exit code {peer.exit_code}"
    return peer.ended or ("interrupted" if peer.exit_code == ExitCode.INTERRUPTED else "with the others")
