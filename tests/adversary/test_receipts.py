"""An aggregator of masked shards that acknowledges a contribution and leaves it out has signed two things that clash.

It would like to: it chooses whom it leaves out, and sums that differ by one member show that member. With receipts that
nobody signed, one word would stand against another.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from eris.cli import certs
from eris.errors import Reason, Refused
from eris.events import VerdictWritten
from eris.peer.node import Node
from eris.protocol.false_manifest import FalseManifest, lie_of
from eris.protocol.messages import Published, Receipt
from tests.adversary.test_masking import Round
from tests.adversary.test_means import lost, play
from tests.peer.town import settings, town
from tests.protocol.world import sign_as, verify

VICTIM, SHARD = 5, 2


class Scene(Round):
    """A masked round, played to the end: manifests, and the receipts of every contribution."""

    def __init__(self) -> None:
        super().__init__()
        federation = self.federation
        federation.coordinator._verify = verify
        for member in federation.members.values():
            member.held.verify = verify
        self.receipts = {(r.member, r.shard): r for r in federation.upload(self.plan, self.uploads)}
        outcomes = [outcome for outcome in federation.cut(self.plan) if isinstance(outcome, Published)]
        self.manifests = {outcome.manifest.shard: outcome.manifest for outcome in outcomes}

    def without(self, victim: int, **changes: Any):
        """What the shard's aggregator signs when it leaves somebody out."""
        honest = self.manifests[SHARD]
        left = tuple(member for member in honest.contributors if member != victim)
        said = replace(honest, contributors=left, c=float(self.plan.scale(left)), signature="", **changes)
        return replace(said, signature=sign_as(said.aggregator)(said.signed_bytes))


def test_every_receipt_of_a_masked_contribution_is_signed_and_honest_manifests_keep_to_it() -> None:
    scene = Scene()
    for (member, shard), receipt in scene.receipts.items():
        assert verify(receipt.aggregator, receipt.signed_bytes, receipt.signature)
        assert not lie_of(scene.plan, scene.manifests[shard], receipt)
        assert scene.federation.members[member].broken(scene.manifests[shard], receipt) is None


def test_a_receipt_and_a_manifest_without_its_member_prove_the_lie() -> None:
    scene = Scene()
    receipt, manifest = scene.receipts[VICTIM, SHARD], scene.without(VICTIM)
    assert not lie_of(scene.plan, manifest)  # alone it could be honest: a link may have broken
    proof = scene.federation.members[VICTIM].broken(manifest, receipt)
    assert proof == FalseManifest(manifest, receipt)
    coordinator = scene.federation.coordinator
    assert coordinator.accused(proof) == proof
    assert set(coordinator.excluded) == {manifest.aggregator}
    assert scene.federation.journal[-1] == proof
    assert [e.lost for e in scene.federation.decide().shards][SHARD] == Reason.FALSE_MANIFEST.value


@pytest.mark.parametrize(
    "forge",
    [
        lambda scene, receipt: replace(receipt, signature=""),
        lambda scene, receipt: replace(receipt, signature=sign_as(VICTIM)(receipt.signed_bytes)),
        lambda scene, receipt: scene.receipts[VICTIM, SHARD + 1],
        lambda scene, receipt: scene.receipts[VICTIM - 1, SHARD],
        lambda scene, receipt: _signed(replace(receipt, plan="00" * 32), receipt.aggregator),
    ],
    ids=["unsigned", "signed by another", "of another shard", "of somebody who is in", "of another round"],
)
def test_nobody_is_framed_by_any_other_receipt(forge: Any) -> None:
    scene = Scene()
    receipt, manifest = forge(scene, scene.receipts[VICTIM, SHARD]), scene.without(VICTIM)
    assert scene.federation.members[VICTIM].broken(manifest, receipt) is None
    with pytest.raises(Refused):
        scene.federation.coordinator.accused(FalseManifest(manifest, receipt))
    assert not scene.federation.coordinator.excluded


def _signed(receipt: Receipt, peer: int) -> Receipt:
    return replace(receipt, signature=sign_as(peer)(replace(receipt, signature="").signed_bytes))


def test_detected_over_the_network_an_aggregator_that_leaves_out_what_it_acknowledged(tmp_path: Path) -> None:
    """Detected: birch is excluded, and every member holds a proof that needs nothing but the CA to be checked."""
    config = settings("members=5", "aggregators=4", "rounds=3", "method=eris+masked")
    cheat, victim = 1, 4

    def spoil(nodes: dict[str, Node]) -> None:
        role = nodes["birch"].links.aggregator._aggregator
        honest = role.filled

        def filled(header: Any, start: int, stop: int) -> Receipt | None:
            if header.member != victim:
                return honest(header, start, stop)
            role._shards[header.shard].staging.forget(victim)
            return role._receipt(header)

        role.filled = filled  # type: ignore[method-assign]

    with town(tmp_path, config, round=8.0, max_share=1.0) as place:
        _, verdicts = play(place, spoil)
        assert lost(verdicts) == {0: {cheat: Reason.FALSE_MANIFEST.value}}
        assert all(isinstance(event, VerdictWritten) for event in verdicts)
        assert all(cheat not in event.plan.assignment for event in verdicts[1:])
        for name in set(place.names) - {"birch"}:
            proof = tmp_path / name / f"aggregator-{cheat}-proof.json"
            checked = CliRunner().invoke(certs.certs, ["check-proof", str(proof), str(tmp_path / "ca")])
            assert checked.exit_code == 0, checked.output
            assert "had acknowledged" in checked.output
            proof.write_text(proof.read_text().replace(f'"member": {victim}', '"member": 3'))
            assert CliRunner().invoke(certs.certs, ["check-proof", str(proof), str(tmp_path / "ca")]).exit_code != 0
