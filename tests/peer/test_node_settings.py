"""The address that a peer gives to others, by the family that leads to the coordinator."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from eris.peer.node_settings import own_address

V4 = (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", 7443))
V6 = (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("::1", 7443, 0, 0))
NO_WAY = (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("255.255.255.255", 7443))  # refused without a permission

try:
    socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    SIX = True
except OSError:
    SIX = False
needs_six = pytest.mark.skipif(not SIX, reason="this machine has no IPv6")


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let a name have these addresses, in this order."""

    def found(*places: Any) -> None:
        def resolve(host: str, port: int, **_: Any) -> list[Any]:
            assert (host, port) == ("grove.example.org", 7443)
            if not places:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return list(places)

        monkeypatch.setattr(socket, "getaddrinfo", resolve)

    return found


@pytest.mark.parametrize(("host", "own"), [("127.0.0.1", "127.0.0.1"), pytest.param("::1", "::1", marks=needs_six)])
def test_an_address_is_taken_as_it_is(host: str, own: str) -> None:
    assert own_address((host, 7443)) == own


@pytest.mark.parametrize(
    ("places", "own"),
    [
        pytest.param([V6], "::1", marks=needs_six, id="a name with an IPv6 address only"),
        pytest.param([V6, V4], "127.0.0.1", id="IPv4 first: it reaches listeners of either kind"),
        pytest.param([NO_WAY, V6], "::1", marks=needs_six, id="no way there by IPv4"),
        pytest.param([NO_WAY], "127.0.0.1", id="no way at all"),
        pytest.param([], "127.0.0.1", id="nobody is called so"),
    ],
)
def test_a_name_is_looked_up(called: Any, places: list[Any], own: str) -> None:
    called(*places)
    assert own_address(("grove.example.org", 7443)) == own


def test_a_name_that_cannot_be_one() -> None:
    assert own_address(("x" * 64 + ".example.org", 7443)) == "127.0.0.1"
