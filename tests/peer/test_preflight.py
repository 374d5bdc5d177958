"""Each thing that can stand between a peer and its federation is found and named."""

from __future__ import annotations

import shutil
import socket
from collections import namedtuple
from pathlib import Path

import pytest

from eris.peer import preflight
from eris.peer.federation_file import FederationFile
from eris.peer.node_settings import NodeSettings
from eris.peer.preflight import CheckResult, examine_coordinator, examine_disk, examine_listening, examine_name
from eris.transport.authority import Authority
from eris.transport.credentials import Credentials
from eris.transport.relay import RelayServer
from tests.peer.town import Town, settings, town

THREE = settings("members=3")


def wrong(findings: object) -> list[str]:
    return [finding.what for finding in findings if not finding.well]  # type: ignore[attr-defined]


@pytest.fixture
def place(tmp_path: Path):  # type: ignore[no-untyped-def]
    with town(tmp_path / "town", THREE) as place:
        yield place


def credentials(place: Town, name: str = "amber") -> Credentials:
    return Credentials(place.credentials[name])


def elsewhere(place: Town, coordinator: str) -> FederationFile:
    return FederationFile({"name": "town", "coordinator": coordinator, "peers": place.names}, THREE)


def test_nothing_is_wrong(place: Town, tmp_path: Path) -> None:
    own, federation = credentials(place), place.federation()
    steps = [
        *examine_name(federation, own, "amber"),
        *examine_coordinator(federation, own),
        *examine_listening(federation, own, NodeSettings("amber", listen=("127.0.0.1", 0))),
        *examine_listening(federation, own, NodeSettings("amber", listen=None)),
        *examine_disk(tmp_path),
    ]
    assert wrong(steps) == []
    names = "name certificate address port CA clock version run coordinator listening listening disk"
    assert [finding.what for finding in steps] == names.split()


def test_a_name_nobody_listed_and_a_certificate_that_is_over(place: Town, tmp_path: Path) -> None:
    assert wrong(examine_name(place.federation(), credentials(place), "zinnia")) == ["name", "certificate"]
    place.authority.revoke("amber")
    assert wrong(examine_name(place.federation(), credentials(place), "amber")) == ["certificate"]


def test_address_and_port(place: Town) -> None:
    assert wrong(examine_coordinator(elsewhere(place, "no-such-host.invalid:1"), credentials(place))) == ["address"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = list(examine_coordinator(elsewhere(place, f"127.0.0.1:{port}"), credentials(place)))
    assert wrong(found) == ["port"]
    assert f"at 127.0.0.1:{port}: check that the coordinator runs there" in found[-1].text
    assert "eris doctor" not in found[-1].text  # which is what they just ran


def test_another_ca(place: Town, tmp_path: Path) -> None:
    stranger = Credentials(Authority.create(tmp_path / "other", "town").issue("amber"))
    assert wrong(examine_coordinator(place.federation(), stranger)) == ["CA"]


def test_another_run(place: Town) -> None:
    other = place.federation(config=settings("members=3", "seed=7"))
    found = list(examine_coordinator(other, credentials(place)))
    assert wrong(found) == ["run"]
    assert any("use the same FEDERATION.toml" in finding.text for finding in found)


def test_a_clock_that_is_ahead_and_a_version_that_is_older() -> None:
    assert preflight._clock(3.0).well
    assert preflight._clock(-3600.0).text.startswith("the coordinator's clock is 3600.0 s behind ours")
    assert not preflight._clock(-3600.0).well
    assert not preflight._version("0.0.1").well


def test_a_port_that_is_taken_or_cannot_be_reached(place: Town) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settled = NodeSettings("amber", listen=taken.getsockname()[:2])
        busy = list(examine_listening(place.federation(), credentials(place), settled))
    assert wrong(busy) == ["listening"]
    assert "cannot listen" in busy[0].text
    away = NodeSettings("amber", listen=("127.0.0.1", 0), advertise="127.0.0.7")
    hidden = list(examine_listening(place.federation(), credentials(place), away))
    assert wrong(hidden) == ["listening"]
    assert "--advertise" in hidden[0].text


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**12, 10**12, 10**9))
    assert wrong(examine_disk(tmp_path / "not" / "there" / "yet")) == []
    assert wrong(examine_disk(tmp_path, needed=10**10)) == ["disk"]


def test_a_finding_carries_what_to_do() -> None:
    assert CheckResult.of("port", preflight.LinkError("closed", fix="open it")) == CheckResult(
        "port", False, "closed: open it"
    )


def test_a_relay_that_serves_one_that_does_not_know_us_and_one_that_is_not_there(place: Town) -> None:
    own, federation = credentials(place), place.federation()
    keeper = Credentials(place.authority.issue("relay"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = free.getsockname()[:2]
    with (
        RelayServer(keeper, ("127.0.0.1", 0), listed=["amber", "coordinator"]) as good,
        RelayServer(keeper, ("127.0.0.1", 0), listed=["coordinator"]) as strict,
    ):
        waits = NodeSettings("amber", listen=None, relays=(good.address, strict.address, nobody))
        found = list(examine_listening(federation, own, waits))
    assert [(finding.what, finding.well) for finding in found] == [("relay", True), ("relay", False), ("relay", False)]
    assert f"the coordinator reaches us by relay 127.0.0.1:{good.address[1]}" in found[0].text
    assert "does not carry this peer" in found[1].text
    assert "cannot connect" in found[2].text
