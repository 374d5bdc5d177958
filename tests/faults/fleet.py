"""A federation of real processes that can be killed, stopped and started again, and what must hold in the end."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eris.checkpoint import load_checkpoint
from eris.config import Config, load_config
from eris.local.spec import Vector
from eris.peer.federation_file import FederationFile
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.simulate.run import run
from eris.storage.state_store import StateStore
from eris.transport.authority import Authority
from eris.wire.schema import read_plain
from tests.faults.process import Fault, Job, main

NAMES = ("amber", "birch", "cedar", "dogwood", "elder")  # the first three aggregate
SETTINGS = ["data.name=synthetic-quadratic", "members=5", "aggregators=3", "rounds=6", "workers=1",
            "server.min_contributors=3"]  # fmt: skip
METHODS = {
    "fedavg": ["method=eris"],
    "fedadam-dsc": ["method=eris+dsc", "server.optimizer=fedadam", "server.optimizer_options.lr=0.01"],
}
MORE_METHODS = {
    "dsc": ["method=eris+dsc"],  # an optimizer that divides by its own length hides the last bits
    "replicas": ["method=eris", "shards.replicas=2"],
    "masked": ["method=eris+dsc+masked", "server.optimizer=fedadam", "server.optimizer_options.lr=0.01"],
}
ROUND = 60.0  # far longer than any of these runs may take: nobody may wait for it

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.faults.process"])


class Fleet:
    """Five peers and a coordinator; each process by its name."""

    def __init__(
        self,
        folder: Path,
        method: str,
        host: str = "127.0.0.1",
        *,
        changes: Sequence[str] = (),
        homes: Mapping[str, tuple[str, str]] | None = None,
        **federation: Any,
    ) -> None:
        """`homes` are a network namespace and an address in it for everybody, by name."""
        self.homes = dict(homes or {})
        self.folder, self.state, self.linger = folder, "state", 5.0
        self.config: Config = load_config(changes=[*SETTINGS, *(METHODS | MORE_METHODS)[method], *changes])
        authority = Authority.create(folder / "ca", "fleet")
        self.standbys = {name: self._free_place(name, host) for name in federation.pop("standbys", ())}
        for name in ("coordinator", *self.standbys, *NAMES):
            authority.issue(name)
        self.place = self._free_place("coordinator", host)
        host = self.place[0]
        if self.standbys:
            federation["standbys"] = {name: f"{place[0]}:{place[1]}" for name, place in self.standbys.items()}
        where = f"[{host}]:{self.place[1]}" if ":" in host else f"{host}:{self.place[1]}"
        table = {"name": "fleet", "coordinator": where, "peers": NAMES, "round": ROUND,
                 "connect": 10.0, "idle": 10.0, "checkpoint_every": 2, **federation}  # fmt: skip
        (folder / "FEDERATION.toml").write_text(FederationFile(table, self.config).dump(), encoding="utf-8")
        self._processes: dict[str, Any] = {}

    def start(self, *names: str, fault: Fault | None = None, newer: bool = False) -> None:
        for name in names:
            standbys = tuple(self.standbys.items())
            home = self.homes.get(name)
            job = Job(str(self.folder), name, self.place, fault, self.state, self.linger, standbys, home, newer)
            process = _context.Process(target=main, args=(job,), daemon=True)
            process.start()
            self._processes[name] = process

    def _free_place(self, name: str, host: str) -> tuple[str, int]:
        """Return where somebody may listen; in a namespace of its own every port is free."""
        return (self.homes[name][1], 7443) if name in self.homes else (host, free_port(host))

    def start_all(self, **faults: Fault) -> None:
        for name in ("coordinator", *NAMES):
            self.start(name, fault=faults.get(name))

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / f"{name}.lines"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def events(self, name: str, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines(name) if line["event"] == event]

    def wait_for(self, name: str, event: str, *, count: int = 1, seconds: float = 60.0) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while len(found := self.events(name, event)) < count:
            assert time.monotonic() < until, f"{name} did not come to {event}:\n{self.log(name)}"
            time.sleep(0.05)
        return found[count - 1]

    def wait_for_log(self, name: str, words: str, *, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while words not in self.log(name):
            assert time.monotonic() < until, f"{name} did not say {words!r}:\n{self.log(name)}"
            time.sleep(0.1)

    def wait_dead(self, name: str, seconds: float = 60.0) -> None:
        self._processes[name].join(seconds)
        assert self._processes[name].exitcode is not None, f"{name} lives"

    def thaw(self, name: str) -> None:
        os.kill(self._processes[name].pid, signal.SIGCONT)

    def kill(self, *names: str) -> None:
        for name in names:
            self._processes[name].kill()
            self._processes[name].join()

    def alive(self, name: str) -> bool:
        return self._processes[name].exitcode is None

    def supervise(self, *, seconds: float = 120.0) -> int:
        """Start again whoever ended before the run was over, as systemd would; return how often that was needed."""
        until, starts, names = time.monotonic() + seconds, 0, ("coordinator", *NAMES)
        while True:
            over = self.over()
            if over == set(names):
                return starts
            for name in set(names) - over:
                if not self.alive(name):
                    self.start(name)
                    starts += 1
            assert time.monotonic() < until, "\n".join(f"{name}:\n{self.log(name)}" for name in names)
            time.sleep(0.3)

    def over(self) -> set[str]:
        """Return who has ended well."""
        names = ("coordinator", *NAMES)
        return {name for name in names if any(end["how"] == "finished" for end in self.events(name, "end"))}

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(encoding="utf-8")[-6000:] if path.exists() else ""

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.join()

    # ── what must hold ──

    def pairs(self, name: str) -> list[tuple[RoundPlan, Verdict]]:
        lines = (self.folder / "peers" / name / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
        return [(read_plain(RoundPlan, line["plan"]), read_plain(Verdict, line["verdict"])) for line in found]

    def check(self, *alive: str) -> list[tuple[RoundPlan, Verdict]]:
        """Check that all live peers ended alike, that a replay comes to the same model, and that s = Σ w_k s_k."""
        for name in alive:
            self.wait_for(name, "end", seconds=90.0)
        ends = {name: self.events(name, "end")[-1] for name in alive}
        assert {end["how"] for end in ends.values()} == {"finished"}
        assert len(digests := {end["model_digest"] for end in ends.values()}) == 1
        pairs = self.pairs(alive[0])
        assert all(self.pairs(name) == pairs for name in alive)
        assert [verdict.round for _, verdict in pairs] == list(range(self.config.rounds))
        replay = self.folder / "peers" / alive[0] / "verdicts.jsonl"
        again = run(self.config, self.folder / "replay", replay=replay)
        assert {again.summaries[0]["model_digest"]} == digests
        if "dsc" in self.config.methods[0]:
            self.check_references(pairs[-1][0], alive)
        return pairs

    def undisturbed(self) -> str:
        """Return the digest that a simulation without faults comes to."""
        return str(run(self.config, self.folder / "undisturbed").summaries[0]["model_digest"])

    def check_references(self, plan: RoundPlan, alive: tuple[str, ...]) -> None:
        """Check s = Σ w_k s_k over the whole roster: what live members keep, and what the dead took with them.

        A dead member's last s_k is nowhere on disk, but it follows from the verdicts. So do those of the living: what
        each of them keeps must be, bit for bit, what the replay came to.
        """
        kept = {name: load_checkpoint(self.folder / "peers" / name / "checkpoint") for name in alive}
        assert {checkpoint.round for checkpoint in kept.values()} == {plan.round + 1}
        (shared,) = [name for name in kept[alive[0]].arrays if name.startswith("public.")]
        (own,) = [name for name in kept[alive[0]].arrays if name.startswith("private.")]
        reference = kept[alive[0]].arrays[shared]
        assert all(np.array_equal(checkpoint.arrays[shared], reference) for checkpoint in kept.values())
        references = self._replayed_references(reference.size)
        for name, checkpoint in kept.items():
            if checkpoint.facts["reference_epoch"] == plan.reference_epoch:  # else it came back too late for one
                assert np.array_equal(checkpoint.arrays[own], references[NAMES.index(name)]), name
        total = sum(float(weight) * references[peer].astype(np.float64) for peer, weight in plan.weights.items())
        assert np.abs(reference).max() > 0
        assert np.abs(total - reference).max() <= 1e-5 * max(1.0, float(np.abs(reference).max()))

    def _replayed_references(self, size: int) -> dict[int, Vector]:
        """Return every member's s_k at the end of the replay; one that never took part still has zeros."""
        folder, states = self.folder / "replay" / "checkpoint", {}
        store = StateStore(folder / "states", len(NAMES))
        store.load(load_checkpoint(folder).arrays["slots"].astype(np.int8))
        for peer in range(len(NAMES)):
            state = store.read(peer)
            states[peer] = np.zeros(size, np.float32) if state is None else state
            assert states[peer].size == size
        return states


@contextlib.contextmanager
def fleet(
    folder: Path, method: str, host: str = "127.0.0.1", *, changes: Sequence[str] = (), **options: Any
) -> Iterator[Fleet]:
    made = Fleet(folder, method, host, changes=changes, **options)
    try:
        yield made
    finally:
        made.close()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port nothing listens on, below those the system hands out: nobody gets it while its owner is down."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family):
        pass  # or the host is none of ours
    while True:
        port = random.SystemRandom().randrange(10_240, 32_768)
        with contextlib.suppress(OSError), socket.create_server((host, port), family=family):
            return port


def lost(pairs: list[tuple[RoundPlan, Verdict]]) -> dict[int, tuple[int, ...]]:
    """Return the lost shards of every round that lost some."""
    return {verdict.round: verdict.lost_shards for _, verdict in pairs if verdict.lost_shards}


def missing(pairs: list[tuple[RoundPlan, Verdict]], member: int) -> dict[int, tuple[int, ...]]:
    """Return the rounds and shards in which a member's contribution is not."""
    return {verdict.round: verdict.missing(member) for _, verdict in pairs if verdict.missing(member)}


__all__ = ["METHODS", "NAMES", "ROUND", "Fleet", "fleet", "free_port", "lost", "missing"]
