"""Vectors in mapped files and updates in blocks change nothing: every bit is that of the run in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from eris.aggregate.mean import WeightedMean
from eris.errors import SpecError, TaskError
from eris.local.spec import Vector
from eris.local.task import BlockResult, LocalResult
from eris.privacy import clip_by_norm
from eris.protocol.aggregator import Aggregator
from eris.protocol.block_update import BlockUpdate
from eris.protocol.member import Member
from eris.protocol.messages import Upload
from eris.protocol.recipe import Recipe
from eris.protocol.replica import Replica
from eris.seeds import private_root, public_root
from eris.shards.policy import ShardPolicy
from eris.step.adaptive import FedAdam
from eris.step.plain import FedAvgM
from eris.storage.buffer_pool import BufferPool
from eris.storage.mapped import is_mapped
from eris.transforms import Chain, bernoulli, chain, prune, qsgd, rand_k, shift, stratified_rand_k
from tests.protocol.test_rounds import SPEC, world
from tests.protocol.world import Peer, World, sign_as, verify

CHAINS = {
    "dense": chain(),
    "shared reference": chain(shift(rand_k(0.3), shared_reference=True)),
    "reference of one's own": chain(shift(rand_k(0.3))),
    "stratified": chain(shift(stratified_rand_k(0.3))),
    "secret masks": chain(shift(rand_k(0.3, independent=True))),
    "coins": chain(bernoulli(0.4)),
    "everything kept": chain(rand_k(1.0)),
    "quantized": chain(shift(qsgd(4))),
    "clipped": chain(clip_by_norm(0.5), shift(rand_k(0.3))),
    "withheld": chain(prune(0.1, keep_withheld=True)),
}


def in_blocks(vector: Vector) -> Iterator[Vector]:
    """Yield blocks of uneven lengths, all in one piece of memory: what was yielded before is gone."""
    start, memory = 0, np.empty(7, np.float32)
    while start < vector.size:
        size = min(1 + start % 7, vector.size - start)
        memory[:size] = vector[start : start + size]
        yield memory[:size]
        start += size


class BlockMember(Member):
    def contribute(self, result: LocalResult, scores: Mapping[str, tuple[float, float]] | None = None) -> list[Upload]:
        assert np.array_equal(self.look(), self.start())
        return super().contribute(BlockResult(in_blocks(result.update), result.samples, result.steps), scores)


@dataclass
class MappedWorld(World):
    folder: Path | None = None

    def _new_peer(self, peer: int) -> Peer:
        pool = BufferPool(self.folder, above=0)
        member = BlockMember(
            peer,
            self.recipe,
            in_blocks(self.model),
            private_root(0, peer),
            floor=self.floor,
            verify=verify,
            pool=pool,
        )
        for vector in (*member.replica.state().values(), *member.private.values()):
            assert is_mapped(vector)
        return Peer(member, Aggregator(peer, self.recipe, sign=sign_as(peer), pool=pool, budget=0))


def troubled(of: World) -> World:
    """Play rounds in which shards are lost, a peer dies and one comes back."""
    of.settle(rounds=2)
    of.crash(1)
    of.settle(rounds=2)
    of.restart(1)
    of.settle(rounds=2)
    return of


def recipe_of(transforms: Chain) -> Recipe:
    policy = ShardPolicy(SPEC, 3, public_root(5))
    return Recipe(
        SPEC,
        policy,
        transforms,
        WeightedMean(),
        FedAdam() if len(transforms.transforms) > 1 else FedAvgM(),
        public_root(5),
    )


@pytest.mark.parametrize("name", CHAINS)
def test_the_bits_are_those_of_the_run_in_memory(name: str, tmp_path: Path) -> None:
    plain = world(3, made=recipe_of(CHAINS[name]))
    mapped = MappedWorld(plain.recipe, plain.rules, plain.roster, plain.model, folder=tmp_path)
    troubled(plain)
    troubled(mapped)
    assert any(verdict.lost_shards for _, verdict in plain.verdicts)
    assert [verdict.digest for _, verdict in mapped.verdicts] == [verdict.digest for _, verdict in plain.verdicts]
    for peer, there in plain.peers.items():
        here = mapped.peers[peer].member
        for name_, vector in there.member.replica.state().items():
            assert np.array_equal(here.replica.state()[name_], vector)
        for name_, vector in there.member.private.items():
            assert np.array_equal(here.private[name_], vector)
        assert here.replica.digest() == there.member.replica.digest()
    assert list(tmp_path.iterdir()) == [], "files without a name leave nothing behind"


def test_only_a_chain_that_changes_the_start_needs_a_copy_of_the_model(tmp_path: Path) -> None:
    start = np.linspace(-1, 1, SPEC.n, dtype=np.float32)
    plain = Member(0, recipe_of(chain()), start, private_root(0, 0))
    changed = Member(0, recipe_of(chain(prune(0.1, keep_withheld=True))), start, private_root(0, 0))
    assert np.shares_memory(plain.look(), plain.replica.model)
    assert not np.shares_memory(changed.look(), changed.replica.model)
    for member in (plain, changed):
        with pytest.raises(ValueError, match="read-only"):
            member.look()[0] = 1
        member.replica.model[0] = 2  # the owner still can


@pytest.mark.parametrize(
    ("blocks", "what"),
    [
        ([np.zeros(SPEC.n - 1, np.float32)], "49 values"),
        ([np.zeros(SPEC.n, np.float32), np.zeros(1, np.float32)], "more than 50"),
        ([np.zeros(SPEC.n)], "float64"),
        ([np.full(SPEC.n, np.nan, np.float32)], "not finite"),
    ],
)
def test_an_update_that_does_not_fit_is_the_tasks_fault(blocks: list[Vector], what: str) -> None:
    with pytest.raises(TaskError, match=what):
        list(BlockUpdate(iter(blocks), SPEC))


def test_buffers_are_told_from_trainable_values_wherever_a_block_ends() -> None:
    vector = np.arange(SPEC.n, dtype=np.float32)
    update = BlockUpdate(in_blocks(vector), SPEC)
    trainable = np.concatenate([values.copy() for _, values in update])
    assert np.array_equal(np.concatenate([trainable, update.buffers]), vector)
    assert update.buffers.size == SPEC.n_buffer > 0


def test_a_model_in_too_few_or_too_many_blocks_is_refused() -> None:
    for size in (SPEC.n - 1, SPEC.n + 1):
        with pytest.raises(SpecError, match="do not add up to 50 values"):
            Replica.start(recipe_of(chain()), in_blocks(np.zeros(size, np.float32)))
