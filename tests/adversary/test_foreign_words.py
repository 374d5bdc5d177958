"""Words of other parties on our terminal, in our logs and in our paths."""

from __future__ import annotations

import io
import logging
import socket
import time
from pathlib import Path

import pytest
from rich.console import Console

from eris.cli.networking.logs import start_logging
from eris.cli.status import _ask, _show
from eris.peer.gauges import PeerGauges
from eris.printable import printable_words
from eris.transport.control_client import ControlClient
from eris.transport.credentials import Credentials
from tests.peer.town import settings, town

ESCAPES = "\x1b]0;pwned\x07\x1b[2Jacme\u202e\nerror: all is lost"


def obeyed(text: str) -> set[str]:
    return {character for character in text if character in "\x1b\x07\u202e\x9b\r"}


def test_prevented_an_organisation_that_is_terminal_escapes(tmp_path: Path) -> None:
    """Prevented: joined over TLS under such a name, asked for over TLS, printed without what a terminal obeys."""
    with town(tmp_path, settings("members=3", "aggregators=3")) as place:
        node = place.node("amber", organisation=ESCAPES)
        place.start("amber", node.run)
        with ControlClient(Credentials(place.credentials["birch"]), place.coordinator.address) as client:
            until = time.monotonic() + 30
            while not any(peer.organisation for peer in client.status().peers):
                assert time.monotonic() < until
                time.sleep(0.1)
            answer = _ask(client, 0.0)
        assert obeyed(str(answer["peers"][0]["organisation"]))
        printed = io.StringIO()
        _show(printable_words(answer), Console(file=printed, width=200))
        assert "acme" in printed.getvalue()
        assert not obeyed(printed.getvalue())
        assert not any(line.startswith("error:") for line in printed.getvalue().splitlines())
        node.stop("enough")
        place.wait()


def test_prevented_lines_of_a_log_that_somebody_else_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("eris")
    before = log.handlers[:], log.level, log.propagate
    try:
        start_logging(as_json=False, quiet=False)
        log.warning("%s cannot be dialled", ESCAPES)
    finally:
        log.handlers[:], log.propagate = before[0], before[2]
        log.setLevel(before[1])
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert not obeyed(said)


def test_prevented_metrics_that_everybody_on_the_network_reads() -> None:
    """Prevented unless told: a port alone is one of this machine."""
    served = PeerGauges("town", "amber", 0)
    try:
        assert served._server.server_address[0] == "127.0.0.1"
        with socket.create_connection(("127.0.0.1", served.port), timeout=5):
            pass
    finally:
        served.close()
