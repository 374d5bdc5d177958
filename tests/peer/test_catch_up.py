"""How a peer whose run went back behind all it kept begins anew."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.protocol.verdict import GENESIS
from eris.transport.authority import Authority
from eris.transport.credentials import Credentials
from eris.transport.link import LinkLimits
from eris.transport.link_listener import LinkListener
from tests.peer.town import settings, simulated, town


def test_who_begins_anew_remembers_nothing(tmp_path: Path) -> None:
    kept = ["data.name=synthetic-clouds", "local.keep_state=true", "local.momentum=0.9"]
    config = settings("members=3", "rounds=2", *kept, method="priprune-pseudo")
    with town(tmp_path, config) as place:
        nodes = [place.node(name) for name in place.names]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
        fresh = place.node("birch")
    peer = nodes[1]
    assert any(value.any() for value in peer.member.private.values())
    assert any(value.any() for value in peer.training.memory.values())
    peer._catch_up._history.since = lambda round: []  # type: ignore[method-assign]
    peer._catch_up.catch_up()
    assert (peer.member.round, peer.member.chain) == (0, GENESIS)
    assert peer.member.replica.digest() == fresh.member.replica.digest()
    for now, then in ((peer.member.private, fresh.member.private), (peer.training.memory, fresh.training.memory)):
        assert now.keys() == then.keys()
        assert all(np.array_equal(now[name], then[name]) for name in then)


def test_a_stranger_at_the_coordinators_address_ends_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "eris.peer.news")
    config = settings("members=3", "rounds=5")
    with town(tmp_path / "town", config) as place:
        nodes = {name: place.node(name) for name in place.names}
        stranger = Credentials(Authority.create(tmp_path / "elsewhere", "town").issue("coordinator"))

        def let_somebody_else_in(point: str, facts: dict[str, Any]) -> None:
            if (point, facts.get("round")) == ("stepped", 1):
                address = place.coordinator.address
                place.coordinator.close()
                with LinkListener(stranger, address, limits=LinkLimits(16, 1 << 20)):
                    time.sleep(2.0)  # in which the others ask for news
                place.coordinator = place.open_coordinator()

        nodes["amber"].fault_points.listener = let_somebody_else_in
        for name, node in nodes.items():
            place.start(name, node.run)
        place.wait()
        assert {node.model_digest() for node in nodes.values()} == {simulated(config, tmp_path / "run")}
    assert any("unknown-ca" in record.getMessage() for record in caplog.records if "no news" in record.getMessage())
