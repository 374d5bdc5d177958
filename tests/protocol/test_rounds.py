"""Plain rounds: with every message delivered in order, all peers end with the reference's bits."""

from __future__ import annotations

import numpy as np
import pytest

from eris.aggregate.figures import Figures
from eris.aggregate.mean import WeightedMean
from eris.aggregate.robust import Median
from eris.errors import ConfigError, FloorError, Reason, Refused
from eris.local.spec import ModelSpec, TensorSpec
from eris.protocol.aggregator import Aggregator
from eris.protocol.floor import Floor
from eris.protocol.messages import Equivocation, Published, Upload
from eris.protocol.recipe import Recipe
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import Deadlines
from eris.protocol.rules import Rules
from eris.seeds import public_root
from eris.shards.policy import ShardPolicy
from eris.step.plain import FedAvgM
from eris.transforms import chain, rand_k, shift
from tests.protocol.reference import Reference
from tests.protocol.world import World, pretend_to_train, sign_as, verify

SPEC = ModelSpec((
    TensorSpec("weight", (5, 7), "float32", "trainable"),
    TensorSpec("bias", (6,), "float32", "trainable"),
    TensorSpec("mean", (9,), "float32", "buffer"),
))  # fmt: skip
GAMMA = 0.25


def recipe(
    shards: int, *, dsc: bool = False, kind: str = "random", schedule: str = "fixed", figures: Figures | None = None
) -> Recipe:
    policy = ShardPolicy(SPEC, shards, public_root(5), kind=kind, schedule=schedule)
    transforms = chain(shift(rand_k(0.3), gamma=GAMMA)) if dsc else chain()
    optimizer = FedAvgM(lr=1.0, beta=0.5)
    return Recipe(SPEC, policy, transforms, WeightedMean(), optimizer, public_root(5), figures=figures)


def world(shards: int, members: int = 5, *, made: Recipe | None = None, **rules: object) -> World:
    roster = [RosterEntry(peer, f"peer-{peer}", weight=1.0 + peer) for peer in range(members)]
    defaults = {"min_contributors": 1, "deadlines": Deadlines(50.0, 90.0)}
    settings = Rules("run", tuple(peer % members for peer in range(shards)), **(defaults | rules))
    start = np.linspace(-1, 1, SPEC.n, dtype=np.float32)
    return World(made or recipe(shards), settings, roster, start)


def reference(of: World, *, dsc: bool) -> Reference:
    return Reference(of.recipe, of.model, beta=0.5, kept=0.3 if dsc else None, gamma=GAMMA)


def check_equal(of: World, plain: Reference) -> None:
    for peer in of.peers.values():
        assert np.array_equal(peer.member.replica.model, plain.x)


@pytest.mark.parametrize("dsc", [False, True])
@pytest.mark.parametrize("shards", [1, 2, 5])
@pytest.mark.parametrize("schedule", ["fixed", "redraw", "rotate"])
def test_all_peers_end_with_the_bits_of_one_aggregator(shards: int, dsc: bool, schedule: str) -> None:
    made = world(shards, made=recipe(shards, dsc=dsc, schedule=schedule))
    made.settle(rounds=6)
    plain = reference(made, dsc=dsc)
    for plan, verdict in made.verdicts:
        plain.step(plan, verdict)
    check_equal(made, plain)
    assert not made.refusals
    assert all(not verdict.lost_shards for _, verdict in made.verdicts)


@pytest.mark.parametrize("dsc", [False, True])
def test_partial_participation_keeps_reference_and_bits(dsc: bool) -> None:
    made = world(3, members=6, made=recipe(3, dsc=dsc), participation=0.5)
    made.settle(rounds=8)
    plain = reference(made, dsc=dsc)
    for plan, verdict in made.verdicts:
        plain.step(plan, verdict)
    check_equal(made, plain)
    if dsc:
        weights = made.verdicts[-1][0].weights
        total = sum(np.float64(weights[k]) * p.member.private["0.reference"] for k, p in made.peers.items())
        public = made.peers[0].member.replica.public["0.reference"]
        np.testing.assert_allclose(total, public, atol=1e-5)


