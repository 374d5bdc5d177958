"""The commands of a real federation as people type them, each in a process of its own."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from eris.peer.federation_file import load_federation
from eris.transport.authority import Authority
from eris.transport.calls import Overview
from eris.transport.control_client import ControlClient
from eris.transport.credentials import Credentials
from eris.transport.link import LinkError
from tests.cli.processes import ENVIRONMENT, Running, eris, running

FILE = """
method = "eris"
rounds = {rounds}
aggregators = 2

[data]
name = "synthetic-quadratic"

[privacy]
masking = "none"

[federation]
name = "grove"
coordinator = "127.0.0.1:{port}"
peers = ["amber", "birch", "cedar"]
"""
NAMES = ("amber", "birch", "cedar")


@pytest.fixture
def grove(tmp_path: Path) -> Path:
    """A folder with a federation's file and everybody's credentials."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "FEDERATION.toml").write_text(FILE.format(rounds=100_000, port=port))
    authority = Authority.create(tmp_path / "certs", "grove")
    for name in ("coordinator", *NAMES):
        authority.issue(name)
    return tmp_path


def start(stack: ExitStack, grove: Path, verb: str, *words: str, log: str) -> Running:
    return stack.enter_context(running(verb, "FEDERATION.toml", *words, cwd=grove, log=grove / log))


def test_a_federation_from_its_first_join_to_its_end(grove: Path) -> None:
    digest = load_federation(grove / "FEDERATION.toml").digest
    with ExitStack() as stack:
        peers = {
            name: start(stack, grove, "join", "--peer", name, "--accept", digest, *own, log=f"{name}.log")
            for name, own in {"amber": ["--no-listen"], "birch": ["--log-json"], "cedar": ["--json"]}.items()
        }
        clock = start(stack, grove, "coordinator", "--listen", _address(grove), log="clock.log")
        status = _wait_for_round(grove, 3)
        assert [(p.name, p.here, p.aggregates) for p in status.peers] == [
            ("amber", True, False), ("birch", True, True), ("cedar", True, True),
        ]  # fmt: skip
        said = eris("status", cwd=grove)
        assert f"digest {digest}" in said
        assert "federation grove, run eris-" in said
        healthy = eris("doctor", "--peer", "amber", cwd=grove)
        for what in ("name", "certificate", "address", "port", "CA", "clock", "version", "run", "listening", "disk"):
            assert f"ok     {what}" in healthy
        said = eris("stop", "--yes", "--credentials", "certs/peers/birch", cwd=grove)
        assert "the run has ended, stopped by birch" in said
        assert "stopped by birch" in clock.wait(24)
        texts = {name: peer.wait(24) for name, peer in peers.items()}
    assert "stopped by birch after" in texts["amber"]
    events = [json.loads(line) for line in texts["cedar"].splitlines() if line.startswith('{"event"')]
    told = [event["event"] for event in events if event["event"] != "RunCourseChanged"]
    assert told[:6] == [
        "RunStarted", "RoundStarted", "MemberTrained", "VerdictWritten", "RoundEnded", "RoundStarted",
    ]  # fmt: skip
    assert events[-1]["how"] == "stopped by birch"
    folder = grove / "runs" / f"grove-{digest[:8]}"
    digests = {json.loads((folder / name / "summary.json").read_text())["model_digest"] for name in NAMES}
    assert digests == {events[-1]["model_digest"]}
    assert (folder / "amber" / "private-root").stat().st_mode & 0o777 == 0o600
    root = (folder / "amber" / "private-root").read_text()
    assert not any(root in text for text in (*texts.values(), clock.log.read_text()))


