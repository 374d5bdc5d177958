"""Five hospitals that open no port, each on a network of its own from which only the hub can be dialled, and relays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.processes import Running, eris, running

NAMES = ("amber", "birch", "cedar", "dogwood", "elder")
SETTINGS = """
method = "eris"
rounds = {rounds}
aggregators = 5
members = 5
seed = 3

[data]
name = "synthetic-quadratic"
"""
FEDERATION = """
[privacy]
masking = "none"

[federation]
name = "grove"
coordinator = "10.78.0.1:7443"
peers = ["amber", "birch", "cedar", "dogwood", "elder"]
"""
RELAYS = ("10.78.0.1:7445", "10.78.0.1:7446")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


@pytest.fixture
def networks() -> Iterator[dict[str, str]]:
    """A namespace for each peer with a network of its own: a point-to-point line to the hub, which forwards nothing."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root, and ip of iproute2")
    names = {name: f"eris-{os.getpid()}-{name}" for name in ("hub", *NAMES)}
    with ExitStack() as stack:
        for namespace in names.values():
            stack.callback(subprocess.run, ["ip", "netns", "delete", namespace], capture_output=True, check=False)
            ip("netns", "add", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
        ip("-n", names["hub"], "address", "add", "10.78.0.1/32", "dev", "lo")
        for number, name in enumerate(NAMES, start=1):
            ip("-n", names["hub"], "link", "add", name, "type", "veth", "peer", "wan", "netns", names[name])
            ip("-n", names["hub"], "address", "add", f"10.78.{number}.1/30", "dev", name)
            ip("-n", names["hub"], "link", "set", name, "up")
            ip("-n", names[name], "address", "add", f"10.78.{number}.2/30", "dev", "wan")
            ip("-n", names[name], "link", "set", "wan", "up")
            ip("-n", names[name], "route", "add", "10.78.0.1/32", "via", f"10.78.{number}.1")
            # Even the hub gets no connection in: what is not an answer is dropped, as behind most firewalls.
            ip("-n", names[name], "rule", "add", "ipproto", "tcp", "sport", "1-32767", "blackhole")
            ip("netns", "exec", names[name], "sh", "-c", "echo 32768 60999 > /proc/sys/net/ipv4/ip_local_port_range")
        yield names


def prepare(folder: Path, rounds: int) -> str:
    """Make file and certificates; return the digest of a simulated run with the same settings."""
    (folder / "run.toml").write_text(SETTINGS.format(rounds=rounds))
    (folder / "FEDERATION.toml").write_text(SETTINGS.format(rounds=rounds) + FEDERATION)
    eris("certs", "init", "certs", "--federation", "grove", cwd=folder)
    for name in ("coordinator", "relay", *NAMES):
        eris("certs", "issue", "certs", name, cwd=folder)
    eris("run", "run.toml", "--out", "simulated", cwd=folder)
    (summary,) = (folder / "simulated").rglob("summary.json")
    return str(json.loads(summary.read_text())["model_digest"])


def until(found: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def sockets_that_listen(namespace: str) -> list[str]:
    """Return what listens inside a namespace, as /proc/net/tcp and tcp6 say."""
    read = "cat /proc/net/tcp /proc/net/tcp6"
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, "sh", "-c", read], capture_output=True, text=True, check=True
    )
    return [line for line in done.stdout.splitlines() if len(line.split()) > 3 and line.split()[3] == "0A"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("killed", [False, True], ids=["one relay", "a relay is killed"])
def test_five_peers_that_nobody_can_dial(tmp_path: Path, networks: dict[str, str], killed: bool) -> None:
    expected = prepare(tmp_path, rounds=60 if killed else 5)
    relays = RELAYS if killed else RELAYS[:1]
    with ExitStack() as stack:

        def start(name: str, log: str, *words: str) -> Running:
            inside = running(*words, cwd=tmp_path, log=tmp_path / f"{log}.log", inside=networks[name])
            return stack.enter_context(inside)

        clock = start("hub", "clock", "coordinator", "FEDERATION.toml")
        options = ("--certs", "certs/peers/relay", "--federation", "FEDERATION.toml", "--json")
        carriers = [start("hub", at, "relay", *options, "--listen", at) for at in relays]
        words = [word for at in relays for word in ("--relay", at)]
        peers = [
            start(
                name, name, "join", "FEDERATION.toml", "--peer", name, "--out", f"run-{name}", "--reproducible", *words
            )
            for name in NAMES
        ]
        until(lambda: (tmp_path / "run-amber" / "metrics.jsonl").exists())
        assert [sockets_that_listen(networks[name]) for name in NAMES] == [[]] * 5
        if killed:
            until(lambda: len((tmp_path / "run-amber" / "metrics.jsonl").read_text().splitlines()) >= 5)
            carriers[0].process.send_signal(signal.SIGKILL)
        for peer in peers:
            peer.wait(seconds=300)
        clock.wait()
        carriers[-1].process.send_signal(signal.SIGTERM)
        said = [json.loads(line) for line in carriers[-1].wait().splitlines()]
    stays = [json.loads((tmp_path / f"run-{name}" / "summary.json").read_text()) for name in NAMES]
    assert {stay["ended"] for stay in stays} == {"finished"}
    assert {stay["model_digest"] for stay in stays} == {expected}
    verdicts = [json.loads(line) for line in (tmp_path / "run-cedar" / "verdicts.jsonl").read_text().splitlines()]
    assert all(sorted(line["plan"]["assignment"]) == [0, 1, 2, 3, 4] for line in verdicts)
    assert said[0]["event"] == "listening"
    assert {line["peer"] for line in said if line["event"] == "waits"} == set(NAMES)
    assert said[-1]["event"] == "ended"
    assert said[-1]["carried"] > 0
