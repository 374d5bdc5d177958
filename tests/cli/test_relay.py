"""`eris relay`, `doctor --relay` and `status` as commands on one machine."""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.cli.processes import Running, eris, running

FILE = """
method = "eris"
rounds = 2
aggregators = 3
members = 3

[data]
name = "synthetic-quadratic"

[federation]
name = "grove"
coordinator = "127.0.0.1:{port}"
peers = ["amber", "birch", "cedar"]
"""


@pytest.fixture
def grove(tmp_path: Path) -> Path:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "FEDERATION.toml").write_text(FILE.format(port=port))
    eris("certs", "init", "certs", "--federation", "grove", cwd=tmp_path)
    for name in ("coordinator", "relay", "amber"):
        eris("certs", "issue", "certs", name, "--days", "10" if name == "coordinator" else "300", cwd=tmp_path)
    return tmp_path


def first_line(command: Running) -> str:
    deadline = time.monotonic() + 60
    while "\n" not in (text := command.log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return text.splitlines()[0]


def test_a_relay_is_found_by_the_doctor_and_ends_when_it_is_told(grove: Path) -> None:
    words = ("relay", "--certs", "certs/peers/relay", "--federation", "FEDERATION.toml", "--json")
    with (
        running(*words, "--listen", "127.0.0.1:0", cwd=grove, log=grove / "relay.log") as relay,
        running("coordinator", "FEDERATION.toml", cwd=grove, log=grove / "clock.log"),
    ):
        address = json.loads(first_line(relay))["address"]
        eris("status", "FEDERATION.toml", "--wait", "60", cwd=grove)
        found = eris("doctor", "FEDERATION.toml", "--peer", "amber", "--relay", address, cwd=grove)
        assert f"the coordinator reaches us by relay {address}" in found
        said = eris("join", "FEDERATION.toml", "--peer", "amber", "--relay", address, "--check", cwd=grove)
        assert f"the coordinator reaches us by relay {address}" in said
        joining = ("join", "FEDERATION.toml", "--peer", "amber", "--relay", address, "--out", "run-amber")
        with running(*joining, cwd=grove, log=grove / "amber.log"):
            deadline = time.monotonic() + 60
            while f"relay {address}" not in (status := eris("status", "FEDERATION.toml", cwd=grove)):
                assert time.monotonic() < deadline
        assert "the certificate of coordinator expires in 10 days: `eris certs renew`" in status
        assert "of amber expires" not in status
        relay.process.send_signal(signal.SIGINT)
        lines = [json.loads(line) for line in relay.wait().splitlines()]
    assert {"event": "waits", "peer": "amber"} in lines
    assert {"event": "joined", "peer": "coordinator", "other": "amber"} in lines
    assert lines[-1]["event"] == "ended"


def test_what_a_relay_and_its_peers_refuse(grove: Path, tmp_path: Path) -> None:
    eris("certs", "init", "other", "--federation", "other", cwd=grove)
    eris("certs", "issue", "other", "relay", cwd=grove)
    words = ("relay", "--certs", "other/peers/relay", "--federation", "FEDERATION.toml")
    assert "the certificate belongs to federation 'other'" in eris(*words, cwd=grove, code=2)
    joining = ("join", "FEDERATION.toml", "--peer", "amber")
    both = eris(*joining, "--relay", "localhost:1", "--no-listen", cwd=grove, code=2)
    assert "--relay and --no-listen contradict each other" in both
    many = [word for port in range(1, 6) for word in ("--relay", f"localhost:{port}")]
    assert "5 relays are more than 4" in eris(*joining, *many, cwd=grove, code=2)
    assert "http://[user:password@]host:port" in eris(*joining, "--proxy", "ftp://x", cwd=grove, code=2)
