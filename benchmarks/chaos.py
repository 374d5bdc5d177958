"""A federation of real processes in which somebody is killed every second round.

    python benchmarks/chaos.py [--peers 10] [--rounds 50] [--every 2] [--deadline 30] [--seed 1] [--keep FOLDER]

Every process is an ordinary `eris coordinator` or `eris join`. After every second round one of them, drawn at random,
gets SIGKILL; a peer is started again a round later, the coordinator at once (no round ends without it). Members train
three epochs a round, so that a round lasts about as long as a process takes to start, and nobody is killed in the last
rounds, so that all can be back for the end. Prints one JSON object: what was killed when, and whether all of this held:
every round ended within its deadline and two seconds; all peers came to one model; every lost shard was that of a peer
killed in that round, or of one that was away or just back, and for whom nobody else might stand in; the accuracy is
within a point of the undisturbed run's; a replay of the verdicts ends in the same digest. Ends with 1 if one of them
did not. `--keep` keeps everybody's folders and logs, those of the replay and of the undisturbed run included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from eris.config import Config, load_config
from eris.peer.federation_file import FederationFile
from eris.simulate.run import run
from eris.transport.authority import Authority

COORDINATOR = "coordinator"
_QUIET_ROUNDS = 8  # at the end
Notice = dict[str, Any]


class Troupe:
    """The processes, each by its name, and what they say."""

    def __init__(self, folder: Path, config: Config, deadline: float) -> None:
        self.folder, self.config = folder, config
        self.peers = [f"peer-{number:02}" for number in range(config.members)]
        authority = Authority.create(folder / "certs", "chaos")
        for name in (COORDINATOR, *self.peers):
            authority.issue(name)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        table = {
            "name": "chaos",
            "coordinator": f"127.0.0.1:{self.port}",
            "peers": self.peers,
            "round": deadline,
            "checkpoint_every": 1,
        }
        (folder / "FEDERATION.toml").write_text(FederationFile(table, config).dump(), encoding="utf-8")
        self.notices: queue.Queue[tuple[str, Notice]] = queue.Queue()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a process, or start it again."""
        words = [COORDINATOR] if name == COORDINATOR else ["join"]
        words += [str(self.folder / "FEDERATION.toml"), "--credentials", str(self.folder / "certs" / "peers" / name)]
        if name == COORDINATOR:
            words += ["--listen", f"127.0.0.1:{self.port}", "--state", str(self.folder / "state")]
        else:
            words += ["--peer", name, "--listen", "127.0.0.1:0", "--reproducible"]
            words += ["--out", str(self.folder / name), "--no-evaluate"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "eris", *words, "--json", "--log-json", "--with-parent"],
                stdin=subprocess.PIPE,  # when we end, they do
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        threading.Thread(target=self._read, args=(name, self._processes[name]), daemon=True).start()

    def kill(self, name: str) -> None:
        """End a process as a power cut would."""
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes[name].wait()

    def alive(self, name: str) -> bool:
        """Whether it runs."""
        return name in self._processes and self._processes[name].poll() is None

    def close(self) -> None:
        """End what is left."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _read(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b"{"):
                self.notices.put((name, json.loads(line)))


class Chaos:
    """Kills and revives."""

    def __init__(self, troupe: Troupe, every: int, seed: int) -> None:
        self._troupe, self._every, self._chance = troupe, every, random.Random(seed)
        self.kills: list[dict[str, Any]] = []
        self._to_revive: list[tuple[int, str]] = []
        self.seconds: dict[int, float] = {}
        self.ends: dict[str, Notice] = {}

    def watch(self, limit: float) -> bool:
        """Follow the run to its end; False if it does not come."""
        until, done = time.monotonic() + limit, -1
        while not all(name in self.ends or self._too_late(name) for name in self._troupe.peers):
            if time.monotonic() > until:
                return False
            try:
                name, notice = self._troupe.notices.get(timeout=0.5)
            except queue.Empty:
                continue
            if notice["event"] == "RoundEnded":
                round = notice["round"]
                self.seconds[round] = max(self.seconds.get(round, 0.0), notice["seconds"]["round"])
                if round > done:
                    done = round
                    self._after(round)
            elif notice["event"] == "RunEnded" and name != COORDINATOR:
                self.ends[name] = notice
        return True

    def _too_late(self, name: str) -> bool:
        """Whether a peer is down and will not find the run any more."""
        return bool(self.ends) and not self._troupe.alive(COORDINATOR) and not self._troupe.alive(name)

    def _after(self, round: int) -> None:
        for due, name in list(self._to_revive):
            if round >= due:
                self._to_revive.remove((due, name))
                self._troupe.start(name)
        last = self._troupe.config.rounds - 1
        if round % self._every or round > last - _QUIET_ROUNDS or self._to_revive:
            return
        standing = [name for name in (COORDINATOR, *self._troupe.peers) if self._troupe.alive(name)]
        victim = self._chance.choice(standing)
        self._troupe.kill(victim)
        self.kills.append({"after_round": round, "killed": victim})
        if victim == COORDINATOR:
            self._troupe.start(victim)
        else:
            self._to_revive.append((round + 1, victim))


def verdicts(path: Path) -> list[dict[str, Any]]:
    """Return the verdicts a peer wrote down."""
    return [json.loads(line)["verdict"] for line in path.read_text(encoding="utf-8").splitlines()]


def unexplained(path: Path, kills: list[dict[str, Any]], peers: list[str]) -> list[dict[str, Any]]:
    """Return the lost shards whose aggregator was neither killed in that round nor away without a stand-in."""
    died = {(kill["after_round"] + later, kill["killed"]) for kill in kills for later in (1, 2)}  # noticed a round late
    return [
        {"round": verdict["round"], "shard": entry["shard"], "lost": entry["lost"]}
        for verdict in verdicts(path)
        for entry in verdict["shards"]
        if entry["lost"]
        and entry["lost"] != "restarted"  # back in the middle of a round, which it sits out
        and "its aggregator is away" not in entry["lost"]
        and (verdict["round"], peers[entry["aggregator"]]) not in died
    ]


def main() -> int:
    """Run, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--deadline", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to leave logs, verdicts and metrics")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    changes = [f"members={given.peers}", f"rounds={given.rounds}", "method=eris", "workers=1"]
    # At the default rate (0.05, with momentum) three epochs a round are at the edge: now and then one member's own
    # training diverges, disturbed or not, and the mean with it.
    changes += ["local.epochs=3", "local.lr=0.02", *given.changes]
    config = load_config(changes=changes)
    with contextlib.ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        result = judge(folder, config, given)
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0 if all(result["held"].values()) else 1


