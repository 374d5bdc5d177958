"""`eris up`: a whole federation on this machine. Certificates, a coordinator, and a real process for each peer."""

from __future__ import annotations

import json
import queue
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from eris.errors import RunStopped

if TYPE_CHECKING:
    from rich.table import Table

    from eris.cli.networking.children import Children
    from eris.cli.networking.live_view import LiveView
    from eris.config import Config
    from eris.peer.local_federation import LocalFederation
    from eris.peer.outcome import Outcome, PeerOutcome

__all__ = ["register"]

_PEERS = 5
_PLAIN: dict[str, Any] = {"soft_wrap": True, "highlight": False, "markup": False}


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def up(
        config: Annotated[
            Path | None, typer.Argument(help="A TOML file, as for `eris run`; without one: defaults.")
        ] = None,
        changes: Annotated[
            list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. rounds=3.")
        ] = None,
        peers: Annotated[
            int | None, typer.Option(min=1, help="Peers, a process each (default: the file's members, or 5).")
        ] = None,
        out: Annotated[Path | None, typer.Option(help="The run's folder (default: runs/<time>-up-<method>).")] = None,
        task: Annotated[str | None, typer.Option(metavar="MODULE:TASK", help="As for `eris join`.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, nothing else.")] = False,
    ) -> None:
        """Run a federation of real processes over TLS on this machine; it ends with the model of `eris run`."""
        from eris.cli.networking.children import Children
        from eris.cli.networking.live_view import LiveView
        from eris.peer.local_federation import LocalFederation

        resolved = _settings(config, changes or [], peers)
        console = Console(quiet=as_json)
        local = LocalFederation(out or _folder(resolved), resolved)
        with Children() as children:
            _start(local, children, task)
            with LiveView(local.peers, resolved.rounds, console) as view:
                _watch(children, view)
        _conclude(local, children, console, as_json=as_json)


def _settings(config: Path | None, changes: list[str], peers: int | None) -> Config:
    from eris.config import load_config

    given = load_config(config, changes=changes)
    count = peers or (given.members if config or any(change.startswith("members") for change in changes) else _PEERS)
    if count != given.members:
        changes = [*changes, f"members={count}"]
    if len(given.methods) != 1:
        changes = [*changes, 'method="eris"']
    return load_config(config, changes=changes)


def _folder(config: Config) -> Path:
    import re

    method = re.sub(r"[^a-z0-9+_-]", "-", config.methods[0])
    return Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-up-{method}"


def _start(local: LocalFederation, children: Children, task: str | None) -> None:
    """Start the coordinator, hear where it listens, then start the peers."""
    from eris.transport.control import COORDINATOR

    words = ["coordinator", str(local.file), "--credentials", str(local.credentials(COORDINATOR))]
    words += ["--listen", "127.0.0.1:0", "--state", str(local.path / COORDINATOR)]
    child = children.start(COORDINATOR, words, local.path / COORDINATOR / "log.jsonl")
    _, notice = children.notices.get(timeout=60)
    if notice["event"] != "listening":
        raise RunStopped("the coordinator did not start", fix=f"see {child.log}")
    local.place(notice["address"])
    for name in local.peers:
        children.start(name, _joining(local, name, task), local.folder(name) / "log.jsonl")


def _joining(local: LocalFederation, name: str, task: str | None) -> list[str]:
    words = ["join", str(local.file), "--peer", name, "--credentials", str(local.credentials(name))]
    words += ["--listen", "127.0.0.1:0", "--reproducible", "--out", str(local.folder(name))]
    words += ["--min-contributors", str(local.config.server.min_contributors)]
    if name != local.peers[0]:
        words.append("--no-evaluate")  # all have the same model: one evaluation is enough
    return words + (["--task", task] if task else [])


def _watch(children: Children, view: LiveView) -> None:
    """Hand notices to the view until every process has gone; a peer that never gets to train ends them all."""
    left, begun = {child.name: child for child in children}, False
    while left:
        try:
            name, notice = children.notices.get(timeout=0.5)
        except queue.Empty:
            continue
        begun |= notice["event"] == "round"
        if notice["event"] != "gone":
            view(notice)
            continue
        view.gone(name)
        left.pop(name).wait(time.monotonic() + 5.0)
        if not begun and left:
            return


def _conclude(local: LocalFederation, children: Children, console: Console, *, as_json: bool) -> None:
    from eris.atomic_file import write_atomically
    from eris.cli.exit_code import ExitCode
    from eris.peer.outcome import Outcome

    codes = {child.name: child.exit_code for child in children}
    outcome = Outcome.read({name: local.folder(name) for name in local.peers}, codes)
    text = json.dumps(outcome.to_dict(), indent=2)
    write_atomically(local.path / "outcome.json", (text + "\n").encode())
    if as_json:
        typer.echo(text)
    _show(outcome, local, console)
    if not outcome.all_well:
        raise typer.Exit(ExitCode.PEER_FAILED)
    if not outcome.model_digest:
        raise typer.Exit(ExitCode.MODELS_DIFFER)


def _show(outcome: Outcome, local: LocalFederation, console: Console) -> None:
    from eris.peer.stay import NOISE_NOTE

    console.print(_table(outcome))
    _show_quality(outcome.peers[0], console)
    if local.config.privacy.noise_multiplier:
        console.print(NOISE_NOTE, style="yellow")
    for peer in outcome.peers:
        if peer.exit_code and peer.exit_code > 0:  # below zero: ended by us, with the others
            log = local.folder(peer.name) / "log.jsonl"
            console.print(f"{peer.name} ended with exit code {peer.exit_code}: see {log}", style="red", soft_wrap=True)
    if outcome.model_digest:
        console.print(
            f"all {len(outcome.peers)} peers have the same model: model_digest {outcome.model_digest}", **_PLAIN
        )
    elif outcome.all_well:
        console.print("the peers' models differ", style="bold red")
    console.print(f"everything is in {local.path}", **_PLAIN)


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
        ended, pid = peer.ended or f"exit code {peer.exit_code}", str(peer.pid or "")
        table.add_row(peer.name, pid, ended, str(peer.rounds), sent, received, peer.model_digest[:12])
    return table
