"""Every chain through the real roles: any number of aggregators gives the bits of one, if its compressor says so."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from eris.aggregate.mean import WeightedMean
from eris.local.spec import ModelSpec, TensorSpec
from eris.privacy import clip_by_norm, gaussian_noise
from eris.protocol.floor import Floor
from eris.protocol.in_process import InProcess
from eris.protocol.recipe import Recipe
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import Deadlines
from eris.protocol.rules import Rules
from eris.seeds import private_root, public_root
from eris.shards.policy import ShardPolicy
from eris.step import FedAvgM
from eris.transforms import (
    bernoulli,
    bf16,
    chain,
    fp16,
    natural,
    normalise_steps,
    prune,
    qsgd,
    qsgd_max,
    rand_k,
    shift,
    sign,
    stratified_rand_k,
    terngrad,
    top_k,
    uniform,
)
from tests.protocol.world import pretend_to_train

SPEC = ModelSpec(
    (TensorSpec("weight", (5, 7), "float32", "trainable"), TensorSpec("bias", (6,), "float32", "trainable"))
)
MEMBERS = 5
CHAINS = [
    (bf16(),), (fp16(),), (natural(),), (qsgd(4),), (qsgd_max(4),), (sign(),), (terngrad(),), (uniform(4),),
    (bernoulli(0.4),), (rand_k(0.2),), (top_k(0.3),), (prune(0.02),), (prune(0.3),),
    (prune(0.3, keep_withheld=True),),
    (shift(top_k(0.3), gamma=1),), (shift(qsgd_max(4)),), (shift(bernoulli(0.4), gamma="diana"),),
    (shift(rand_k(0.3), shared_reference=True),),
    (normalise_steps(), clip_by_norm(1.0), gaussian_noise(0.1, 1.0), shift(rand_k(0.3))),
]  # fmt: skip


def trained(transforms, shards, rounds=5):
    policy = ShardPolicy(SPEC, shards, public_root(5), kind="random", schedule="redraw", every=2)
    recipe = Recipe(SPEC, policy, chain(*transforms), WeightedMean(), FedAvgM(lr=1.0, beta=0.5), public_root(5))
    roster = [RosterEntry(peer, f"peer-{peer}", weight=1.0 + peer) for peer in range(MEMBERS)]
    rules = Rules(
        "run", tuple(shard % MEMBERS for shard in range(shards)), min_contributors=1, deadlines=Deadlines(50.0, 90.0)
    )
    start, floor = np.linspace(-1, 1, SPEC.n, dtype=np.float32), Floor(min_contributors=1)
    roles = InProcess(recipe, rules, roster, start, partial(private_root, 0), floor=floor)
    for _ in range(rounds):
        assert not roles.play(lambda member, plan: pretend_to_train(member.look(), member.peer, plan.round)).lost_shards
    models = {member.replica.model.tobytes() for member in roles.members.values()}
    assert len(models) == 1
    return np.frombuffer(models.pop(), np.float32)


@pytest.mark.parametrize("transforms", CHAINS, ids=lambda transforms: chain(*transforms).describe())
def test_shards_change_no_bit(transforms):
    one = trained(transforms, 1)
    assert not np.array_equal(one, np.linspace(-1, 1, SPEC.n, dtype=np.float32))
    for shards in (2, 4):
        assert np.array_equal(trained(transforms, shards), one)


@pytest.mark.parametrize("compressor", [stratified_rand_k(0.3), rand_k(0.3, independent=True)], ids=repr)
def test_stratified_masks_follow_the_shards(compressor):
    assert not np.array_equal(trained((shift(compressor),), 1), trained((shift(compressor),), 4))
