"""A federation on one machine: its CA, a certificate for each peer, and the file they share, in one folder.

FEDERATION.toml      what the peers share
certs/               the CA and everybody's credentials
coordinator/         plans and verdicts
peers/NAME/          what each peer writes
"""

from __future__ import annotations

from pathlib import Path

from eris.atomic_file import write_atomically
from eris.config import Config
from eris.errors import CheckpointError, ConfigError
from eris.peer.federation import Federation, load_federation
from eris.transport.authority import Authority
from eris.transport.control import COORDINATOR

__all__ = ["LocalFederation"]

_NAME = "local"
_FILE = "FEDERATION.toml"


class LocalFederation:
    """The folder, and what lies where in it; make one with `create`, or go on with one by `open`."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        width = len(str(config.members - 1))
        self.peers = tuple(f"peer-{number:0{width}}" for number in range(config.members))
        self.config = self._federation("127.0.0.1:0", config).config

    @classmethod
    def create(cls, path: Path, config: Config) -> LocalFederation:
        """Lay out a folder, with credentials for everybody; nothing is written if the settings cannot be."""
        if (path / _FILE).exists():
            fix = f"choose another --out, or go on with --resume {path}"
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
        """Take up a folder that `create` made."""
        if not (path / _FILE).is_file() or not (path / "certs").is_dir():
            raise CheckpointError(
                "there is no federation of `eris up` in this folder", fix="give the folder that --out named", path=path
            )
        return cls(path, load_federation(path / _FILE).config)

    @property
    def file(self) -> Path:
        """What the peers share."""
        return self.path / _FILE

    def credentials(self, name: str) -> Path:
        """Return the folder a peer proves itself with."""
        return self.path / "certs" / "peers" / name

    def folder(self, name: str) -> Path:
        """Return the folder a peer writes to."""
        return self.path / "peers" / name

    def log(self, name: str) -> Path:
        """Return the file with what a process says on its way."""
        return (self.path / COORDINATOR if name == COORDINATOR else self.folder(name)) / "log.jsonl"

    def place(self, coordinator: str) -> Federation:
        """Write the file, with the coordinator's address."""
        federation = self._federation(coordinator, self.config)
        write_atomically(self.file, federation.dump().encode())
        return federation

    def _federation(self, coordinator: str, config: Config) -> Federation:
        return Federation({"name": _NAME, "coordinator": coordinator, "peers": list(self.peers)}, config)
