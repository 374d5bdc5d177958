from __future__ import annotations

import numpy as np
import pytest

from eris.errors import ConfigError, InputError, PlanError
from eris.privacy import clip_by_norm, gaussian_noise
from eris.seeds import public_root
from eris.shards.plan import contiguous, scattered
from eris.transforms import (
    Accepted,
    Chain,
    Compress,
    MeanStretch,
    Transform,
    chain,
    fp16,
    identity,
    normalise_steps,
    prune,
    rand_k,
    shift,
    sign,
    terngrad,
    top_k,
)
from tests.transforms.scenes import context, normal


class Recorder(Transform):
    """Writes down what happens to it."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def start(self, model, private):
        self.log.append(f"start {self.name}")

    def outgoing(self, update, context):
        self.log.append(f"out {self.name}")
        return update + np.float32(1)

    def settle(self, sent, private, accepted):
        self.log.append(f"settle {self.name}")

    def incoming(self, direction, mean):
        self.log.append(f"in {self.name}")


def test_the_way_back_is_the_way_out_reversed():
    log: list[str] = []
    both = chain(Recorder("a", log), Recorder("b", log))
    both.start(normal(4), {})
    outgoing = both.outgoing(np.zeros(4, np.float32), {}, {}, context(4))
    both.incoming(MeanStretch(np.ones(4, np.float32)), {})
    both.settle(outgoing, {}, Accepted(context(4).plan))
    assert log == ["start a", "start b", "out a", "out b", "in b", "in a", "settle a", "settle b"]
    assert outgoing.packed.values().tolist() == [2.0] * 4


def test_values_go_as_they_are_if_nothing_packs():
    vector = normal(9)
    assert np.array_equal(chain().outgoing(vector, {}, {}, context(9)).packed.values(), vector)
    assert chain(clip_by_norm(1)).describe() == "clip_by_norm(1) → identity()"
    assert chain(rand_k(0.5)).describe() == "rand_k(0.5)"


def test_what_packs_comes_last_and_once():
    for wrong in ((shift(identity()), clip_by_norm(1.0)), (rand_k(0.5), shift(identity())), (prune(0.1), identity())):
        with pytest.raises(ConfigError, match="must be the last"):
            chain(*wrong)
    for unfinished in ((), (clip_by_norm(1.0),)):
        with pytest.raises(ConfigError, match="does not pack"):
            Chain(unfinished)
    with pytest.raises(ConfigError, match="not a compressor"):
        chain("rand_k")


def test_each_transform_finds_its_own_state():
    """Twelve of them, so that 1 and 11 must be told apart."""

    class Counts(Transform):
        def private_state(self, n):
            return {"seen": np.zeros(n, np.float32)}

        def settle(self, sent, private, accepted):
            private["seen"] += 1

    many = chain(*(Counts() for _ in range(12)))
    private = many.private_state(2)
    assert len(private) == 12
    many.settle(many.outgoing(normal(2), private, {}, context(2)), private, Accepted(context(2).plan))
    assert all(value.tolist() == [1.0, 1.0] for value in private.values())


def test_the_direction_is_c_times_the_mean_and_can_reuse_memory():
    mean = MeanStretch(np.array([1, 2, 3], np.float32), np.array([1, 2, 0.5], np.float32))
    out = np.empty(3, np.float32)
    assert chain().incoming(mean, {}, out=out) is out
    assert out.tolist() == [1, 4, 1.5]


@pytest.mark.parametrize(
    ("transforms", "needed"),
    [
        ((), False), ((clip_by_norm(1.0),), False), ((normalise_steps(),), False), ((terngrad(),), False),
        ((sign(),), False), ((fp16(),), False), ((rand_k(0.5),), True), ((top_k(0.5),), True), ((prune(0.1),), True),
        ((shift(identity()),), True), ((clip_by_norm(1.0), shift(rand_k(0.1))), True),
        ((clip_by_norm(1.0), gaussian_noise(1.0, 1.0)), False),
    ],
)  # fmt: skip
def test_which_chains_need_a_mean(transforms, needed):
    assert chain(*transforms).needs_linear_rule == needed


def test_a_chain_names_its_compressor():
    assert chain(clip_by_norm(1.0), shift(rand_k(0.1))).compressor == rand_k(0.1)
    assert chain().compressor == identity()
    assert repr(chain(prune(0.1)).compressor) == "magnitude_prune(0.1)"


def test_members_wait_for_the_verdict_with_little_in_their_hands():
    outgoing = chain(clip_by_norm(1.0), shift(rand_k(0.1))).outgoing(
        normal(1000), *_states(chain(clip_by_norm(1.0), shift(rand_k(0.1))), 1000), context(1000)
    )
    assert [stage.size for stage in outgoing.stages[:-1]] == [0, 0]
    remembering = chain(clip_by_norm(1.0), prune(0.1, keep_withheld=True))
    outgoing = remembering.outgoing(normal(1000), *_states(remembering, 1000), context(1000))
    assert [stage.size for stage in outgoing.stages[:-1]] == [0, 1000]


def _states(of, n):
    return of.private_state(n), of.public_state(n)


@pytest.mark.parametrize("plan", [contiguous(20, 4), scattered(20, 4, public_root(1)), contiguous(20, 1)])
@pytest.mark.parametrize("missing", [(), (0,), (0, 2)])
def test_accepted_coordinates(plan, missing):
    missing = tuple(shard for shard in missing if shard < plan.shards)
    accepted = Accepted(plan, missing)
    expected = np.array([owner not in missing for owner in plan.owners_of(np.arange(20))])
    chosen, few = accepted.selects(None), accepted.selects(np.array([3, 4, 11]))
    if not missing:
        assert chosen is None
        assert few is None
    else:
        assert np.array_equal(chosen, expected)
        assert np.array_equal(few, expected[[3, 4, 11]])


def test_a_packed_vector_meets_only_plans_of_its_length():
    packed = Compress(rand_k(0.5)).outgoing(normal(10), context(10))
    with pytest.raises(PlanError, match="plan is for 12"):
        packed.parts(contiguous(12, 2))


# ── FedNova ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_fednova_undoes_unequal_work():
    """Members that only differ in how many equal steps they took contribute the same direction."""
    step, nova = normal(6), chain(normalise_steps())
    sent = [
        nova.outgoing(np.float32(tau) * step, {}, {}, context(6, steps=tau)).packed.values() for tau in (1.0, 2.0, 8.0)
    ]
    assert all(np.allclose(values, step, rtol=1e-6) for values in sent)
    direction = nova.incoming(MeanStretch(step.copy(), steps=np.float32(11 / 3)), {})
    assert np.array_equal(direction, step * np.float32(11 / 3))


def test_fednova_takes_one_number_for_each_coordinate_too():
    steps = np.array([1, 2, 3], np.float32)
    assert chain(normalise_steps()).incoming(MeanStretch(np.ones(3, np.float32), steps=steps), {}).tolist() == [1, 2, 3]


def test_fednova_behind_a_shift_scales_the_corrected_direction():
    nova = chain(normalise_steps(), shift(identity()))
    public = nova.public_state(3)
    public["1.reference"][:] = 1
    mean = MeanStretch(np.ones(3, np.float32), np.float32(2), np.float32(5))
    assert nova.incoming(mean, public).tolist() == [15, 15, 15]


@pytest.mark.parametrize("steps", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_numbers_of_steps(steps):
    with pytest.raises(InputError, match="local steps"):
        chain(normalise_steps()).outgoing(normal(3), {}, {}, context(3, steps=steps))
