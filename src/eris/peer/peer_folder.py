"""What a peer keeps on its own disk.

config.toml          the run's settings; `eris run --replay verdicts.jsonl` in this folder ends in the same model
                     if peers drew nothing in private: under `eris up` and `eris join --reproducible`
metrics.jsonl        a line a round: how it went for this peer
verdicts.jsonl       a line a round: its plan and its verdict, also of rounds this peer slept through
summary.json         all of it in one object
model.safetensors    the model it ended with
checkpoint/          what a restart goes on from
shown.jsonl          what was sent to whom of updates from each state, written before it was sent
released.jsonl       which noisy updates were let go, written before they were: what ε is counted by
heard.jsonl          the last plan that was heard, with the coordinator's signature: no lower one is answered
kept.sqlite          with standbys: every verdict that was followed, with its plan, seals and mandates
promise.json         with standbys: whom this peer voted for; it follows nobody of an earlier term
private-root         where this peer's randomness comes from (0600); never leaves
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from eris.atomic_file import is_full, write_atomically
from eris.checkpoint import GENERATIONS, load_checkpoint, save_checkpoint
from eris.config import dump_config
from eris.errors import CheckpointError, ConfigError, DiskError
from eris.local.spec import ModelSpec, Vector
from eris.local.tensor_file import file_pieces
from eris.peer.federation_file import FederationFile
from eris.peer.footprint import state_bytes
from eris.peer.node_settings import SPILL_ABOVE
from eris.peer.training import Training
from eris.plain_json import sayable
from eris.protocol.member import Member, Snapshot
from eris.protocol.recipe import Recipe
from eris.protocol.replica import copy_over
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.seeds import Seed, private_root_from_os
from eris.storage.mapped import require_room
from eris.wire.schema import plain, read_plain

__all__ = ["PRIVATE_ROOT", "PeerFolder", "private_root_in"]

_LOG = logging.getLogger(__name__)
PRIVATE_ROOT = "private-root"
_LINES: dict[str, Callable[[int, Any], bool]] = {  # whether a decoded line can be the one at this index
    "metrics.jsonl": lambda _, line: "round" in line,
    "verdicts.jsonl": lambda index, line: line["verdict"]["round"] == index,
}


class PeerFolder:
    """Writes and reads a peer's folder.

    Args:
        path: where it is.
        peer: the peer's name.
        spill_above: bytes; longer vectors of a checkpoint are mapped instead of read.
    """

    def __init__(self, path: Path, federation: FederationFile, peer: str, *, spill_above: int = SPILL_ABOVE) -> None:
        self.path, self._federation, self._peer, self._spill_above = path, federation, peer, spill_above
        self._written: list[str] = []  # digests of the verdicts, one for each round
        self._saved: tuple[int, str, int] | None = None  # our state when the newest checkpoint was written

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are."""
        return self.path / "checkpoint"

    def open(self) -> None:
        """Start a new folder or resume an old one; a folder of another run is refused."""
        self.path.mkdir(parents=True, exist_ok=True)
        config = self.path / "config.toml"
        text = dump_config(self._federation.config)
        if not self._has_begun():  # an attempt that failed in its first round binds nobody to its settings
            self._clear()
        if config.exists() and config.read_text(encoding="utf-8") != text:
            raise CheckpointError("this folder belongs to another run", fix="give another --out", path=self.path)
        write_atomically(config, text.encode())
        for name, fits in _LINES.items():
            _mend(self.path / name, fits)
        self._written = [read_plain(Verdict, line["verdict"]).digest for line in self.lines("verdicts.jsonl")]

    def _has_begun(self) -> bool:
        files = [self.path / name for name in _LINES]
        return any(self.rounds()) or any(file.exists() and file.stat().st_size > 0 for file in files)

    def _clear(self) -> None:
        """Remove what an attempt without a concluded round left behind, except the private root."""
        for path in (self.path / "config.toml", *self.checkpoints.glob("round-*")):
            path.unlink(missing_ok=True)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the lines of a file, one for each round."""
        return [json.loads(line) for line in (self.path / name).read_text(encoding="utf-8").splitlines()]

    def note_verdict(self, plan: RoundPlan, verdict: Verdict) -> None:
        """Record how a round ended, once however often it is heard; strike out rounds that the run took back."""
        if verdict.digest in self._written[verdict.round : verdict.round + 1]:
            return
        if verdict.round < len(self._written):
            self._strike_out(verdict.round)
        if verdict.round > len(self._written):
            return  # lines were lost (see `restore`): what is left stays in step with the rounds
        self._append("verdicts.jsonl", {"plan": plain(plan), "verdict": plain(verdict)})
        self._written.append(verdict.digest)

    def _strike_out(self, round: int) -> None:
        """Forget the rounds from `round` on: the run went back behind them."""
        for name, of in (("verdicts.jsonl", lambda line: line["verdict"]["round"]), ("metrics.jsonl", _round_of)):
            kept = [line for line in self.lines(name) if of(line) < round]
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in kept)
            write_atomically(self.path / name, text.encode())
        del self._written[round:]

    def note_metrics(self, line: Mapping[str, Any]) -> None:
        """Record how a round went."""
        self._append("metrics.jsonl", line)

    def save(self, member: Member, training: Training) -> None:
        """Save everything this peer needs to resume from here."""
        standing = member.round, member.chain, member.reference_epoch
        if standing == self._saved and member.round in self.rounds():
            return  # at the end of a run this is called more than once, and models may be long
        arrays = dict(member.replica.state())
        arrays |= {f"private.{name}": value for name, value in member.private.items()}
        arrays |= {f"memory.{name}": value for name, value in training.memory.items()}
        facts = {
            "federation": self._federation.digest,
            "peer": self._peer,
            "chain": member.chain,
            "reference_epoch": member.reference_epoch,
        }
        for name in _LINES:  # resuming from this checkpoint needs the rounds before it
            with self._appending(name) as file:
                os.fsync(file.fileno())
        save_checkpoint(self.checkpoints, member.round, arrays, facts)
        self._saved = standing

    def require_room(self, recipe: Recipe) -> None:
        """Refuse to begin a run whose model and checkpoints, including one being written, would not fit."""
        kept = sum(path.stat().st_size for path in self.checkpoints.glob("round-*.safetensors"))
        needed = (GENERATIONS + 1) * state_bytes(recipe) + 4 * recipe.spec.n
        require_room(needed - kept, self.path, what=f"what is kept of a model of {recipe.spec.n:,} values")

    def rounds(self) -> list[int]:
        """Return the rounds that this peer could resume from."""
        return sorted(int(path.stem.removeprefix("round-")) for path in self.checkpoints.glob("round-*.safetensors"))

    def restore(self, member: Member, training: Training, round: int | None = None) -> bool:
        """Restore the checkpoint of a round (None: the last) into `member` and `training`; False if there is none."""
        if not (round in self.rounds() if round is not None else self.rounds()):
            return False
        checkpoint = load_checkpoint(self.checkpoints, round=round, above=self._spill_above)
        facts = checkpoint.facts
        if (facts["federation"], facts["peer"]) != (self._federation.digest, self._peer):
            raise CheckpointError("the checkpoint belongs to another run", fix="give another --out", path=self.path)
        if checkpoint.round > len(self._written):
            _LOG.warning("verdicts.jsonl is damaged before round %d: a replay ends there", len(self._written))
        member.restore(Snapshot(checkpoint.round, facts["chain"], dict(checkpoint.arrays)))
        for name, value in _named("private.", checkpoint.arrays, member.private):
            copy_over(value, member.private[name])
        for name, value in _named("memory.", checkpoint.arrays, training.memory):
            training.memory[name] = value.copy()
        member.reference_epoch = int(facts["reference_epoch"])
        return True

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        """Write a JSON file for people and programs."""
        write_atomically(self.path / name, (json.dumps(sayable(data), indent=2) + "\n").encode())

    def write_model(self, spec: ModelSpec, model: Vector) -> None:
        """Write the model as named tensors."""
        write_atomically(self.path / "model.safetensors", file_pieces(spec.unflatten(model), {"spec": spec.digest}))

    def _append(self, name: str, data: Mapping[str, Any]) -> None:
        with self._appending(name) as file:
            file.write(json.dumps(sayable(data), separators=(",", ":")) + "\n")

    @contextmanager
    def _appending(self, name: str) -> Iterator[TextIO]:
        try:
            with (self.path / name).open("a", encoding="utf-8") as file:
                yield file
        except OSError as error:
            if not is_full(error):
                raise
            raise DiskError(
                f"{self.path / name} cannot be written: {error.strerror}",
                fix="make room there and start this peer again: it continues from its last checkpoint",
            ) from error


def _round_of(line: Mapping[str, Any]) -> int:
    return int(line["round"])


def _mend(path: Path, fits: Callable[[int, Any], bool]) -> None:
    """Create a file of lines, or cut off what a crash or power cut left: half a line, or a hole and all after it."""
    data = path.read_bytes() if path.exists() else b""
    numbered = enumerate(data.splitlines(keepends=True))
    whole = b"".join(line for _, line in takewhile(lambda entry: _is_whole(*entry, fits), numbered))
    if not path.exists() or whole != data:
        write_atomically(path, whole)


def _is_whole(index: int, line: bytes, fits: Callable[[int, Any], bool]) -> bool:
    try:
        return line.endswith(b"\n") and fits(index, json.loads(line))
    except (KeyError, TypeError, ValueError):
        return False


def _named(prefix: str, arrays: Mapping[str, Any], like: Mapping[str, Vector]) -> list[tuple[str, Vector]]:
    """Return the array `prefix` + name for every name in `like`, each as long as the one it replaces."""
    found = [(name, np.ascontiguousarray(arrays[prefix + name])) for name in like]
    for name, value in found:
        if value.shape != like[name].shape:
            raise CheckpointError(f"{prefix}{name} has {value.size} values, not {like[name].size}")
    return found


def private_root_in(folder: Path, peer: str) -> Seed:
    """Return the private root kept in a peer's folder; the first call draws it.

    It must survive a restart: a peer that trained a round again with other batches would contradict itself.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> private_root_in(folder, "amber") == private_root_in(folder, "amber")
    True
    """
    path = folder / PRIVATE_ROOT
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, private_root_from_os(peer).key.hex().encode(), mode=0o600)
    if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError("others can read this peer's private root", fix=f"chmod 600 {path}", file=path)
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except (UnicodeDecodeError, ValueError):
        key = b""
    if len(key) != 16:
        raise ConfigError("the private root is damaged", fix="remove the file and leave the run first", file=path)
    return Seed(f"os/peer/{peer}", key, private=True)