def judge(folder: Path, config: Config, given: argparse.Namespace) -> dict[str, Any]:
    """Let chaos reign, then compare with an undisturbed run and with a replay."""
    troupe, began = Troupe(folder, config, given.deadline), time.monotonic()
    chaos = Chaos(troupe, given.every, given.seed)
    try:
        for name in (COORDINATOR, *troupe.peers):
            troupe.start(name)
        ended = chaos.watch(120.0 + given.rounds * (given.deadline + 2.0))
        left = [name for name in troupe.peers if name not in chaos.ends]
    finally:
        troupe.close()
    if not ended:
        return {"kills": chaos.kills, "without_end": left, "held": {"no_hang": False}}
    furthest = max(chaos.ends, key=lambda name: chaos.ends[name]["rounds"])
    written = folder / furthest / "verdicts.jsonl"
    shards = [entry for verdict in verdicts(written) for entry in verdict["shards"]]
    lost_in = {each["round"]: sum(bool(entry["lost"]) for entry in each["shards"]) for each in verdicts(written)}
    lost, killed = sum(bool(entry["lost"]) for entry in shards), sum(k["killed"] != COORDINATOR for k in chaos.kills)
    committed, lacking = 1 - lost / len(shards), unexplained(written, chaos.kills, troupe.peers)
    replayed = run(config, folder / "replay", replay=written).summaries[0]
    undisturbed = run(config, folder / "undisturbed").summaries[0]
    there = {name: notice for name, notice in chaos.ends.items() if notice["rounds"] == given.rounds}
    digests = {notice["model_digest"] for notice in there.values()}
    slowest = max(chaos.seconds.values())
    accuracy = [summary.get("final_accuracy") for summary in (replayed, undisturbed)]
    return {
        "peers": given.peers,
        "rounds": given.rounds,
        "seconds": time.monotonic() - began,
        "kills": chaos.kills,
        "slowest_round_seconds": slowest,
        "committed": committed,
        "lost_shards": lost,
        "killed_peers": killed,
        "back_too_late": sorted(set(troupe.peers) - there.keys()),  # their run was over before they had started
        "lost_in_round": {round: lost for round, lost in lost_in.items() if lost},
        "lost_without_a_kill": lacking,
        "lost": dict(Counter(entry["lost"] for entry in shards if entry["lost"])),
        "accuracy": accuracy[0],
        "undisturbed_accuracy": accuracy[1],
        "held": {
            "no_hang": slowest <= given.deadline + 2.0,
            "one_model": len(digests) == 1 and len(there) == given.peers,
            "ended_finished": {notice["how"] for notice in chaos.ends.values()} == {"finished"},
            "committed": not lacking,
            "accuracy": None in accuracy or abs(accuracy[0] - accuracy[1]) <= 0.01,
            "replay": digests == {replayed["model_digest"]},
        },
    }


if __name__ == "__main__":
    sys.exit(main())
