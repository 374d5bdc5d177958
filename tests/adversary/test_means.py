"""Means and contributions that are too long, and manifests that no honest aggregator signs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from eris.cli import certs
from eris.config import Config
from eris.errors import Reason, Refused
from eris.events import VerdictWritten
from eris.peer.node import Node
from eris.protocol.messages import Manifest, Published, Withheld
from eris.protocol.open_round import OpenRound
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import ShardVerdict
from tests.adversary.parties import publish_instead
from tests.peer.town import Town, noting, settings, town

CHEAT = 1
WARM = 10  # committed means, until the usual length is known


def play(place: Town, spoil: Callable[[dict[str, Node]], None]) -> tuple[dict[str, Node], list[VerdictWritten]]:
    """Let all peers play to the end, some of them spoiled; return them and the verdicts."""
    found: list[VerdictWritten] = []
    nodes = {
        name: place.node(
            name, listeners=noting(found, VerdictWritten) if name == "amber" else (), folder=place.folder / name
        )
        for name in place.names
    }
    spoil(nodes)
    for name, node in nodes.items():
        place.start(name, node.run)
    place.wait()
    return nodes, found


def long_means(node: Node, factor: float, since: int) -> None:
    """Let a peer sign and publish means so many times as long, from a round on."""

    def lengthen(values: np.ndarray[Any, Any]) -> None:
        if node.member.round >= since:
            values *= np.float32(factor)

    publish_instead(node, lengthen)


def lost(verdicts: list[VerdictWritten]) -> dict[int, dict[int, str]]:
    """Return the lost shards of each round that has some, with the reason."""
    reasons = {e.verdict.round: {s.shard: s.lost for s in e.verdict.shards if s.lost} for e in verdicts}
    return {round: shards for round, shards in reasons.items() if shards}


@pytest.mark.parametrize(("off", "kept"), [(False, False), (True, True)])
def test_prevented_a_mean_far_longer_than_the_usual_ones(tmp_path: Path, off: bool, kept: bool) -> None:
    """Prevented once the usual length is known, unless `server.max_step` is off; an alarm, so nobody is excluded."""
    config = settings(
        "members=4", "aggregators=4", f"rounds={WARM + 2}", *(["server.max_step=off"] if off else []),
        "server.optimizer_options.lr=0.5",
    )  # fmt: skip
    with town(tmp_path, config, round=20.0) as place:
        nodes, verdicts = play(place, lambda nodes: long_means(nodes["birch"], 1e4, since=WARM))
        found = lost(verdicts)
        if kept:
            assert not found
        else:
            assert set(found) == {WARM, WARM + 1}
            assert all(set(shards) == {CHEAT} for shards in found.values())
        assert not place.coordinator.coordinator.excluded  # type: ignore[union-attr]
        assert len({node.model_digest() for node in nodes.values()}) == 1


def test_prevented_a_contribution_that_alone_makes_the_mean_too_long(tmp_path: Path) -> None:
    """Prevented by honest aggregators at intake: it costs its sender, and the mean of the others is committed."""
    config = settings("members=5", "aggregators=4", f"rounds={WARM + 2}", "server.optimizer_options.lr=0.5")
    with town(tmp_path, config, round=20.0) as place:

        def spoil(nodes: dict[str, Node]) -> None:
            member = nodes["elder"].member  # aggregates nothing
            honest = member.contribute

            def contribute(result: Any, *scores: Any) -> Any:
                if member.round >= WARM:
                    result = replace(result, update=result.update * np.float32(1e6))
                return honest(result, *scores)

            member.contribute = contribute  # type: ignore[method-assign]

        nodes, verdicts = play(place, spoil)
        for event in verdicts:
            expected = {0, 1, 2, 3} if event.verdict.round >= WARM else {0, 1, 2, 3, 4}
            assert all(set(shard.contributors) == expected for shard in event.verdict.shards)
        assert len({node.model_digest() for node in nodes.values()}) == 1


def test_prevented_a_mean_longer_than_members_clip_to(tmp_path: Path) -> None:
    """Prevented from the first round on: where members clip, no mean of theirs is longer."""
    config = settings("members=4", "aggregators=4", "rounds=2", "privacy.clip=0.001")
    with town(tmp_path, config, round=20.0) as place:
        _, verdicts = play(place, lambda nodes: long_means(nodes["birch"], 10.0, since=0))
        assert set(lost(verdicts)) == {0, 1}
        assert {shard for shards in lost(verdicts).values() for shard in shards} == {CHEAT}


def false_manifests(node: Node, change: Callable[[Manifest, RoundPlan], Manifest]) -> None:
    """Let a peer sign other manifests than it should; what it tells the coordinator is the same."""
    role = node.links.aggregator._aggregator
    honest = role._cut

    def cut(shard: Any, plan: RoundPlan) -> Published | Withheld | None:
        outcome = honest(shard, plan)
        if not isinstance(outcome, Published):
            return outcome
        manifest = replace(change(outcome.manifest, plan), signature="")
        signed = replace(manifest, signature=node._book.sign(manifest.signed_bytes))
        return Published(signed, outcome.values, outcome.buffers)

    role._cut = cut  # type: ignore[method-assign]


LIES: dict[str, Callable[[Manifest, RoundPlan], Manifest]] = {
    "strangers": lambda manifest, plan: replace(manifest, contributors=(*manifest.contributors, 17)),
    "too few": lambda manifest, plan: replace(
        manifest, contributors=manifest.contributors[:1], c=float(plan.scale(manifest.contributors[:1]))
    ),
    "another c": lambda manifest, plan: replace(manifest, c=7.0),
}
FEW = ("members=5", "aggregators=4", "rounds=4", "server.min_contributors=3")


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("quiet", [False, True])
def test_detected_a_manifest_that_no_honest_aggregator_signs(tmp_path: Path, lie: str, quiet: bool) -> None:
    """Detected: its author is excluded, by a proof that every member checks and keeps; the shard moves on.

    Also if it tells the coordinator nothing, and only members see what it signed.
    """
    with town(tmp_path, settings(*FEW), round=20.0, max_share=1.0) as place:

        def spoil(nodes: dict[str, Node]) -> None:
            false_manifests(nodes["birch"], LIES[lie])
            if quiet:
                nodes["birch"].links.aggregator._on_cut = lambda outcome, round: None

        _, verdicts = play(place, spoil)
        assert lost(verdicts) == {0: {CHEAT: Reason.FALSE_MANIFEST.value}}
        assert all(CHEAT not in event.plan.assignment for event in verdicts[1:])
        assert set(place.coordinator.coordinator.excluded) == {CHEAT}  # type: ignore[union-attr]
        for name in set(place.names) - {"birch"}:
            proof = tmp_path / name / f"aggregator-{CHEAT}-proof.json"
            checked = CliRunner().invoke(certs.certs, ["check-proof", str(proof), str(tmp_path / "ca")])
            assert checked.exit_code == 0, checked.output
            assert "birch signed" in checked.output


def test_prevented_an_exclusion_without_a_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevented: members ask for the proof, and end with exit code 12 if there is none."""
    honest = OpenRound._shard

    def framed(self: OpenRound, shard: int, *rest: Any) -> ShardVerdict:
        said = honest(self, shard, *rest)
        return ShardVerdict(shard, CHEAT, lost=Reason.EQUIVOCATION.value) if shard == CHEAT else said

    monkeypatch.setattr(OpenRound, "_shard", framed)
    with town(tmp_path, settings(*FEW), round=20.0) as place:
        nodes = {name: place.node(name) for name in place.names}
        for name, node in nodes.items():
            place.start(name, node.run)
        for name in place.names:
            with pytest.raises(Refused, match="without showing a proof"):
                place.wait(name)


def test_the_setting_is_a_number_auto_or_off() -> None:
    assert Config().server.max_step == "auto"
    assert settings("server.max_step=2.5").server.max_step == 2.5
