"""Fixed point through the roles: what is published, what is impossible, what a newcomer is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eris.aggregate.encoding import FixedPoint, Ring32
from eris.errors import ConfigError, Reason, Refused
from eris.protocol import steps
from eris.protocol.messages import Published, Withheld, payload_hash
from eris.transforms import Transform
from eris.transforms.packed import Packed
from eris.transforms.transform import Outgoing
from eris.wire.codec import decode_published, encode_published
from tests.equivalence.case import Case
from tests.equivalence.federation import Federation

CASE = Case(members=5, shards=3, exponent=3, gamma=0.25, sparsifier="rand_k", encoding=FixedPoint())


def opened(case: Case = CASE):
    """A federation whose members have made their uploads of the first round."""
    federation = Federation(case)
    plan = federation.plan()
    federation.begin(plan)
    return federation, plan, federation.contribute(plan, federation._train)


def test_published_are_sums_of_whole_numbers_and_survive_the_wire() -> None:
    federation, plan, uploads = opened()
    federation.upload(plan, uploads)
    for published in federation.cut(plan):
        assert isinstance(published, Published)
        mine = [upload for upload in uploads if upload.shard == published.manifest.shard]
        assert np.array_equal(published.values, np.sum([u.part.symbols for u in mine], axis=0, dtype=np.uint32))
        assert np.array_equal(published.buffers, np.sum([u.buffers for u in mine], axis=0, dtype=np.uint64))
        payload = np.frombuffer(b"".join(encode_published(published.values, published.buffers)), np.uint8)
        sizes = {"count": published.values.size, "buffers": published.buffers.size}
        values, buffers = decode_published(payload, **sizes, words=federation.recipe.words)
        assert payload.size == 4 * values.size + 8 * buffers.size
        assert payload_hash(values, buffers) == published.manifest.hash


def test_an_aggregator_keeps_nothing_of_a_contribution() -> None:
    federation, plan, uploads = opened()
    federation.upload(plan, uploads)
    assert [federation.aggregators[k].staged(shard) for shard, k in enumerate(plan.assignment)] == [[], [], []]


def test_a_sum_that_nobody_can_have_caused_is_lost_by_name() -> None:
    federation, plan, uploads = opened()
    model = federation.members[0].replica.model.copy()
    bad = next(upload for upload in uploads if upload.member == 2 and upload.shard == 1)
    bad.part.symbols[0] = 2**31 - 7  # a liar far outside the limit
    federation.upload(plan, uploads)
    outcomes = federation.cut(plan)
    assert [type(outcome) for outcome in outcomes].count(Withheld) == 1
    federation.publish(plan, outcomes)
    verdict = federation.decide()
    assert [entry.lost for entry in verdict.shards] == ["", Reason.OUT_OF_RANGE.value, ""]
    federation.conclude(verdict)
    layout = federation.recipe.layout(0).trainable
    moved = np.flatnonzero(federation.members[0].replica.model[: CASE.n] != model[: CASE.n])
    assert moved.size
    assert not np.isin(moved, layout.coordinates(1)).any()


@pytest.mark.parametrize("what", ["values", "buffers"])
def test_a_member_refuses_such_a_sum_itself(what: str) -> None:
    federation, plan, uploads = opened()
    federation.upload(plan, uploads)
    honest = next(o for o in federation.cut(plan) if isinstance(o, Published) and o.buffers.size and o.values.size)
    forged = {"values": honest.values.copy(), "buffers": honest.buffers.copy()}
    forged[what][0] = 2 ** (8 * forged[what].itemsize - 1)
    manifest = replace(honest.manifest, hash=payload_hash(**forged))
    with pytest.raises(Refused, match="contributors within the limit cannot") as refused:
        federation.members[4].receive(Published(manifest, **forged))
    assert refused.value.reason is Reason.OUT_OF_RANGE
    assert federation.members[4].manifest(honest.manifest.shard) is None


def test_a_newcomer_is_given_the_limit() -> None:
    federation = Federation(CASE)
    for _ in range(2):
        federation.round()
    old, new = federation.members[0], Federation(CASE).members[3]
    assert new.replica.limit[0] != old.replica.limit[0]
    new.restore(old.snapshot())
    assert new.replica.digest() == old.replica.digest()
    assert new.replica.scale == old.replica.scale


def test_a_round_that_is_lost_leaves_the_limit() -> None:
    federation = Federation(CASE.change(lost_shards=1.0))
    before = federation.members[0].replica.limit.copy()
    federation.round()
    assert np.array_equal(federation.members[0].replica.limit, before)
    assert before[0] == 4.0  # 1 + ω = 29/8: what a sparsifier multiplies by is covered from the beginning


def test_floats_have_no_limit_in_their_state() -> None:
    member = Federation(CASE.change(encoding=None)).members[0]
    assert "limit" not in member.snapshot().state
    assert member.replica.scale is None


def test_a_transform_that_is_not_on_the_list_is_refused() -> None:
    class Halves(Transform):
        """Says nothing of what it does to sums."""

    with pytest.raises(ConfigError, match="not known to work with fixed point"):
        Federation(CASE, Halves())
    Federation(CASE.change(encoding=None), Halves())


@pytest.mark.parametrize("shards", [1, 3, 5])
def test_cutting_before_writing_gives_the_same_bits_and_leaves_the_update_alone(shards: int) -> None:
    federation, plan, _ = opened(Case(members=5, shards=shards, exponent=3, encoding=FixedPoint()))
    recipe = federation.recipe
    layout, code = recipe.layout(plan.round), Ring32(2.0**-4, plan.weights[2])
    update = federation.case.drift(0, 2) * np.float32(0.05)
    update[3] = 0.9  # one value beyond the limit, and not too many
    before, n = update.copy(), recipe.spec.n_trainable
    packed = Packed(n, None, update[:n])
    outgoing = Outgoing((packed,), packed)
    whole = steps.in_fixed_point(recipe, outgoing, update[n:], code)
    parts, buffers, limited = steps.in_fixed_point_as_cut(recipe, packed, layout, update[n:], code)
    assert np.array_equal(update, before)
    assert limited == whole.limited
    assert limited.values >= 1
    assert np.array_equal(buffers, whole.buffers)
    for part, other in zip(parts, whole.outgoing.packed.parts(layout.trainable), strict=True):
        assert np.array_equal(part.symbols, other.symbols)
        assert np.array_equal(part.values(), other.values())
    update[0] = np.nan
    with pytest.raises(Refused) as refused:
        steps.in_fixed_point_as_cut(recipe, packed, layout, update[n:], code)
    assert refused.value.reason is Reason.NON_FINITE
