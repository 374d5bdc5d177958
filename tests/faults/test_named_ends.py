"""What a person must mend ends a command with a sentence and an exit code: ports, disks, memory, clocks."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eris.transport.authority import Authority
from eris.transport.credentials import Credentials
from tests.cli.processes import ENVIRONMENT, running
from tests.transport.test_tls_link import forge

FILE = """
method = "eris"
rounds = {rounds}
aggregators = 2

[data]
name = "synthetic-quadratic"

[model]
options = {{ n = {n} }}

[federation]
name = "grove"
coordinator = "127.0.0.1:{port}"
peers = ["amber", "birch", "cedar"]
checkpoint_every = 1
"""
NAMES = ("amber", "birch", "cedar")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]


def make(folder: Path, *, n: int = 100, rounds: int = 100_000) -> Authority:
    """Write the file and the credentials of a federation."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "FEDERATION.toml").write_text(FILE.format(rounds=rounds, port=port, n=n))
    authority = Authority.create(folder / "certs", "grove")
    for name in ("coordinator", *NAMES):
        authority.issue(name)
    return authority


def limited(*words: object, cwd: Path, code: int, file: int = 0, memory: int = 0, seconds: float = 240.0) -> str:
    """Run a command with a largest size of its files, or of its memory; return what it printed."""

    def limit() -> None:
        if file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    done = subprocess.run(
        [sys.executable, "-m", "eris", *map(str, words)],
        cwd=cwd,
        env={**ENVIRONMENT, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        preexec_fn=limit,
    )
    assert done.returncode == code, f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    make(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        join = ("join", "FEDERATION.toml", "--peer", "amber", "--wait", "0")
        for words in ((*join, "--listen", place), ("coordinator", "FEDERATION.toml", "--listen", place)):
            said = limited(*words, cwd=tmp_path, code=2)
            assert "cannot listen on" in said
            assert "choose another port" in said
        said = limited(*join, "--metrics", str(taken.getsockname()[1]), cwd=tmp_path, code=2)
        assert "choose another port for --metrics" in said


def test_a_disk_that_is_full_at_a_peer_costs_that_peer_alone(tmp_path: Path) -> None:
    make(tmp_path, n=20_000)
    with ExitStack() as stack:
        for name, words in {"clock": ["coordinator"], "birch": ["join", "--peer", "birch"],
                            "cedar": ["join", "--peer", "cedar"]}.items():  # fmt: skip
            verb, *rest = words
            command = running(verb, "FEDERATION.toml", *rest, cwd=tmp_path, log=tmp_path / f"{name}.log")
            stack.enter_context(command)
        said = limited("join", "FEDERATION.toml", "--peer", "amber", cwd=tmp_path, code=22, file=40_000)
        assert "cannot be written: File too large" in said
        assert "make room" in said


def test_a_disk_that_is_full_at_the_coordinator_ends_the_run_by_name(tmp_path: Path) -> None:
    make(tmp_path)
    with ExitStack() as stack:
        peers = [
            stack.enter_context(
                running("join", "FEDERATION.toml", "--peer", name, cwd=tmp_path, log=tmp_path / f"{name}.log")
            )
            for name in NAMES
        ]
        said = limited("coordinator", "FEDERATION.toml", cwd=tmp_path, code=22, file=60_000)
        assert "the journal cannot be written" in said
        assert "start the coordinator again" in said
        for peer in peers:
            assert "the coordinator cannot continue" in peer.wait(14)


def test_too_little_memory(tmp_path: Path) -> None:
    make(tmp_path, n=400_000_000)
    said = limited("join", "FEDERATION.toml", "--peer", "amber", cwd=tmp_path, code=23, memory=3 * 2**30)
    assert "too little memory" in said
    assert "smaller" in said


def test_a_clock_that_is_wrong(tmp_path: Path) -> None:
    """A certificate of next month, seen from here, is what a clock that is a month behind sees."""
    authority = make(tmp_path)
    folder = Credentials(tmp_path / "certs/peers/amber").folder
    forge(folder, authority, "amber", start=datetime.now(UTC) + timedelta(days=30), days=10)
    with running("coordinator", "FEDERATION.toml", cwd=tmp_path, log=tmp_path / "clock.log"):
        said = limited("join", "FEDERATION.toml", "--peer", "amber", "--wait", "20", cwd=tmp_path, code=11)
    assert "clock" in said
