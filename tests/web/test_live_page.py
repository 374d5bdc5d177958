"""The live page in a real browser: it follows the run, obeys keys, stands hundreds of peers, and leaks nothing."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eris.errors import ConfigError
from eris.events import RoleBytes, RoundEnded, RoundTraffic, RunCourseChanged, RunEnded, RunStarted
from eris.web.live_facts import LiveFacts
from eris.web.live_page import LivePage, page
from tests.web.browser import MISSING, WHY_NOT, browser

needs_browser = pytest.mark.skipif(MISSING, reason=WHY_NOT)


def a_round(number: int, loss: float = 1.0) -> RoundEnded:
    traffic = RoundTraffic(RoleBytes(2_000, 1_000), RoleBytes(500, 700), 2_500, seconds=0.0, round_seconds=0.5)
    metrics = {"train_loss": loss, "accuracy": 1 - loss / 10, "loss": loss * 1.1, "largest_share": 0.25}
    return RoundEnded(
        number, metrics, traffic, {"train": 0.3, "exchange": 0.15, "verdict": 0.04, "step": 0.01, "round": 0.5}
    )


def some_facts(peers: int = 3) -> LiveFacts:
    names = [f"site-{number:03}" for number in range(peers)]
    facts = LiveFacts("cardio", names, kind="peer", floor={"max_share": 0.5})
    facts(RunStarted("r1", "eris", rounds=40, first_round=0, members=peers, aggregators=3, n=61_706, chain="clip"))
    facts.note_peers(
        {name: {"here": True, "aggregates": True, "organisation": f"org {i % 7}"} for i, name in enumerate(names)}
    )
    return facts


def fetch(address: str, path: str = "", method: str = "GET") -> tuple[int, str, dict[str, str]]:
    request = urllib.request.Request(address + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def said(address: str, events: int) -> list[tuple[str, dict[str, object]]]:
    """Return the first events of the stream."""
    parts = urlsplit(address)
    line = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    line.request("GET", parts.path + "events")
    answer, found, kind = line.getresponse(), [], ""
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    while len(found) < events:
        text = answer.readline().decode()
        assert text, "the stream ended"
        if text.startswith("event: "):
            kind = text[7:].strip()
        elif text.startswith("data: "):
            found.append((kind, json.loads(text[6:])))
    line.close()
    return found


def test_only_whoever_knows_the_token_sees_anything() -> None:
    with LivePage(some_facts()) as served:
        assert served.address.startswith(f"http://127.0.0.1:{served.port}/")
        assert fetch(served.address)[0] == 200
        root = f"http://127.0.0.1:{served.port}/"
        for wrong in ("", "events", "x/", "x/events", served.address.split("/")[3][:-1] + "/"):
            code, text, _ = fetch(root, wrong)
            assert code == 404, wrong
            assert "cardio" not in text


def test_it_can_only_be_read() -> None:
    with LivePage(some_facts()) as served:
        assert {fetch(served.address, method=method)[0] for method in ("POST", "PUT", "DELETE", "PATCH")} == {405}


def test_the_page_is_whole_and_may_fetch_nothing_else() -> None:
    with LivePage(some_facts()) as served:
        _, text, headers = fetch(served.address)
    assert not re.findall(r'(?:src|href)="(?!#)', text)  # nothing is loaded from anywhere
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe-inline" not in headers["content-security-policy"]
    assert (headers["referrer-policy"], headers["cache-control"]) == ("no-referrer", "no-store")
    assert text == page()[0]


def test_the_stream_tells_everything_once_and_then_what_changed() -> None:
    facts = some_facts()
    facts(a_round(0))
    with LivePage(facts) as served:
        [(kind, whole)] = said(served.address, 1)
        assert (kind, len(whole["rounds"]), len(whole["peers"])) == ("whole", 1, 3)
    later = some_facts()
    with LivePage(later, refresh=lambda: later.note(tick=time.monotonic())) as served:
        first, (kind, change) = said(served.address, 2)
        assert (first[0], kind, set(change)) == ("whole", "change", {"run"})
        assert set(change["run"]) == {"tick"}  # nothing that was said already


def test_the_end_is_told_before_the_line_is_cut() -> None:
    facts = some_facts()
    served = LivePage(facts)
    parts = urlsplit(served.address)
    line = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    line.request("GET", parts.path + "events")
    answer = line.getresponse()
    assert answer.readline() == b"event: whole\n"
    facts(RunEnded(40, True, "ab", 3.0, "finished"))
    served.close()
    rest = answer.read().decode()
    line.close()
    assert '"state":"finished"' in rest
    assert rest.rstrip().endswith("event: end\ndata: {}")


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with LivePage(some_facts()) as served, pytest.raises(ConfigError, match="choose another --web-at"):
        LivePage(some_facts(), port=served.port)


@needs_browser
def test_a_browser_follows_the_run(tmp_path: Path) -> None:
    facts = some_facts()
    with LivePage(facts) as served, browser(tmp_path) as window:
        window.open(served.address)
        window.wait(lambda: "live" in window.text("#line-text"), "the stream stands")
        for number in range(12):
            facts(a_round(number, loss=2.0 / (number + 1)))
        facts.say("warning", "birch is gone: <b>the round</b> goes on without it")
        window.wait(lambda: "Round 13 of 40" in window.text("#headline"), "rounds are counted")
        assert window.text("#state") == "training"
        window.wait(lambda: "98.3 %" in window.text("#tiles"), "accuracy")
        assert "25 %" in window.text("#tiles")
        assert "the floor allows 50 %" in window.text("#tiles")
        assert "<b>the round</b>" in window.text("#lines")  # a word from elsewhere stays a word
        assert window.ask("return document.querySelectorAll('#accuracy path, #loss path, #bytes path').length") == 5
        assert window.ask("return document.querySelectorAll('#seconds rect').length") == 48
        assert "exchange 150 ms" in window.text("#seconds")
        facts(RunCourseChanged("degraded", "the last 3 rounds lost shards (late)"))
        window.wait(lambda: "lost shards (late)" in window.text("#why"), "why it is degraded")
        assert window.complaints() == []


@needs_browser
def test_hundreds_of_peers_keys_and_the_dark(tmp_path: Path) -> None:
    facts = some_facts(peers=500)
    facts.note_peers({"site-123": {"here": False}, "site-200": {"late": 3}})
    with LivePage(facts) as served, browser(tmp_path) as window:
        window.open(served.address)
        window.wait(lambda: "500 of 500 shown, 1 not here" in window.text("#peers-note"), "all peers")
        assert window.ask("return document.querySelectorAll('#matrix i').length") == 500
        window.press("/")
        window.press("gone")
        window.wait(lambda: "1 of 500 shown" in window.text("#peers-note"), "the filter")
        assert window.text("#peer-rows").startswith("site-123")
        window.press("\ue00c")  # Escape
        window.wait(lambda: "500 of 500" in window.text("#peers-note"), "the filter is cleared")
        window.press("sss")  # by how often it was late, upwards; Enter on the head turns the order
        assert window.ask("return document.querySelectorAll('th[aria-sort=ascending]')[0].innerText").startswith("Late")
        before = window.ask("return getComputedStyle(document.body).backgroundColor")
        window.press("d")
        assert window.ask("return getComputedStyle(document.body).backgroundColor") != before
        window.press("?")
        assert window.ask("return document.getElementById('keys').open") is True
        window.press("\ue00c")
        window.press("p")
        facts.say("info", "said while nobody looked")
        drawn = window.ask("return document.body.dataset.drawn")
        window.wait(lambda: window.ask("return known.lines.length") == 1, "it is heard")
        assert window.ask("return document.body.dataset.drawn") == drawn
        window.press("p")
        window.wait(lambda: "while nobody looked" in window.text("#lines"), "and shown afterwards")
        assert window.complaints() == []


@needs_browser
def test_a_page_outlives_its_process_and_comes_back(tmp_path: Path) -> None:
    facts = some_facts()
    with browser(tmp_path) as window:
        with LivePage(facts) as served:
            window.open(served.address)
            window.wait(lambda: "live" in window.text("#line-text"), "the stream stands")
            facts(RunEnded(40, True, "ab", 3.0, "finished"))
        window.wait(lambda: "has ended" in window.text("#line-text"), "the end is told")
        assert window.text("#state") == "finished"
