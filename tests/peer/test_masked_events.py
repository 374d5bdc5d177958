"""What a peer tells of a masked round: its own values as they were, and nothing of others'."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np

from eris.events import Event, Received, RoundEnded, RoundStarted, Sent
from eris.protocol.sums import SUMS, Start, Sums
from tests.peer.town import settings, town
from tests.simulate.setting import play


def test_a_peer_hears_its_own_values_without_pads_and_nothing_of_others(tmp_path: Path) -> None:
    config = settings("members=4", "rounds=2", "method=eris+dsc+masked")
    heard: dict[str, list[Event]] = {}
    with town(tmp_path, config) as place:
        for name in place.names:
            events = heard[name] = []
            node = place.node(name, listeners=[events.append], folder=tmp_path / "own" / name)
            place.start(name, node.run)
        place.wait()
    simulated = play(config, tmp_path / "run")
    wanted = {(event.round, event.member): event for event in simulated.of(Sent)}
    for events in heard.values():
        sent = [event for event in events if isinstance(event, Sent)]
        assert len(sent) == 2
        for event in sent:
            assert np.array_equal(event.values, wanted[event.round, event.member].values)
            assert event.bytes == wanted[event.round, event.member].bytes
            assert event.steps == 1.0
        assert not [event for event in events if isinstance(event, Received)]
        assert {event.metrics["largest_share"] for event in events if isinstance(event, RoundEnded)} == {0.0}
        assert {len(event.unmaskers) for event in events if isinstance(event, RoundStarted)} == {4}
    for name in heard:
        path = tmp_path / "own" / name / SUMS
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert len([line for line in lines if "plan" in line]) == 2  # each unmasked one shard in each round
        known = Sums(path)  # and all know, in another process too, what the others unmasked
        for round, shard in product(range(2), range(4)):
            start = Start(round, f"after a run that went back, {round}")
            assert known.allows(start, shard, (0, 1, 2, 3), 3)
            assert not known.allows(start, shard, (0, 1, 2), 3)
