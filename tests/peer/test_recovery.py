"""How a peer whose run went back behind all it kept begins anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from eris.protocol.verdict import GENESIS
from tests.peer.town import settings, town


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
    assert any(value.any() for value in peer.memory.values())
    peer._recovery._chronicle.since = lambda round: []  # type: ignore[method-assign]
    peer._recovery.catch_up()
    assert (peer.member.round, peer.member.chain) == (0, GENESIS)
    assert peer.member.replica.digest() == fresh.member.replica.digest()
    for now, then in ((peer.member.private, fresh.member.private), (peer.memory, fresh.memory)):
        assert now.keys() == then.keys()
        assert all(np.array_equal(now[name], then[name]) for name in then)
