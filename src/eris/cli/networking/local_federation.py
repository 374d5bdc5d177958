"""A federation on one machine: its CA, a certificate for each peer, and the file they share, in one folder.

FEDERATION.toml      what the peers share
certs/               the CA and everybody's credentials
coordinator/         plans and verdicts
peers/NAME/          what each peer writes
outcome.json         how every process ended, and whether all have the same model
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eris.atomic_file import write_atomically
from eris.config import Config
from eris.errors import CheckpointError, ConfigError
from eris.peer.federation_file import FederationFile, load_federation
from eris.peer.folder_claim import FolderClaim
from eris.transport.authority import Authority
from eris.transport.control import COORDINATOR

__all__ = ["LocalFederation", "Outcome", "PeerOutcome"]

_NAME = "local"
_FILE = "FEDERATION.toml"


class LocalFederation:
    """The folder and its layout; make one with `create`, or resume one with `open`."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        width = len(str(config.members - 1))
        self.peers = tuple(f"peer-{number:0{width}}" for number in range(config.members))
        self.config = self._federation("127.0.0.1:0", config).config

    @classmethod
    def create(cls, path: Path, config: Config) -> LocalFederation:
        """Lay out a folder with credentials for everybody; write nothing if the settings are refused."""
        if (path / _FILE).exists() and _never_began(path):
            _clear(path)
        if (path / _FILE).exists():
            fix = f"choose another --out, or continue with --resume {path}"
            raise ConfigError("there is a federation in this folder already", fix=fix, path=path)
        if path.exists() and not path.is_dir():
            raise ConfigError("this is a file, not a folder", fix="choose another --out", path=path)
        local = cls(path, config)
        authority = Authority.create(path / "certs", _NAME)
        for name in (COORDINATOR, *local.peers):
            authority.issue(name)
        local.place("127.0.0.1:0")
        return local

    @classmethod
    def open(cls, path: Path) -> LocalFederation:
        """Open a folder that `create` made."""
        if not (path / _FILE).is_file() or not (path / "certs").is_dir():
            raise CheckpointError(
                "this folder holds no federation made by `eris up`",
                fix="give the folder that `eris up` wrote",
                path=path,
            )
        return cls(path, load_federation(path / _FILE).config)

    @property
    def file(self) -> Path:
        """What the peers share."""
        return self.path / _FILE

    def credentials(self, name: str) -> Path:
        """Return the folder with a peer's credentials."""
        return self.path / "certs" / "peers" / name

    def folder(self, name: str) -> Path:
        """Return the folder a peer writes to."""
        return self.path / "peers" / name

    def log(self, name: str) -> Path:
        """Return a process's log file."""
        return (self.path / COORDINATOR if name == COORDINATOR else self.folder(name)) / "log.jsonl"

    def place(self, coordinator: str) -> FederationFile:
        """Write the file, with the coordinator's address."""
        federation = self._federation(coordinator, self.config)
        write_atomically(self.file, federation.dump().encode())
        return federation

    def _federation(self, coordinator: str, config: Config) -> FederationFile:
        return FederationFile({"name": _NAME, "coordinator": coordinator, "peers": list(self.peers)}, config)


def _never_began(path: Path) -> bool:
    """Whether no peer has finished a round there, and none is running."""
    if any(verdicts.stat().st_size for verdicts in path.glob("peers/*/verdicts.jsonl")):
        return False
    try:
        FolderClaim(path / COORDINATOR).release()
    except (ConfigError, FileNotFoundError):
        return not (path / COORDINATOR).exists()
    return True


def _clear(path: Path) -> None:
    """Remove what a run that never began left behind, and nothing else."""
    for folder in ("certs", COORDINATOR, "peers"):
        shutil.rmtree(path / folder, ignore_errors=True)
    for file in (_FILE, "outcome.json"):
        (path / file).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class PeerOutcome:
    """One peer; what it never wrote is empty."""

    name: str
    exit_code: int | None
    ended: str = ""
    pid: int | None = None
    rounds: int = 0
    sent: int = 0
    received: int = 0
    accuracy: float | None = None
    loss: float | None = None
    privacy: str = ""  # what its noise is worth
    model_digest: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How all peers ended, together."""

    peers: tuple[PeerOutcome, ...]

    @classmethod
    def read(cls, folders: Mapping[str, Path], exit_codes: Mapping[str, int | None]) -> Outcome:
        """Read the summaries that the peers left in their folders."""
        return cls(tuple(_read(name, folder, exit_codes.get(name)) for name, folder in folders.items()))

    @property
    def model_digest(self) -> str:
        """The model that all peers have; empty if they differ or one has none."""
        digests = {peer.model_digest for peer in self.peers}
        return digests.pop() if len(digests) == 1 else ""

    @property
    def all_well(self) -> bool:
        """Whether every process ended as it should."""
        return all(peer.exit_code == 0 for peer in self.peers)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {"model_digest": self.model_digest, "peers": [asdict(peer) for peer in self.peers]}


def _read(name: str, folder: Path, exit_code: int | None) -> PeerOutcome:
    try:
        return _outcome(name, exit_code, json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    except (OSError, KeyError, TypeError, ValueError):  # it is not there, or damaged
        return PeerOutcome(name, exit_code)


def _outcome(name: str, exit_code: int | None, summary: dict[str, Any]) -> PeerOutcome:
    links = [*summary["links"]["dialled"], *summary["links"]["accepted"]]
    return PeerOutcome(
        name,
        exit_code,
        ended=summary["ended"],
        pid=summary["pid"],
        rounds=summary["rounds"],
        sent=sum(link["wire_sent"] for link in links),
        received=sum(link["wire_received"] for link in links),
        accuracy=summary["final_accuracy"],
        loss=summary["final_loss"],
        privacy=(summary.get("privacy") or {}).get("text", ""),
        model_digest=summary["model_digest"],
    )
