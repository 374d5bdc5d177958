"""A run goes on while all certificates, and then the CA itself, are replaced under it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eris.transport.authority import Authority
from eris.transport.credentials import Credentials
from tests.peer.town import after_rounds, settings, simulated, town

THREE = settings("members=3", "aggregators=3", "rounds=8")


def test_certificates_and_ca_are_replaced_in_the_middle(tmp_path: Path) -> None:
    lost: list[Any] = []
    with town(tmp_path / "town", THREE) as place:
        before = {name: Credentials(place.credentials[name]).identity for name in place.names}
        expiries: list[float] = []

        def replace(event: Any) -> None:
            lost.extend(event.verdict.lost_shards)
            authority = Authority(place.authority.folder)
            match event.plan.round:
                case 1:
                    authority.rotate()
                case 3:
                    for name in authority.names():
                        authority.renew(name, days=20)
                case 5:
                    authority.retire()
                case 6:
                    overview = place.coordinator.overview()
                    expiries.extend([overview.expires, *(peer.expires for peer in overview.peers)])

        watched = {"listeners": after_rounds(replace)}
        nodes = {name: place.node(name, **(watched if name == "amber" else {})) for name in place.names}
        for name, node in nodes.items():
            place.start(name, node.run)
        place.wait(seconds=120.0)
        after = {name: Credentials(place.credentials[name]).identity for name in place.names}
    assert {node.model_digest() for node in nodes.values()} == {simulated(THREE, tmp_path / "run")}
    assert lost == []
    assert all(after[name].fingerprint == before[name].fingerprint for name in before)
    assert all(after[name].serial != before[name].serial for name in before)
    assert len(expiries) == 4
    assert max(expiries) < min(peer.not_after for peer in before.values())  # of the renewed ones, which hold for less
