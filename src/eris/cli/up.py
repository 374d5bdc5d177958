"""`eris up`: a whole federation on this machine. Certificates, a coordinator, and a real process for each peer."""

from __future__ import annotations

import json
import queue
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from eris.cli.exit_code import ExitCode
from eris.cli.own_task import FlowerOption, TaskOption, for_peer, said, with_flower
from eris.errors import ConfigError, RunStopped

if TYPE_CHECKING:
    from eris.cli.networking.children import Children
    from eris.cli.networking.live_view import LiveView
    from eris.cli.networking.local_federation import LocalFederation, Outcome
    from eris.config import Config

__all__ = ["register"]

_PEERS = 5
_PATIENCE = 30  # seconds: here only --resume starts a process again
_STOPPED = {ExitCode.FINISHED, ExitCode.STOPPED_BY_HAND}  # FINISHED: a peer that had left before
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
            int | None,
            typer.Option(min=1, help="Number of peers, one process each (default: the file's members, or 5)."),
        ] = None,
        out: Annotated[Path | None, typer.Option(help="The run's folder (default: runs/TIME-up-METHOD).")] = None,
        resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Continue a run that was stopped.")] = None,
        task: TaskOption = None,
        flower: FlowerOption = None,
        report: Annotated[
            bool, typer.Option(envvar="ERIS_REPORT", help="Write the first peer's report.html (extra `report`).")
        ] = True,
        as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, nothing else.")] = False,
    ) -> None:
        """Run a federation of real processes over TLS on this machine; its model is the one that `eris run` gives."""
        from eris.cli.networking.local_federation import LocalFederation

        own = _OwnTask(task, flower)
        for_peer(task, flower, "")  # refuses both
        if resume is None:
            resolved = own.settings(config, changes or [], peers)
            _check(resolved, own)
            local = LocalFederation.create(out or _folder(resolved), resolved)
        elif config or changes or peers or out:
            raise ConfigError("--resume continues with the folder's own settings", fix="give --resume DIR without them")
        else:
            local = LocalFederation.open(resume)
        _run(local, own, Console(quiet=as_json), as_json=as_json, report=report)


@dataclass(frozen=True)
class _OwnTask:
    """What --task or --flower named, and how every peer is told."""

    task: str | None
    flower: Path | None

    @property
    def given(self) -> bool:
        return self.task is not None or self.flower is not None

    def settings(self, config: Path | None, changes: list[str], peers: int | None) -> Config:
        if self.flower is None:
            return _settings(config, changes, peers)
        resolved, app = with_flower(
            self.flower, lambda given: _settings(config, given, peers), changes, defaults=config is None
        )
        said(app, resolved)
        return resolved

    def words(self, peer: int | None = None, peers: int = 0) -> list[str]:
        if self.flower is not None:
            node = ["--node-config", f"partition-id={peer} num-partitions={peers}"] if peer is not None else []
            return ["--flower", str(self.flower), *node]
        return ["--task", self.task] if self.task else []


def _run(local: LocalFederation, own: _OwnTask, console: Console, *, as_json: bool, report: bool) -> None:
    """Run the processes to their end; after Ctrl-C or `eris stop` say how far it got, and how to continue."""
    from eris.cli.networking.children import Children
    from eris.cli.networking.live_view import LiveView

    code = ExitCode.FINISHED
    with Children() as children:
        try:
            _start(local, children, own)
            processes = {child.name: child.pid for child in children if child.name in local.peers}
            with LiveView(processes, local.config.rounds, console) as view:
                _watch(children, view)
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
    outcome = _conclude(local, children, console, as_json=as_json, report=report)
    if {peer.exit_code for peer in outcome.peers} in ({ExitCode.STOPPED_BY_HAND}, _STOPPED):
        code = ExitCode.STOPPED_BY_HAND
    if code:
        words = " ".join(["eris", "up", "--resume", str(local.path), *own.words()])
        console.print(f"stopped; continue with: {words}", **_PLAIN)
        raise typer.Exit(code)
    if not outcome.all_well:
        raise typer.Exit(ExitCode.PEER_FAILED)
    if not outcome.model_digest:
        raise typer.Exit(ExitCode.MODELS_DIFFER)