def test_stateless_aggregators_can_all_be_replaced_between_rounds() -> None:
    one, other = world(4, made=recipe(4, dsc=True)), world(4, made=recipe(4, dsc=True))
    one.settle(rounds=6)
    for _ in range(6):
        other.settle(rounds=1)
        for peer, process in other.peers.items():
            process.aggregator = Aggregator(peer, other.recipe, sign=sign_as(peer))
        other.rules = Rules("run", tuple(reversed(other.rules.aggregators)), min_contributors=1)
        other.restart_coordinator()
        plan = other.coordinator.in_flight
        assert plan is not None
        for process in other.peers.values():
            process.aggregator.begin(plan, other.now)
            process.trained = False
    digests = {peer.member.replica.digest() for w in (one, other) for peer in w.peers.values()}
    assert len(digests) == 1


def test_too_few_contributors_publish_nothing_and_freeze_everything() -> None:
    made = world(2, min_contributors=6)
    made.settle(rounds=2)
    assert all(set(v.lost_shards) == {0, 1} for _, v in made.verdicts)
    assert {e.lost for _, v in made.verdicts for e in v.shards} == {Reason.TOO_FEW.value}
    for peer in made.peers.values():
        assert np.array_equal(peer.member.replica.model, made.model)


# ── what an aggregator refuses ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def opened() -> tuple[World, Aggregator, Upload]:
    made = world(2)
    plan = made.coordinator.plan(0.0)
    member = made.peers[3].member
    member.begin(plan)
    upload = member.contribute(pretend_to_train(member.start(), 3, 0))[1]
    aggregator = made.peers[1].aggregator
    aggregator.begin(plan, 0.0)
    return made, aggregator, upload


def changed(upload: Upload, **fields: object) -> Upload:
    from dataclasses import replace

    return replace(upload, **fields)


