"""Prometheus metrics: what is served is what happened."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from eris.coordinate.gauges import CoordinatorGauges
from eris.peer.gauges import PeerGauges
from tests.peer.town import settings, town


def scraped(port: int) -> dict[str, float]:
    """Return the values served at a port, by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^(eris_\S+) (\S+)$", text, re.MULTILINE)}


def test_a_peer_and_a_coordinator_serve_what_happened(tmp_path: Path) -> None:
    gauges = PeerGauges("town", "amber", 0)
    with town(tmp_path, settings("members=3", "rounds=3")) as place:
        clock = CoordinatorGauges(place.coordinator, 0)
        assert scraped(clock.port)['eris_coordinator_peers{federation="town"}'] == 0
        for name in place.names:
            listeners = [gauges] if name == "amber" else []
            place.start(name, place.session(name, listeners=listeners).run)
        place.wait()
        coordinator = scraped(clock.port)
        clock.close()
    assert coordinator['eris_coordinator_rounds{federation="town"}'] == 3
    assert coordinator['eris_coordinator_received_bytes{federation="town"}'] > 0
    peer = scraped(gauges.port)
    labels = '{federation="town",peer="amber"}'
    assert peer[f"eris_rounds{labels}"] == 3
    assert peer[f"eris_sent_bytes_total{labels}"] > 3 * 100
    assert peer[f"eris_round_seconds_count{labels}"] == 3
    assert abs(peer[f"eris_largest_share{labels}"] - 1 / 3) < 0.02
    gauges.close()
