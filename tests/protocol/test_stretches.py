"""A replica steps stretch by stretch; how long a stretch is must not be seen in any bit."""

from __future__ import annotations

import numpy as np
import pytest

from eris.aggregate.mean import WeightedMean
from eris.protocol.recipe import Recipe
from eris.seeds import public_root
from eris.shards.policy import ShardPolicy
from eris.step.plain import FedAvgM
from eris.step.schedule import cosine, inverse_sqrt
from eris.storage import stretch
from eris.transforms import Compressor, chain, qsgd, rand_k, shift
from tests.protocol.test_rounds import SPEC, world


def trained(compressor: Compressor, gamma: str, *, schedules: bool = False) -> dict[int, object]:
    policy = ShardPolicy(SPEC, 3, public_root(5))
    packing = shift(compressor, gamma=gamma, schedule=inverse_sqrt() if schedules else None)
    step = cosine(rounds=5) if schedules else None
    made = world(3, made=Recipe(SPEC, policy, chain(packing), WeightedMean(), FedAvgM(), public_root(5), step))
    made.settle(rounds=5)
    return made.peers


@pytest.mark.parametrize("compressor", [rand_k(0.3), rand_k(0.3, independent=True), qsgd(4)])
@pytest.mark.parametrize("gamma", ["paper", "diana"])
@pytest.mark.parametrize("schedules", [False, True])
def test_short_stretches_give_the_bits_of_one_long_one(compressor, gamma, schedules, monkeypatch) -> None:
    whole = trained(compressor, gamma, schedules=schedules)
    monkeypatch.setattr(stretch, "STRETCH", 7)
    short = trained(compressor, gamma, schedules=schedules)
    for peer in whole:
        assert whole[peer].member.replica.digest() == short[peer].member.replica.digest()


@pytest.mark.parametrize("schedules", [False, True])
def test_the_reference_is_the_mean_of_the_members_references_however_the_step_is_cut(schedules, monkeypatch) -> None:
    monkeypatch.setattr(stretch, "STRETCH", 7)
    peers = trained(qsgd(4), "paper", schedules=schedules)
    weights = np.array([1.0 + peer for peer in peers]) / sum(1.0 + peer for peer in peers)
    total = sum(w * p.member.private["0.reference"] for w, p in zip(weights, peers.values(), strict=True))
    public = peers[0].member.replica.public["0.reference"]
    np.testing.assert_allclose(total, public, atol=1e-5 * np.abs(public).max())
    assert np.abs(public).max() > 0.01


def test_schedules_change_the_run() -> None:
    plain, scheduled = trained(rand_k(0.3), "paper"), trained(rand_k(0.3), "paper", schedules=True)
    assert plain[0].member.replica.digest() != scheduled[0].member.replica.digest()
