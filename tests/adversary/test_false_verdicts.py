"""Verdicts that say other than the aggregators did, and committed shards under another list of contributors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eris.errors import Reason, Refused
from eris.protocol.messages import Published
from eris.protocol.open_round import OpenRound
from eris.protocol.verdict import ShardVerdict, Verdict
from tests.peer.test_conclude import VICTIM, lacking
from tests.peer.town import settings, town
from tests.protocol.test_rounds import world
from tests.protocol.world import sign_as

CONFIG = settings("members=4", "aggregators=4", "rounds=3", "server.min_contributors=2")
FALSE: dict[str, Callable[[ShardVerdict], ShardVerdict]] = {
    "contributors": lambda entry: replace(entry, contributors=entry.contributors[1:]),
    "hash": lambda entry: replace(entry, hash="ab" * 32),
}


@pytest.mark.parametrize("field", FALSE)
def test_prevented_a_verdict_that_says_other_than_the_manifest_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """Prevented: nobody steps, or settles a reference, by it; every peer ends with exit code 12 where it stood."""
    honest = OpenRound.verdict

    def lie(self: OpenRound, **how: object) -> Verdict:
        verdict = honest(self, **how)  # type: ignore[arg-type]
        return replace(verdict, shards=(FALSE[field](verdict.shards[0]), *verdict.shards[1:]))

    monkeypatch.setattr(OpenRound, "verdict", lie)
    with town(tmp_path, CONFIG, round=20.0) as place:
        nodes = {name: place.node(name) for name in place.names}
        before = {name: node.model_digest() for name, node in nodes.items()}
        for name, node in nodes.items():
            place.start(name, node.run)
        for name in place.names:
            with pytest.raises(Refused, match="from the manifest that it names") as ended:
                place.wait(name)
            assert ended.value.reason is Reason.WRONG_DIGEST
        assert {name: node.model_digest() for name, node in nodes.items()} == before


def test_prevented_the_same_bytes_under_another_signed_list_of_contributors() -> None:
    """Prevented: another list is another c, so another step; only the manifest that the verdict names is taken."""
    made = world(3)
    verdict = lacking(made, shard=1)
    member, found = made.peers[VICTIM].member, made.peers[0].member.serve(verdict.shards[1].hash)
    assert found is not None
    manifest = found.manifest
    fewer = manifest.contributors[:-1]
    assert member.plan is not None
    forged = replace(manifest, contributors=fewer, c=float(member.recipe.scale(member.plan, fewer)), signature="")
    signed = replace(forged, signature=sign_as(manifest.aggregator)(forged.signed_bytes))
    model = member.replica.model.copy()
    with pytest.raises(Refused, match="not the one that the verdict committed"):
        member.accept_fetched(Published(signed, found.values, found.buffers), verdict)
    assert member.conclude(verdict) is not None  # still lacks it
    assert np.array_equal(member.replica.model, model)
    member.accept_fetched(found, verdict)
    assert member.conclude(verdict) is None
    assert np.array_equal(member.replica.model, made.peers[0].member.replica.model)


def test_prevented_a_verdict_on_fewer_shards_than_the_plan_has() -> None:
    made = world(3)
    verdict = lacking(made, shard=1)
    with pytest.raises(Refused, match="the verdict has 2 shards"):
        made.peers[VICTIM].member.conclude(replace(verdict, shards=verdict.shards[:2]))