def _settings(config: Path | None, changes: list[str], peers: int | None) -> Config:
    from eris.config import load_config

    given = load_config(config, changes=changes)
    said = any(change.partition("=")[0].strip() == "members" for change in changes)
    if said and peers not in (None, given.members):
        raise ConfigError(f"--peers is {peers}, members is {given.members}", fix="give one of the two", key="members")
    count = peers or (given.members if config or said else _PEERS)
    if count != given.members:
        changes = [*changes, f"members={count}"]
    if len(given.methods) != 1:
        changes = [*changes, 'method="eris"']
    return load_config(config, changes=changes)


def _check(config: Config, own: _OwnTask) -> None:
    """Refuse here what every peer would refuse in its own log: a dry batch, before there is a folder."""
    from eris.compose import check_settings
    from eris.peer.own_task import task_for
    from eris.simulate.run import check
    from eris.tasks import build_task

    if not own.given:
        check(config)
        build_task(config.model_dump(mode="json"))
        return
    check_settings(config)
    if own.task is not None:
        task_for(own.task, config, 0)


def _folder(config: Config) -> Path:
    from eris.simulate.stamped_folder import stamped_folder

    return stamped_folder(f"up-{config.methods[0]}")


def _start(local: LocalFederation, children: Children, own: _OwnTask) -> None:
    """Start the coordinator, hear where it listens, then start the peers."""
    from eris.cli.networking.outcome_view import last_error
    from eris.events import CoordinatorListening
    from eris.transport.control import COORDINATOR

    words = ["coordinator", str(local.file), "--credentials", str(local.credentials(COORDINATOR))]
    words += ["--listen", "127.0.0.1:0", "--state", str(local.path / COORDINATOR)]
    words += ["--patience", str(_PATIENCE), "--linger", str(_PATIENCE)]
    child = children.start(COORDINATOR, words, local.log(COORDINATOR))
    _, event = children.events.get(timeout=60)
    if not isinstance(event, CoordinatorListening):
        why = last_error(child.log)
        raise RunStopped(f"the coordinator did not start{why and f': {why}'}", fix=f"see {child.log}")
    local.place(event.address)
    for number, name in enumerate(local.peers):
        children.start(name, _joining(local, name) + own.words(number, len(local.peers)), local.log(name))


def _joining(local: LocalFederation, name: str) -> list[str]:
    words = ["join", str(local.file), "--peer", name, "--credentials", str(local.credentials(name))]
    words += ["--listen", "127.0.0.1:0", "--reproducible", "--budget", "none", "--out", str(local.folder(name))]
    words += ["--min-contributors", str(local.config.server.min_contributors), "--no-report"]
    if local.config.shared_figures:
        words.append("--share-figures")  # all peers are ours
    if name != local.peers[0]:
        words.append("--no-evaluate")  # all have the same model: one evaluation is enough
    return words


def _watch(children: Children, view: LiveView) -> None:
    """Hand events to the view until every process has gone; a peer that never gets to train ends them all."""
    from eris.events import RoundEnded, RunEnded

    left, begun = {child.name: child for child in children}, False
    while left:
        try:
            name, event = children.events.get(timeout=0.5)
        except queue.Empty:
            continue
        begun |= isinstance(event, RoundEnded | RunEnded)
        if event is not None:
            view(name, event)
            continue
        view.gone(name)
        left.pop(name).wait(time.monotonic() + 5.0)
        if not begun and left:
            return


def _conclude(local: LocalFederation, children: Children, console: Console, *, as_json: bool, report: bool) -> Outcome:
    """Write and show how every peer ended."""
    from eris.atomic_file import write_atomically
    from eris.cli.networking.local_federation import Outcome
    from eris.cli.networking.outcome_view import show_outcome
    from eris.cli.report import report_or_reason

    codes = {child.name: child.exit_code for child in children}
    outcome = Outcome.read({name: local.folder(name) for name in local.peers}, codes)
    text = json.dumps(outcome.to_dict(), indent=2)
    write_atomically(local.path / "outcome.json", (text + "\n").encode())
    if as_json:
        typer.echo(text)
    show_outcome(outcome, codes, local, console)
    if report and outcome.peers[0].rounds:
        console.print(f"report: {report_or_reason(local.folder(local.peers[0]))}", **_PLAIN)
    return outcome
