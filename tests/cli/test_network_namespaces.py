"""Three members on networks of their own, one of them behind a wall, with certificates by request."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.processes import Running, eris, running

NAMES = ("amber", "birch", "cedar")
FILE = """
method = "eris"
rounds = 3
aggregators = 2

[data]
name = "synthetic-quadratic"

[federation]
name = "grove"
coordinator = "10.77.0.1:7443"
peers = ["amber", "birch", "cedar"]
"""
PORT = "7444"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


@pytest.fixture
def networks() -> Iterator[dict[str, str]]:
    """A namespace for each member, joined by a bridge in one more, where the coordinator is; cedar behind a wall."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root, and ip of iproute2")
    names = {name: f"eris-{os.getpid()}-{name}" for name in ("hub", *NAMES)}
    with ExitStack() as stack:
        for namespace in names.values():
            stack.callback(subprocess.run, ["ip", "netns", "delete", namespace], capture_output=True, check=False)
            ip("netns", "add", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
        ip("-n", names["hub"], "link", "add", "bridge", "type", "bridge")
        ip("-n", names["hub"], "address", "add", "10.77.0.1/24", "dev", "bridge")
        ip("-n", names["hub"], "link", "set", "bridge", "up")
        for number, name in enumerate(NAMES, start=2):
            ip("-n", names["hub"], "link", "add", name, "type", "veth", "peer", "lan", "netns", names[name])
            ip("-n", names["hub"], "link", "set", name, "master", "bridge", "up")
            ip("-n", names[name], "address", "add", f"10.77.0.{number}/24", "dev", "lan")
            ip("-n", names[name], "link", "set", "lan", "up")
        # Whoever dials the listening port gets no answer, as behind a firewall that drops what comes in.
        ip("-n", names["cedar"], "rule", "add", "ipproto", "tcp", "sport", PORT, "blackhole")
        yield names


@pytest.mark.slow
def test_members_on_networks_of_their_own(tmp_path: Path, networks: dict[str, str]) -> None:
    (tmp_path / "FEDERATION.toml").write_text(FILE)
    eris("certs", "init", "certs", "--federation", "grove", cwd=tmp_path)
    eris("certs", "issue", "certs", "coordinator", cwd=tmp_path)
    for name in NAMES:
        eris("certs", "request", name, "--out", name, cwd=tmp_path)
        eris("certs", "sign", "certs", f"{name}/{name}.csr", cwd=tmp_path)
        for file in ("ca.pem", "certificate.pem", "revoked.pem"):
            shutil.copy(tmp_path / "certs" / "peers" / name / file, tmp_path / name)
        assert not (tmp_path / "certs" / "peers" / name / "key.pem").exists()
    with ExitStack() as stack:

        def start(name: str, *words: str) -> Running:
            inside = running(*words, cwd=tmp_path, log=tmp_path / f"{name}.log", inside=networks[name])
            return stack.enter_context(inside)

        clock = start("hub", "coordinator", "FEDERATION.toml")
        options = ("FEDERATION.toml", "--listen", f":{PORT}")
        peers = [start(name, "join", *options, "--peer", name, "--out", f"run-{name}") for name in NAMES]
        for peer in peers:
            peer.wait(seconds=120)
        assert "cedar cannot be dialled at 10.77.0.4:7444: it is given no shard" in clock.wait()
    stays = [json.loads((tmp_path / f"run-{name}" / "summary.json").read_text()) for name in NAMES]
    assert {stay["ended"] for stay in stays} == {"finished"}
    assert len({stay["model_digest"] for stay in stays}) == 1
    verdicts = (tmp_path / "run-cedar" / "verdicts.jsonl").read_text().splitlines()
    assert [json.loads(line)["plan"]["assignment"] for line in verdicts] == [[0, 1]] * 3
    assert stays[2]["links"]["accepted"] == []
    assert {link["peer"] for link in stays[2]["links"]["dialled"]} == {"amber", "birch"}
    assert all(len(entry["contributors"]) == 3 for line in verdicts for entry in json.loads(line)["verdict"]["shards"])
