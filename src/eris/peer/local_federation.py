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
from eris.errors import ConfigError
from eris.peer.federation import Federation
from eris.transport.authority import Authority
from eris.transport.control import COORDINATOR

__all__ = ["LocalFederation"]

_NAME = "local"


class LocalFederation:
    """Lays out the folder."""

    def __init__(self, path: Path, config: Config) -> None:
        if (path / "FEDERATION.toml").exists():
            raise ConfigError("there is a federation in this folder already", fix="choose another --out", path=path)
        self.path, self.config = path, config
        width = len(str(config.members - 1))
        self.peers = tuple(f"peer-{number:0{width}}" for number in range(config.members))
        authority = Authority.create(path / "certs", _NAME)
        for name in (COORDINATOR, *self.peers):
            authority.issue(name)
        self.config = self.place("127.0.0.1:0").config

    @property
    def file(self) -> Path:
        """What the peers share."""
        return self.path / "FEDERATION.toml"

    def credentials(self, name: str) -> Path:
        """Return the folder a peer proves itself with."""
        return self.path / "certs" / "peers" / name

    def folder(self, name: str) -> Path:
        """Return the folder a peer writes to."""
        return self.path / "peers" / name

    def place(self, coordinator: str) -> Federation:
        """Write the file, with the coordinator's address."""
        federation = Federation({"name": _NAME, "coordinator": coordinator, "peers": list(self.peers)}, self.config)
        write_atomically(self.file, federation.dump().encode())
        return federation