def test_one_leaves_for_good_and_the_run_goes_on_without_it(grove: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On machines that would send everything through a proxy: nobody asks it."""
    Authority(grove / "certs").issue("dogwood")
    file, names = grove / "FEDERATION.toml", (*NAMES, "dogwood")
    file.write_text(file.read_text().replace('"cedar"]', '"cedar", "dogwood"]'))
    with ExitStack() as stack:
        proxy = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        monkeypatch.setitem(ENVIRONMENT, "https_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        clock = start(stack, grove, "coordinator", log="clock.log")
        peers = {name: start(stack, grove, "join", "--peer", name, log=f"{name}.log") for name in names}
        assert all(peer.here for peer in _wait_for_round(grove, 2).peers)
        assert "the run continues without" in eris("leave", "--yes", "--peer", "dogwood", cwd=grove)
        assert "left after" in peers.pop("dogwood").wait(0)
        status = _wait_for_round(grove, 0)
        assert [peer.name for peer in status.peers if peer.here] == list(NAMES)
        status = _wait_for_round(grove, status.round + 3)
        assert "the run has ended" in eris("stop", "--yes", "--credentials", "certs/peers/amber", cwd=grove)
        clock.wait(24)
        assert all("stopped by amber" in peer.wait(24) for peer in peers.values())
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody came
            proxy.accept()
    verdicts = next((grove / "runs").glob("*/amber/verdicts.jsonl")).read_text().splitlines()
    rosters = [[entry["name"] for entry in json.loads(line)["plan"]["roster"]] for line in verdicts]
    assert rosters[0] == list(names)
    assert rosters[-3:] == [list(NAMES)] * 3


def test_everything_that_can_be_wrong_has_its_exit_code_and_says_what_it_is(grove: Path) -> None:
    join = ("join", "FEDERATION.toml", "--peer", "amber", "--wait", "0")
    assert "--accept names another" in eris(*join, "--accept", "0" * 64, cwd=grove, code=12)
    assert "cannot connect" in eris(*join, cwd=grove, code=10)
    assert "wrong  port" in eris("doctor", "--peer", "amber", cwd=grove, code=21)
    assert "zinnia is not a peer" in eris("join", "FEDERATION.toml", "--peer", "zinnia", cwd=grove, code=2)
    said = eris("coordinator", "FEDERATION.toml", "--credentials", "certs/peers/amber", cwd=grove, code=2)
    assert "the certificate is amber's, not coordinator's" in said


def test_a_check_says_which_of_all_is_wrong(grove: Path) -> None:
    with ExitStack() as stack:
        start(stack, grove, "coordinator", log="clock.log")
        _wait_for_round(grove, 0)
        join = ("join", "FEDERATION.toml", "--check")
        there = ("--listen", "127.0.0.1:0", "--advertise", "127.0.0.9")
        said = eris(*join, "--peer", "amber", "--max-share", "0.3", *there, cwd=grove, code=21)
        assert "wrong  listening    the coordinator cannot reach 127.0.0.9" in said
        assert "wrong  floor        peer 1 would see 50.0% of the update, but this member allows 30.0%" in said
        assert "ok     task         100 parameters" in said
        other = Authority.create(grove / "other", "grove")
        said = eris(*join, "--peer", "birch", "--credentials", other.issue("birch"), cwd=grove, code=21)
        assert "wrong  CA           we refused the other side (unknown-ca)" in said
        text = (grove / "FEDERATION.toml").read_text()
        (grove / "ALTERED.toml").write_text(text.replace("aggregators = 2", "aggregators = 3"))
        said = eris("join", "ALTERED.toml", "--peer", "cedar", "--check", cwd=grove, code=21)
        assert "wrong  run" in said
        assert "use the same FEDERATION.toml" in said
        refused = eris("join", "ALTERED.toml", "--peer", "cedar", cwd=grove, code=12)
        assert "this peer has another FEDERATION.toml" in refused
        assert "call from cedar.grove" in (grove / "clock.log").read_text()


def _address(grove: Path) -> str:
    host, port = load_federation(grove / "FEDERATION.toml").coordinator
    return f"{host}:{port}"


def _wait_for_round(grove: Path, round: int) -> Overview:
    """Wait until the coordinator is there and the run has got that far."""
    own, until = Credentials(grove / "certs/peers/coordinator"), time.monotonic() + 60
    with ControlClient(own, load_federation(grove / "FEDERATION.toml").coordinator) as client:
        while time.monotonic() < until:
            with suppress(LinkError):
                status = client.status(seconds=5.0)
                if status.round >= round:
                    return status
            client.close()
            time.sleep(0.1)
    raise AssertionError((grove / "clock.log").read_text())
