"""FSA is FedAvg: any number of shards, any plan, any order, bit for bit; and so is every server step, and DSC."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.aggregate.encoding import FixedPoint
from eris.local.task import LocalResult
from eris.protocol.messages import Upload
from eris.transforms import (
    Compressor,
    bernoulli,
    bf16,
    fp16,
    identity,
    magnitude_prune,
    natural,
    qsgd,
    qsgd_max,
    rand_k,
    sign,
    stratified_rand_k,
    terngrad,
    top_k,
    uniform,
)
from tests.equivalence import checks
from tests.equivalence.case import HYPER, Case
from tests.equivalence.federation import Federation

WEIGHTS = (1.0, 600.0, 7.0, 7.0, 2.5, 31.0, 1e6, 40.0, 3.0)


AUTO = FixedPoint()


@st.composite
def cases(draw: st.DrawFn, *, faults: bool = False, fixed: bool = False) -> Case:
    n, members = draw(st.integers(1, 33)), draw(st.integers(9, 11))
    shards = draw(st.sampled_from([1, 2, 7, n]))
    schedule = draw(st.sampled_from(["fixed", "redraw", "rotate"]))
    capacities = st.none() | st.lists(st.integers(1, 9).map(float), min_size=shards, max_size=shards).map(tuple)
    rule = "mean" if fixed else draw(st.sampled_from(["mean", "mean", "mean", "median", "trimmed_mean"]))
    sparsifier, gamma = "", None
    if rule == "mean":
        sparsifier = draw(st.sampled_from(["", "rand_k", "bernoulli"]))
        gamma = draw(st.sampled_from([None, 0.25, 1.0]))
    weight = st.integers(1, 10**6).map(float) | st.floats(1e-3, 1e3)
    return Case(
        n=n,
        buffers=draw(st.integers(0, 6)),
        members=members,
        shards=shards,
        rounds=draw(st.integers(5, 6)),
        kind=draw(st.sampled_from(["random", "contiguous", "tensor"])),
        block=draw(st.sampled_from([1, 1, 3, 8])),
        capacities=None if schedule == "rotate" else draw(capacities),
        schedule=schedule,
        every=draw(st.integers(1, 3)),
        weights=tuple(draw(st.lists(weight, min_size=members, max_size=members))),
        participation=draw(st.sampled_from([1.0, 0.5])),
        normalisation=draw(st.sampled_from(["contributors", "participation", "none"])),
        optimizer=draw(st.sampled_from(sorted(HYPER))),
        rule=rule,
        sparsifier=sparsifier,
        kept=draw(st.sampled_from([0.05, 0.3, 1.0])),
        gamma=gamma,
        exponent=draw(st.sampled_from([0, 10] if fixed else [0, 10, 40])),
        encoding=AUTO if fixed else None,
        seed=draw(st.integers(0, 2**32)),
        arrival=draw(st.integers(0, 9)),
        lost_links=draw(st.sampled_from([0.0, 0.1, 0.5])) if faults else 0.0,
        lost_shards=draw(st.sampled_from([0.0, 0.2, 0.6])) if faults else 0.0,
    )


@settings(max_examples=40)
@given(case=cases())
def test_every_cut_equals_one_aggregator_and_the_reference(case: Case) -> None:
    checks.equals_one_aggregator_and_the_reference(case)


@settings(max_examples=40)
@given(case=cases(faults=True))
def test_with_messages_missing_it_equals_the_reference_with_the_same_missing(case: Case) -> None:
    checks.equals_the_reference(case)


@settings(max_examples=40)
@given(case=cases(faults=True))
def test_so_it_does_in_the_simulator(case: Case) -> None:
    checks.the_simulator_equals_the_reference(case)


# ── fixed point ──────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=25)
@given(case=cases(faults=True, fixed=True))
def test_in_fixed_point_it_equals_the_plain_loop_in_whole_numbers(case: Case) -> None:
    checks.equals_the_reference(case)


@settings(max_examples=25)
@given(case=cases(faults=True, fixed=True))
def test_so_does_the_simulator_in_fixed_point(case: Case) -> None:
    checks.the_simulator_equals_the_reference(case)


@pytest.mark.parametrize("sparsifier", ["", "rand_k", "bernoulli"])
@pytest.mark.parametrize("gamma", [None, 0.25])
def test_fixed_point_in_any_number_of_shards(sparsifier: str, gamma: float | None) -> None:
    case = Case(
        sparsifier=sparsifier, gamma=gamma, weights=WEIGHTS, participation=0.7, exponent=6, arrival=2,
        optimizer="fedadam", encoding=AUTO,
    )  # fmt: skip
    one, *others = (Federation(case.change(shards=shards, arrival=shards)).run() for shards in (1, 2, 7, 9))
    assert one.model[case.n :].any()  # buffers too
    for other in others:
        assert not one.differences(other)


def test_fixed_point_arrives_in_any_order() -> None:
    checks.order_of_arrival_does_not_matter(Case(weights=WEIGHTS, exponent=6, optimizer="fedadam", encoding=AUTO))


def test_the_limit_does_not_follow_what_was_lost() -> None:
    """On a lost shard the direction is s, times whatever other shards' steps come to; nothing moves by it."""
    case = Case(
        n=3, buffers=1, members=9, shards=2, gamma=0.25, optimizer="fednova", exponent=4, encoding=AUTO,
        lost_shards=0.4, lost_links=0.1, rounds=8, normalisation="none",
    )  # fmt: skip
    for seed in range(6):
        checks.equals_the_reference(case.change(seed=seed))
        checks.the_simulator_equals_the_reference(case.change(seed=seed))