@pytest.mark.parametrize(
    ("fields", "sender", "reason"),
    [
        ({"run": "other"}, 3, Reason.WRONG_RUN),
        ({"epoch": 9}, 3, Reason.WRONG_EPOCH),
        ({"round": 9}, 3, Reason.WRONG_ROUND),
        ({"chain": "f" * 64}, 3, Reason.WRONG_CHAIN),
        ({"plan": "f" * 64}, 3, Reason.WRONG_PLAN),
        ({"shard": 0}, 3, Reason.WRONG_SHARD),
        ({"member": 77}, 77, Reason.NOT_A_MEMBER),
        ({}, 2, Reason.NOT_A_MEMBER),
        ({"steps": float("nan")}, 3, Reason.NON_FINITE),
        ({"steps": 0.0}, 3, Reason.NON_FINITE),
        ({"buffers": np.zeros(1, np.float32)}, 3, Reason.WRONG_SIZE),
    ],
)
def test_each_wrong_upload_is_refused_by_name_and_counted(opened, fields, sender, reason) -> None:
    _, aggregator, upload = opened
    with pytest.raises(Refused) as refusal:
        aggregator.receive(changed(upload, **fields), sender)
    assert refusal.value.reason is reason
    assert aggregator.refusals == {reason: 1}
    aggregator.receive(upload, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_values_are_refused(opened, bad) -> None:
    from dataclasses import replace

    _, aggregator, upload = opened
    symbols = upload.part.symbols.copy()
    symbols[0] = bad
    with pytest.raises(Refused, match="non-finite"):
        aggregator.receive(changed(upload, part=replace(upload.part, symbols=symbols)), 3)


def test_wrong_number_of_values_is_refused(opened) -> None:
    from dataclasses import replace

    _, aggregator, upload = opened
    with pytest.raises(Refused, match="wrong-size"):
        aggregator.receive(changed(upload, part=replace(upload.part, symbols=upload.part.symbols[:-1])), 3)


def test_contributions_may_come_in_chunks_in_any_order_and_break_off(opened) -> None:
    from eris.wire.codec import encode_upload

    made, aggregator, upload = opened
    header, trainable = upload.header(), made.recipe.layout(0).trainable
    data = b"".join(encode_upload(upload.part, upload.buffers, trainable))
    aggregator.room(header, 4, 8, sender=3)[:] = data[4:8]
    assert aggregator.filled(header, 4, 8) is None
    aggregator.give_up(header)
    for start in range(header.total - 4, -1, -4):
        aggregator.room(header, start, start + 4, sender=3)[:] = data[start : start + 4]
        receipt = aggregator.filled(header, start, start + 4)
        assert (receipt is not None) == (start == 0)


def test_a_second_header_for_the_same_contribution_is_a_conflict(opened) -> None:
    _, aggregator, upload = opened
    aggregator.room(upload.header(), 0, 4, sender=3)
    with pytest.raises(Refused, match="conflict"):
        aggregator.room(changed(upload, steps=2.0).header(), 4, 8, sender=3)


def test_large_finite_values_are_welcome(opened) -> None:
    from dataclasses import replace

    _, aggregator, upload = opened
    huge = np.full_like(upload.part.symbols, 3e38)
    assert aggregator.receive(changed(upload, part=replace(upload.part, symbols=huge)), 3).member == 3


def test_the_same_again_gets_the_same_receipt_and_a_different_one_is_refused(opened) -> None:
    from dataclasses import replace

    _, aggregator, upload = opened
    first = aggregator.receive(upload, 3)
    assert aggregator.receive(upload, 3) == first
    assert aggregator.refusals == {Reason.DUPLICATE: 1}
    other = changed(upload, part=replace(upload.part, symbols=upload.part.symbols + np.float32(1)))
    with pytest.raises(Refused, match="conflict"):
        aggregator.receive(other, 3)


def test_late_contributions_are_refused_after_the_cut(opened) -> None:
    made, aggregator, upload = opened
    aggregator.tick(made.rules.deadlines.contribute + 1)
    with pytest.raises(Refused, match="late"):
        aggregator.receive(upload, 3)


def test_nothing_is_published_before_the_deadline_unless_all_are_in(opened) -> None:
    _, aggregator, upload = opened
    aggregator.receive(upload, 3)
    assert aggregator.tick(1.0) == []


# ── what a member refuses ───────────────────────────────────────────────────────────────────────────────────────────


def published(made: World, shard: int = 1) -> Published:
    plan = made.coordinator.plan(0.0)
    aggregator = Aggregator(plan.assignment[shard], made.recipe, sign=sign_as(plan.assignment[shard]))
    aggregator.begin(plan, 0.0)
    for peer, process in made.peers.items():
        process.member.begin(plan)
        upload = process.member.contribute(pretend_to_train(process.member.start(), peer, 0))[shard]
        aggregator.receive(upload, peer)
    return aggregator.tick(0.0)[0]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"plan": "f" * 64}, Reason.WRONG_PLAN),
        ({"aggregator": 4}, Reason.WRONG_SHARD),
        ({"shard": 7}, Reason.WRONG_SHARD),
        ({"signature": "forged"}, Reason.BAD_SIGNATURE),
    ],
)
def test_a_member_refuses_a_wrong_manifest(fields, reason) -> None:
    from dataclasses import replace

    made = world(2)
    item = published(made)
    with pytest.raises(Refused) as refusal:
        made.peers[0].member.receive(replace(item, manifest=replace(item.manifest, **fields)))
    assert refusal.value.reason is reason


@pytest.mark.parametrize("fields", [{"c": 2.0}, {"contributors": (0, 99)}])
def test_a_member_refuses_a_signed_manifest_that_does_not_add_up(fields) -> None:
    from dataclasses import replace

    made = world(2)
    item = published(made)
    bad = replace(item.manifest, **fields)
    bad = replace(bad, signature=sign_as(bad.aggregator)(bad.signed_bytes))
    with pytest.raises(Refused, match="malformed"):
        made.peers[0].member.receive(replace(item, manifest=bad))


