"""A model too long for memory: GPT-Neo-1.3B trained whole by 3 peers, shared-reference DSC 1 %, mutual TLS, loopback.

    python benchmarks/big.py [--model gpt-neo-1.3b] [--peers 3] [--rounds 1] [--folder DIR] [--check]
    python benchmarks/big.py --model made-up [--n 1300000000] [--peers 4] [--rounds 3] [--cut]

The network has GPT-Neo-1.3B's architecture and begins at random, as transformers builds it; it learns a text's letters,
one step of plain SGD a round. Weights are windows on the peer's mapped model, gradients are added up in one mapped
file (`eris.local.torch_block_task`); peers compute in turn. `tiny` is the same with two small layers. `made-up` moves
updates of any length that cost nothing to make.

Model and reference lie in mapped files of DIR, the update is made in blocks and never whole. It says first how much
disk it needs and refuses if that is not there; `--check` ends then. Prints one JSON object; progress goes to stderr.

Seconds of a round. Bytes are the kernel's count of all links of a peer, closed ones included (`LinkAccount`), from the
end of the first round to the end of the run; handshakes are counted, calls to the coordinator are not. If there is but
one round, it is counted from the start. With `--cut` the first peer cuts a link after every round, which must not lose
a byte of the count: what all have sent is what all have received. Memory of a peer: its peak in all, which counts pages
of mapped files that the kernel may take back at any time, and what of it is its own (anonymous); also the most that all
processes had of their own at one time. Loss on a fixed held-out batch, before and after.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import stat
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from network import hear, machine, process, resident, say
from soak import cut_a_link

from eris.compose import compose
from eris.config import load_config
from eris.coordinate.service import CoordinatorService
from eris.errors import DiskError
from eris.events import Event, RoundEnded, VerdictWritten, hears
from eris.local.spec import ModelSpec, Vector
from eris.local.task import BlockResult, LocalResult, Memory
from eris.peer.federation_file import FederationFile
from eris.peer.footprint import disk_need
from eris.peer.node import Node
from eris.peer.node_settings import SPILL_ABOVE, NodeSettings
from eris.seeds import Seed, private_root
from eris.storage.mapped import require_room
from eris.transport.authority import Authority
from eris.transport.control import load_grpc
from eris.transport.credentials import Credentials

KEEP = 0.01
BLOCK = 1 << 20  # values of the update made at a time
MOST_DISK = 50e9  # bytes, of all peers together
TEXT = Path(__file__).parents[1] / "LICENSE"
PLACES, TEXTS = 128, 4  # letters of a sample, samples of a member
SIZES = {
    "gpt-neo-1.3b": {},
    "gpt-neo-350m": {"hidden_size": 1024, "num_heads": 16},
    "gpt-neo-125m": {
        "hidden_size": 768, "num_heads": 12, "num_layers": 12, "attention_types": [[["global", "local"], 6]],
    },
    "tiny": {
        "hidden_size": 32, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]],
        "max_position_embeddings": 256, "vocab_size": 500, "bos_token_id": 1, "eos_token_id": 1,
    },
}  # fmt: skip
STEP = 0.001  # small: of 1 % of the values a hundred times the step is taken


@dataclass(frozen=True)
class Case:
    """The federation."""

    model: str
    n: int
    peers: int
    rounds: int
    spill_above: int
    cut: bool = False  # whether a link is cut after every round

    @property
    def names(self) -> list[str]:
        """The peers."""
        return [f"peer-{number}" for number in range(self.peers)]

    def federation(self, address: tuple[str, int]) -> FederationFile:
        """Return what the peers share."""
        document = {
            "method": "eris+dsc",
            "members": self.peers,
            "rounds": self.rounds,
            "shards": {"block": 1024},
            "compression": {"keep": KEEP, "shared_reference": True},
        }
        where = {"name": "big", "coordinator": f"{address[0]}:{address[1]}", "peers": self.names}
        return FederationFile(where | {"round": 7200.0, "idle": 600.0}, load_config(document))

    def need(self) -> dict[str, int]:
        """Return what one peer keeps on disk."""
        recipe = compose(self.federation(("127.0.0.1", 1)).config, ModelSpec.flat(self.n), [1] * self.peers).recipe
        return disk_need(recipe, above=self.spill_above, members=self.peers, in_blocks=True)

    def disk(self) -> int:
        """Return what all need: what every peer keeps, and one gradient, since they compute in turn."""
        return self.peers * sum(self.need().values()) + (0 if self.model == "made-up" else 4 * self.n)

    def task(self, folder: Path) -> Any:
        """Return what the peers train."""
        return MadeUpTask(self.peers, self.n) if self.model == "made-up" else language_task(self, folder)


def network_of(model: str) -> Any:
    """Return GPT-Neo with random weights, as transformers builds it, without dropout."""
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    still = {"embed_dropout": 0.0, "attention_dropout": 0.0, "resid_dropout": 0.0}
    return GPTNeoForCausalLM(GPTNeoConfig(**SIZES[model], **still))


def length_of(model: str) -> int:
    """Return how many values a model has, without making them."""
    import torch

    from eris.local.torch_module import spec_of

    with torch.device("meta"):
        return spec_of(network_of(model)).n


def language_task(case: Case, folder: Path) -> Any:
    """Return the task of learning a text's letters; every peer has a passage of its own, and one is held out."""
    from functools import partial

    from eris.data import ArrayExamples
    from eris.local.torch_block_task import LongTorchTask
    from eris.local.torch_losses import NextToken
    from eris.local.torch_work import LocalWork

    letters = np.frombuffer(TEXT.read_bytes(), np.uint8).astype(np.int64)
    rows = letters[: len(letters) // PLACES * PLACES].reshape(-1, PLACES)
    members = [np.arange(TEXTS * (k + 1), TEXTS * (k + 2)) for k in range(case.peers)]
    return LongTorchTask(
        partial(network_of, case.model), ArrayExamples(rows, rows), members,
        test=ArrayExamples(rows[:2], rows[:2]), work=LocalWork(lr=STEP, micro_batch=1), objective=NextToken(),
        folder=folder, turn=folder / "turn",
    )  # fmt: skip


class MadeUpTask:
    """Updates that cost nothing to make and differ from member to member, block to block and round to round."""

    def __init__(self, members: int, n: int) -> None:
        self.members, self.spec = members, ModelSpec.flat(n)
        self._pattern = np.random.default_rng(0).standard_normal(BLOCK, np.float32)

    def samples(self, member: int) -> int:
        """Return the same weight for all."""
        del member
        return 1

    def initial_blocks(self, seed: Seed) -> Iterator[Vector]:
        """Begin with small numbers."""
        del seed
        return (self._pattern[:size] * np.float32(0.01) for _, size in self._blocks())

    def initial(self, seed: Seed) -> Vector:
        """Return the same in one piece."""
        return np.concatenate(list(self.initial_blocks(seed)))

    def memory(self, member: int) -> Memory:
        """Keep nothing."""
        del member
        return {}

    def train_blocks(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> BlockResult:
        """Return the pattern, scaled."""
        del model, memory, seed
        blocks = (self._pattern[:size] * np.float32(1 + member + block % 7 + round) for block, size in self._blocks())
        return BlockResult(blocks, samples=1, loss=0.0)

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Return the same in one piece."""
        return self.train_blocks(member, model, memory, round=round, seed=seed).whole()

    def evaluate(self, model: Vector) -> dict[str, float]:
        """Measure nothing."""
        del model
        return {}

    def _blocks(self) -> Iterator[tuple[int, int]]:
        n = self.spec.n
        return ((number, min(BLOCK, n - start)) for number, start in enumerate(range(0, n, BLOCK)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[*SIZES, "made-up"], default="gpt-neo-1.3b")
    parser.add_argument("--n", type=int, default=1_300_000_000, help="length of a made-up model")
    parser.add_argument("--peers", type=int, help="3; 4 for a made-up model")
    parser.add_argument("--rounds", type=int, help="1; 3 for a made-up model")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="a disk with room")
    parser.add_argument("--spill-above", type=int, default=SPILL_ABOVE, help="bytes; longer vectors lie in files")
    parser.add_argument("--seconds", type=float, default=7200.0, help="given up after so many")
    parser.add_argument("--cut", action="store_true", help="let the first peer cut a link after every round")
    parser.add_argument("--check", action="store_true", help="say what is needed and whether it is there, then end")
    options = parser.parse_args()
    made_up = options.model == "made-up"
    case = Case(
        options.model, options.n if made_up else length_of(options.model),
        options.peers or (4 if made_up else 3), options.rounds or (3 if made_up else 1), options.spill_above,
        options.cut,
    )  # fmt: skip
    disk, total = case.need(), case.disk()
    say(f"{case.peers} peers, n = {case.n:,}: {total / 1e9:.1f} GB of disk at {options.folder}, a peer {disk}")
    try:
        require_room(total, options.folder, what=f"{case.peers} peers with {case.n:,} values each")
    except DiskError as error:
        sys.exit(str(error))
    if total > MOST_DISK:
        sys.exit(f"{total / 1e9:.1f} GB of disk are more than {MOST_DISK / 1e9:.0f}: use fewer peers")
    if not options.check:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            result = play(case, Path(folder), time.monotonic() + options.seconds)
        print(
            json.dumps(
                {"machine": machine(), "disk a peer": disk, "disk GB": round(total / 1e9, 2), **result}, indent=1
            )
        )


def play(case: Case, folder: Path, deadline: float) -> dict[str, Any]:
    """Run the federation and return what it cost."""
    authority = Authority.create(folder / "ca", "big")
    for name in ("coordinator", *case.names):
        authority.issue(name)
    began, everybody, files = time.monotonic(), Highest(own_of_all), Highest(lambda: disk_of_all(folder))
    with process(run_coordinator, case, folder) as control, contextlib.ExitStack() as stack:
        address = control.recv()
        peers = [stack.enter_context(process(run_peer, case, folder, number, address)) for number in range(case.peers)]
        idle = [hear(pipe, deadline, "peers did not start") for pipe in peers]
        ready = [hear(pipe, deadline, "peers are not ready") for pipe in peers]
        say(f"ready after {time.monotonic() - began:.0f} s, {files.value / 1e9:.1f} GB of disk taken")
        rounds = []
        for number in range(case.rounds):
            rounds.append([hear(pipe, deadline, f"round {number} did not end") for pipe in peers])
            say(f"round {number}: {max(r['seconds'] for r in rounds[-1]):.1f} s, {json.dumps(rounds[-1][0])}")
        ends = [hear(pipe, deadline, "peers did not leave") for pipe in peers]
        control.send("end")
    through = [max(ready), *(max(report["time"] for report in reports) for reports in rounds)]
    before = rounds[0] if case.rounds > 1 else [{"sent": 0}] * case.peers
    sent = sum(end["sent"] - report["sent"] for end, report in zip(ends, before, strict=True))
    sent /= max(1, case.rounds - 1)
    return {
        "model": case.model, "K": case.peers, "n": case.n, "rounds": case.rounds,
        "loss before": ends[0]["before"], "loss after": ends[0]["after"],
        "seconds a round": [round(float(s), 1) for s in np.diff(through)],
        "median seconds": round(statistics.median(np.diff(through)), 1),
        "seconds to be ready": round(max(ready) - began, 1),
        "GB of disk taken": round(files.value / 1e9, 2),
        "MB sent a peer and round": round(sent / case.peers / 1e6, 2),
        "MB sent and received by all": [round(sum(end[way] for end in ends) / 1e6, 3) for way in ("sent", "received")],
        "links": sum(end["links"] for end in ends) // 2,
        "ideal MB": round(8 * (case.peers - 1) * int(case.n * KEEP) / case.peers / 1e6, 2),
        "peak MB of a peer": [round((end["peak"] - rest) / 1e6) for end, rest in zip(ends, idle, strict=True)],
        "own MB of a peer": [max(round(r[k]["own"] / 1e6) for r in rounds) for k in range(case.peers)],
        "own MB of all at one time": round(everybody.value / 1e6),
        "vector MB": round(4 * case.n / 1e6),
        "contributions missing": sum(reports[0]["missing"] for reports in rounds),
        "one digest": len({end["digest"] for end in ends}) == 1,
        "model_digest": ends[0]["digest"],
    }  # fmt: skip


def run_coordinator(pipe: Connection, case: Case, folder: Path) -> None:
    node = CoordinatorService(
        case.federation(("127.0.0.1", 1)), Credentials(folder / "ca/peers/coordinator"), folder / "coordinator",
        listen=("127.0.0.1", 0),
    )  # fmt: skip
    pipe.send(node.address)
    pipe.recv()
    node.close()


def run_peer(pipe: Connection, case: Case, folder: Path, number: int, address: tuple[str, int]) -> None:
    load_grpc()
    name = case.names[number]
    pipe.send(resident("VmRSS"))
    highest = Highest()

    decided: list[VerdictWritten] = []

    @hears(VerdictWritten, RoundEnded)
    def report(event: Event) -> None:
        if isinstance(event, VerdictWritten):
            decided[:] = [event]
            return
        assert isinstance(event, RoundEnded)
        missing = sum(case.peers - len(shard.contributors) for shard in decided[0].verdict.shards)
        now = time.monotonic()
        told = {"time": now, "seconds": event.seconds["round"], "missing": missing, "own": highest.value}
        pipe.send({**told, **carried(node)})
        if case.cut and number == 0:
            cut_a_link(node, random.Random(event.round))

    settings = NodeSettings(
        name, listen=("127.0.0.1", 0), advertise="127.0.0.1", patience=7200.0, folder=folder,
        spill_above=case.spill_above,
    )  # fmt: skip
    task = case.task(folder)
    node = Node(
        case.federation(address), Credentials(folder / "ca" / "peers" / name), task,
        private_root(0, number), settings, listeners=[report],
    )  # fmt: skip
    before = task.evaluate(node.member.replica.model).get("loss") if number == 0 else None
    pipe.send(time.monotonic())
    node.run()
    after = task.evaluate(node.member.replica.model).get("loss") if number == 0 else None
    told = {"peak": resident("VmHWM"), "digest": node.model_digest(), "before": before, "after": after}
    pipe.send({**told, **carried(node)})


def carried(node: Node) -> dict[str, int]:
    """Return what all links of a peer have carried by the kernel's count, open or closed, and how many they are."""
    accounts = [*node.links.clients.accounts(node.federation.peers), *node.links.server.accounts()]
    counts = {"sent": "kernel_sent", "received": "kernel_received", "links": "links"}
    return {name: sum(getattr(account, field) for account in accounts) for name, field in counts.items()}


def own_of_all() -> int:
    """Return the anonymous memory of this process and those it started."""
    total = 0
    for pid in ["self", *(child.pid for child in multiprocessing.active_children())]:
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
    return total


def disk_of_all(folder: Path) -> int:
    """Return what this process and those it started keep on the folder's disk, files without a name included."""
    found: dict[int, int] = {}
    homes = [Path(f"/proc/{pid}/fd") for pid in ["self", *(child.pid for child in multiprocessing.active_children())]]
    with contextlib.suppress(OSError):  # it is gone at the end
        disk = folder.stat().st_dev
        for entry in (entry for home in (*homes, folder) for entry in home.rglob("*")):
            with contextlib.suppress(OSError):
                state = entry.stat()
                if state.st_dev == disk and stat.S_ISREG(state.st_mode):
                    found[state.st_ino] = state.st_blocks * 512
    return sum(found.values())


class Highest:
    """The most anonymous memory this process had, or another figure, looked at four times a second."""

    def __init__(self, look: Callable[[], int] = lambda: resident("RssAnon")) -> None:
        self.value = 0
        threading.Thread(target=self._look, args=(look,), daemon=True).start()

    def _look(self, look: Callable[[], int]) -> None:
        while True:
            self.value = max(self.value, look())
            time.sleep(0.25)


if __name__ == "__main__":
    main()