def test_long_vectors_in_fixed_point_cross_the_edges_of_blocks_and_stretches() -> None:
    case = Case(n=140_001, buffers=3, rounds=2, weights=WEIGHTS, arrival=1, exponent=5, encoding=AUTO)
    one, seven = (Federation(case.change(shards=shards)).run() for shards in (1, 7))
    assert not one.differences(seven)


# ── every step, rule and compressor ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("optimizer", sorted(HYPER))
@pytest.mark.parametrize("shards", [1, 2, 7, 29])
def test_every_server_step_in_any_number_of_shards(optimizer: str, shards: int) -> None:
    case = Case(optimizer=optimizer, shards=shards, weights=WEIGHTS, schedule="redraw", arrival=1, participation=0.7)
    checks.equals_one_aggregator_and_the_reference(case)


@pytest.mark.parametrize("sparsifier", ["", "rand_k", "bernoulli"])
@pytest.mark.parametrize("shards", [1, 2, 7, 29])
def test_shifted_compression_in_any_number_of_shards(sparsifier: str, shards: int) -> None:
    case = Case(sparsifier=sparsifier, gamma=0.25, shards=shards, weights=WEIGHTS, participation=0.7, arrival=2)
    checks.equals_one_aggregator_and_the_reference(case)


COMPRESSORS: list[Compressor] = [
    identity(), rand_k(0.3), bernoulli(0.3), top_k(0.3), fp16(), bf16(), natural(), qsgd(4), qsgd_max(4), terngrad(),
    uniform(8), sign(), magnitude_prune(0.3),
]  # fmt: skip


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
@pytest.mark.parametrize("shards", [2, 7, 29])
def test_every_plan_invariant_compressor_in_any_number_of_shards(compressor: Compressor, shards: int) -> None:
    assert compressor.plan_invariant
    shiftable = compressor.unbiased or compressor.contractive
    gammas = [None, 0.25 if compressor.unbiased else 1.0] if shiftable else [None]
    for gamma in gammas:
        case = Case(gamma=gamma, weights=WEIGHTS, participation=0.7, exponent=6, optimizer="fedavgm", arrival=1)
        cut = Federation(case.change(shards=shards, schedule="redraw"), compressor=compressor).run()
        whole = Federation(case.change(shards=1), compressor=compressor).run()
        assert not cut.differences(whole)


