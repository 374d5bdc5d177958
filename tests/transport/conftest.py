"""A small federation for every test of the transport."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from eris.transport.authority import Authority
from eris.transport.credentials import Credentials
from eris.transport.link import LinkLimits


@dataclass(frozen=True)
class Federation:
    """A CA and quick access to what it issued."""

    authority: Authority

    @property
    def folder(self) -> Path:
        return self.authority.folder

    def credentials(self, name: str) -> Credentials:
        folder = self.folder / "peers" / name
        return Credentials(folder if (folder / "certificate.pem").exists() else self.authority.issue(name))


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(Authority.create(tmp_path / "cardio", "cardio"))


@pytest.fixture
def limits() -> LinkLimits:
    return LinkLimits(header_size=16, max_payload=1 << 24, connect=5.0, handshake=5.0, idle=5.0)


@pytest.fixture(autouse=True)
def no_thread_survives() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and _ours(thread)]
    for thread in left:
        thread.join(5.0)
    assert not [thread for thread in left if thread.is_alive()]


def _ours(thread: threading.Thread) -> bool:
    """Whether Python made the thread: one of gRPC's core that once called into Python cannot be joined."""
    return not isinstance(thread, threading._DummyThread)
