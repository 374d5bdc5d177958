"""Who may call the coordinator for what: a certificate of the federation's CA alone opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eris.errors import ConfigError, Reason, Refused
from eris.peer.federation_file import FederationFile
from eris.protocol.journal import STOP_PURPOSE, StopClaim, Stopped
from eris.protocol.messages import Idle
from eris.transport.calls import (
    BookAnswer,
    BookRequest,
    DialAnswer,
    DialRequest,
    RoundsAnswer,
    RoundsRequest,
    StopRequest,
)
from eris.transport.control_client import ControlClient
from eris.transport.credentials import Credentials
from eris.transport.signatures import verify_message
from eris.wire.schema import encode
from tests.peer.town import Town, settings, town

CONFIG = settings("members=3", "aggregators=3", "rounds=100000")
CALLS: dict[str, Callable[[ControlClient], Any]] = {
    "Stop": lambda client: client.stop(),
    "Status": lambda client: client.status(),
    "Next": lambda client: client.news(0.0),
    "Leave": lambda client: client.leave(for_good=True),
    "Report": lambda client: client.report(Idle("00" * 32)),
    "Fetch": lambda client: client.fetch(BookRequest("", 0), BookAnswer),
    "Fetch rounds": lambda client: client.fetch(RoundsRequest(0), RoundsAnswer),
    "Fetch dial": lambda client: client.fetch(DialRequest(("127.0.0.1", 1)), DialAnswer),
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Town]:
    with town(tmp_path, CONFIG, operators=["olive"]) as made:
        yield made


def line(place: Town, name: str) -> ControlClient:
    """Open a line to the coordinator with a good certificate of the federation's CA."""
    folder = place.credentials.get(name) or place.authority.issue(name)
    return ControlClient(Credentials(folder), place.coordinator.address)


@pytest.mark.parametrize("call", CALLS)
def test_prevented_a_certificate_that_is_not_listed_calls_nothing(place: Town, call: str) -> None:
    with line(place, "mallory") as mallory, pytest.raises(Refused, match="mallory may not call") as refusal:
        CALLS[call](mallory)
    assert refusal.value.reason is Reason.NOT_A_MEMBER
    assert not place.coordinator.wait(0)


OWN = {"Fetch", "Fetch rounds", "Fetch dial", "Status", "Stop"}
MAY = {  # the table of docs/threat-model.md, where operators are named
    "amber": set(CALLS) - {"Stop"},
    "olive": {"Status", "Stop"},
    "coordinator": OWN,
    "mallory": set(),
}


def test_who_may_call_what(place: Town) -> None:
    """Every cell: who may not is refused before anything is done; who may is answered, or refused for what it said."""
    for who, calls in MAY.items():
        with line(place, who) as client:
            for call in sorted(CALLS, key=lambda call: call == "Stop"):
                if call == "Stop" and call in calls:
                    continue  # below
                try:
                    CALLS[call](client)
                    allowed = True
                except Refused as refusal:
                    allowed = "may not call" not in str(refusal)
                assert allowed is (call in calls), (who, call)
    assert not place.coordinator.wait(0)


def test_detected_who_ended_the_run_is_on_record_with_its_signature(place: Town) -> None:
    with line(place, "olive") as olive:
        olive.stop()
    assert place.coordinator.wait(5) == "stopped by olive"
    [kept] = [entry for entry in place.coordinator._journal if isinstance(entry, Stopped)]
    signature = bytes.fromhex(kept.signature)
    assert verify_message(kept.certificate, STOP_PURPOSE, encode(kept.claim), signature)
    assert Credentials(place.credentials["amber"]).issued("olive", kept.certificate)


@pytest.mark.parametrize("lie", ["unsigned", "another's", "another epoch"])
def test_prevented_a_stop_that_its_caller_did_not_sign_for_this_run(place: Town, lie: str) -> None:
    with line(place, "olive") as olive:
        claim = StopClaim("", 7 if lie == "another epoch" else 0, "ab" * 32)
        signer = Credentials(place.credentials["amber"]) if lie == "another's" else olive._credentials
        signature = "" if lie == "unsigned" else signer.sign(STOP_PURPOSE, encode(claim)).hex()
        with pytest.raises(Refused) as refusal:
            olive._call("Stop", StopRequest(claim, signature), 5.0)
    assert refusal.value.reason is (Reason.WRONG_EPOCH if lie == "another epoch" else Reason.BAD_SIGNATURE)
    assert not place.coordinator.wait(0)


def test_prevented_a_peer_ends_the_run_where_operators_are_named(place: Town) -> None:
    with line(place, "amber") as amber, pytest.raises(Refused, match="not an operator"):
        amber.stop()
    assert not place.coordinator.wait(0)


def test_an_operator_asks_and_ends_the_run_and_can_do_nothing_else(place: Town) -> None:
    with line(place, "olive") as olive:
        assert olive.status().federation == "town"
        for call in set(CALLS) - {"Stop", "Status"}:
            with pytest.raises(Refused, match="olive may not call"):
                CALLS[call](olive)
        olive.stop()
    assert place.coordinator.wait(5) == "stopped by olive"


def test_prevented_the_coordinator_dials_for_a_peer_elsewhere(place: Town) -> None:
    """Prevented for addresses other than the caller's own: no scan of the coordinator's network."""
    port = place.coordinator.address[1]
    with line(place, "amber") as amber:
        assert amber.fetch(DialRequest(("127.0.0.1", port)), DialAnswer).dialled
        for host in ("10.0.0.1", "127.0.0.2", "169.254.169.254", "no.such.host.invalid"):
            with pytest.raises(Refused, match="dials no other address for it"):
                amber.fetch(DialRequest((host, port)), DialAnswer)


def test_prevented_a_malformed_dial_is_refused_by_name(place: Town) -> None:
    good = encode(DialRequest(("127.0.0.1", 1)))
    fields = msgspec.msgpack.decode(good[2:])
    with line(place, "amber") as amber:
        for address in ([1], 1, "h:1", ["h", "p"], ["h", -1], ["h", 1, 2]):
            fields[1] = address
            with pytest.raises(Refused) as refusal:
                amber._send("/eris.Control/Fetch", good[:2] + msgspec.msgpack.encode(fields), 5.0)
            assert refusal.value.reason is Reason.MALFORMED


@pytest.mark.parametrize("name", ["../../x", "Amber", "a\x1b[2Jb", "coordinator", "a" * 64, "", "a.b"])
@pytest.mark.parametrize("where", ["peers", "operators"])
def test_prevented_names_that_are_paths_or_escapes(name: str, where: str) -> None:
    table: dict[str, Any] = {"name": "town", "coordinator": "127.0.0.1:1", "peers": ["birch", "cedar", "dogwood"]}
    table[where] = [*table.get(where, [])[:2], name]
    with pytest.raises(ConfigError):
        FederationFile(table, settings("members=3", "aggregators=3"))