def test_a_compressor_that_depends_on_the_plan_says_so_and_differs() -> None:
    compressor, case = stratified_rand_k(0.3), Case(gamma=0.25)
    assert not compressor.plan_invariant
    cut, whole = (Federation(case.change(shards=shards), compressor=compressor).run() for shards in (7, 1))
    assert cut.differences(whole)


@pytest.mark.parametrize("rule", ["mean", "median", "trimmed_mean"])
def test_every_rule_whatever_the_order_of_arrival(rule: str) -> None:
    checks.order_of_arrival_does_not_matter(Case(rule=rule, weights=WEIGHTS, optimizer="fedadam"))


def test_references_add_up_with_weights_participation_and_losses() -> None:
    case = Case(gamma=0.25, sparsifier="rand_k", weights=WEIGHTS, participation=0.6, exponent=3, rounds=12)
    checks.references_add_up(case)
    checks.references_add_up(case.change(lost_links=0.2, lost_shards=0.2))


@pytest.mark.parametrize("optimizer", sorted(HYPER))
def test_lost_shards_are_frozen_in_all_state(optimizer: str) -> None:
    checks.lost_shards_are_frozen(Case(optimizer=optimizer, gamma=0.25, lost_shards=0.4, lost_links=0.1))


def test_state_waits_for_the_verdict() -> None:
    checks.nobody_moves_before_the_verdict(Case(gamma=0.25, sparsifier="rand_k", lost_shards=0.3, lost_links=0.1))


def test_noise_comes_from_each_members_own_root() -> None:
    checks.noise_is_private(Case())


def test_more_shards_than_coordinates() -> None:
    case = Case(n=5, buffers=2, shards=12, gamma=0.5, optimizer="fedavgm")
    checks.equals_one_aggregator_and_the_reference(case)


@pytest.mark.parametrize("shards", [1, 7])
def test_long_vectors_cross_the_edges_of_blocks(shards: int) -> None:
    """The plain loop is too slow here; whole vectors in the same order of operations are the reference."""
    case = Case(n=70_001, buffers=33_000, shards=shards, rounds=2, weights=WEIGHTS, arrival=1, optimizer="fedavgm")
    weights = [np.float32(weight / math.fsum(WEIGHTS)) for weight in WEIGHTS]
    expected, momentum = case.initial.copy(), np.zeros(case.n, np.float32)
    c = np.float32(1 / math.fsum(map(float, weights)))
    for round in range(case.rounds):
        mean = np.zeros_like(expected)
        for k in range(case.members):
            mean = mean + weights[k] * (case.drift(round, k) + np.float32(0.25) * expected)
        momentum = momentum * np.float32(0.9) + mean[: case.n] * c
        expected[: case.n] -= momentum * np.float32(0.7)
        expected[case.n :] -= mean[case.n :] * c
    assert np.array_equal(Federation(case).run().model, expected)


def test_one_wrong_value_in_one_aggregator_changes_exactly_that_coordinate() -> None:
    """Equal digests are no accident: the smallest change shows, and shows only where it was made."""
    case = Case(rounds=1, exponent=2)
    honest, touched = Federation(case), Federation(case)
    contribute, plan = touched.members[4].contribute, case.policy.layout(0).trainable

    def one_off(result: LocalResult, scores: None = None) -> list[Upload]:
        uploads = contribute(result, scores)
        uploads[2].part.symbols[1] += 1
        return uploads

    touched.members[4].contribute = one_off  # type: ignore[method-assign]
    different = np.flatnonzero(honest.run().model != touched.run().model)
    assert different.tolist() == [plan.coordinates(2)[1]]


def test_a_result_is_not_changed_by_sending_it() -> None:
    federation = Federation(Case(gamma=0.25, sparsifier="rand_k"))
    plan = federation.coordinator.plan(0.0)
    federation.members[0].begin(plan)
    update = federation.case.drift(0, 0).copy()
    federation.members[0].contribute(LocalResult(update, 1))
    assert np.array_equal(update, federation.case.drift(0, 0))