def test_a_member_refuses_a_payload_that_is_not_the_manifests() -> None:
    from dataclasses import replace

    made = world(2)
    item = published(made)
    with pytest.raises(Refused, match="wrong-digest"):
        made.peers[0].member.receive(replace(item, values=item.values + np.float32(1)))
    with pytest.raises(Refused, match="wrong-size"):
        made.peers[0].member.receive(replace(item, values=item.values[:-1]))


def test_two_manifests_for_one_shard_prove_equivocation_and_exclude_the_aggregator() -> None:
    from dataclasses import replace

    from eris.protocol.messages import payload_hash

    made = world(2)
    item = published(made)
    values = item.values + np.float32(1)
    twin = replace(item.manifest, hash=payload_hash(values, item.buffers))
    twin = replace(twin, signature=sign_as(twin.aggregator)(twin.signed_bytes))
    member = made.peers[0].member
    assert member.receive(item) is None
    proof = member.receive(replace(item, manifest=twin, values=values))
    assert isinstance(proof, Equivocation)
    assert proof.aggregator == 1
    assert made.coordinator.manifest(item.manifest) is None
    assert made.coordinator.manifest(twin) is not None
    verdict = made.coordinator.decide(now=1e9)
    assert verdict.shards[1].lost == Reason.EQUIVOCATION.value
    assert 1 not in made.coordinator.plan(1e9).assignment
    with pytest.raises(Refused, match="equivocation"):
        made.coordinator.join(RosterEntry(1, "peer-1", weight=1.0))


def test_state_moves_on_the_verdict_only() -> None:
    made = world(2, made=recipe(2, dsc=True))
    before = made.peers[0].member.replica.digest()
    for _ in range(200):
        made.clock() if not made.verdicts and made.coordinator.in_flight is None else None
        for peer in made.peers:
            made.work(peer)
        while made.mail:
            made.deliver(0)
    member = made.peers[0].member
    assert len(member.held.published) == 2
    assert member.replica.digest() == before
    assert not member.private["0.reference"].any()
    verdict = made.coordinator.decide(made.now)
    assert member.conclude(verdict) is None
    assert member.replica.digest() != before
    assert member.private["0.reference"].any()


# ── the member's floor ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("floor", "why"),
    [
        (Floor(min_aggregators=3, min_contributors=1), "2 aggregators"),
        (Floor(max_share=0.4, min_contributors=1), "allows 40.0%"),
        (Floor(min_contributors=3), "requires 3"),
        (Floor(min_contributors=1, transforms=("gaussian_noise",)), "lacks"),
        (Floor(min_contributors=1, max_organisation_share=0.9), "organisation acme"),
    ],
)
def test_a_member_refuses_plans_below_its_floor(floor: Floor, why: str) -> None:
    made = world(2)
    made.roster = [RosterEntry(p, f"peer-{p}", 1.0, organisation="acme" if p < 2 else "own") for p in range(5)]
    made.floor, made.journal = floor, []
    made.restart_coordinator()
    member = made._new_peer(4).member
    with pytest.raises(FloorError, match=why):
        member.begin(made.coordinator.plan(0.0))
    assert member.plan is None


def test_a_coordinator_that_gives_all_shards_to_one_friend_is_refused() -> None:
    made = world(4)
    made.rules = Rules("run", (2, 2, 2, 2), min_contributors=1)
    made.floor = Floor(max_share=0.5, min_contributors=1)
    made.restart_coordinator()
    with pytest.raises(FloorError, match=r"peer 2 would see 100\.0%"):
        made._new_peer(0).member.begin(made.coordinator.plan(0.0))


def test_median_refuses_shift_and_sparsifiers() -> None:
    policy = ShardPolicy(SPEC, 2, public_root(5))
    with pytest.raises(ConfigError, match="median"):
        Recipe(SPEC, policy, chain(shift(rand_k(0.3))), Median(), FedAvgM(), public_root(5))


def test_signatures_are_bound_to_their_peer() -> None:
    assert verify(1, b"x", sign_as(1)(b"x"))
    assert not verify(2, b"x", sign_as(1)(b"x"))
