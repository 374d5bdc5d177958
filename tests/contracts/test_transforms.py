"""What every transform keeps to: the rules of `eris.transforms`, and what settles when."""

from __future__ import annotations

import numpy as np
import pytest

from eris.methods.named_transforms import TRANSFORMS
from eris.methods.own_model import own_model
from eris.privacy import clip_by_norm, gaussian_noise
from eris.seeds import public_root
from eris.shards.plan import scattered
from eris.transforms import Accepted, Chain, MeanStretch, chain, normalise_steps, prune, qsgd, rand_k, shift, top_k
from tests.transforms.scenes import context, normal

N = 60
PLAN = scattered(N, 4, public_root(3))
CHAINS = [
    chain(clip_by_norm(1.0)),
    chain(normalise_steps()),
    chain(clip_by_norm(1.0), gaussian_noise(0.5, 1.0)),
    chain(qsgd(4)),
    chain(prune(0.3)),
    chain(prune(0.3, keep_withheld=True)),
    chain(shift(rand_k(0.3))),
    chain(shift(top_k(0.3), gamma=1)),
    chain(shift(rand_k(0.3), shared_reference=True)),
    chain(own_model(), rand_k(0.3)),
]
every = pytest.mark.parametrize("made", CHAINS, ids=Chain.describe)


def here():
    return context(PLAN, tensors=(N,), steps=3.0)


def states(made: Chain):
    """Return states that are not all zero, as after some rounds."""
    private, public = made.private_state(N), made.public_state(N)
    for number, vector in enumerate((*private.values(), *public.values())):
        vector[:] = normal(N, seed=number + 5)
    return private, public


def copied(state):
    return {name: vector.copy() for name, vector in state.items()}


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_every_transform_by_name_is_here():
    tried = {type(transform) for made in CHAINS for transform in made.transforms}
    made = [
        *(TRANSFORMS["clip_by_norm"](1.0), TRANSFORMS["compress"](qsgd(4)), TRANSFORMS["gaussian_noise"](1.0, 1.0)),
        *(TRANSFORMS["normalise_steps"](), TRANSFORMS["prune"](0.1), TRANSFORMS["shift"](rand_k(0.5))),
    ]
    assert len(made) == len(TRANSFORMS)
    assert {type(transform) for transform in made} <= tried


@every
def test_the_way_out_changes_neither_the_update_nor_a_state_and_repeats_itself(made):
    (private, public), update = states(made), normal(N)
    for vector in (update, *private.values(), *public.values()):
        vector.flags.writeable = False
    first, second = (made.outgoing(update, private, public, here()).packed for _ in range(2))
    assert np.array_equal(first.dense(), second.dense())


@every
def test_the_way_back_may_go_stretch_by_stretch(made):
    _, whole = states(made)
    parts, values, steps = copied(whole), normal(N), np.abs(normal(N, seed=2))
    direction = made.incoming(MeanStretch(values, np.float32(1.25), steps, whole=N), whole)
    for place in (slice(0, 7), slice(7, 40), slice(40, N)):
        part = MeanStretch(values[place], np.float32(1.25), steps[place], whole=N)
        on = {name: vector[place] for name, vector in parts.items()}
        assert np.array_equal(made.incoming(part, on), direction[place])
    assert same(whole, parts)


@every
def test_nothing_settles_on_a_round_that_was_lost(made):
    private, public = states(made)
    before = copied(private)
    made.settle(made.outgoing(normal(N), private, public, here()), private, Accepted(PLAN, tuple(range(4))))
    assert same(before, private)


@every
def test_private_state_settles_on_accepted_shards_only(made):
    private, public = states(made)
    before = copied(private)
    made.settle(made.outgoing(normal(N), private, public, here()), private, Accepted(PLAN, (2,)))
    lost = PLAN.coordinates(2)
    assert all(np.array_equal(before[name][lost], private[name][lost]) for name in before)


@every
def test_states_are_changed_in_place_and_have_the_length_of_the_model(made):
    private, public = states(made)
    held = {**private, **public}
    made.settle(made.outgoing(normal(N), private, public, here()), private, Accepted(PLAN))
    made.incoming(MeanStretch(normal(N), whole=N), public)
    made.new_epoch(private, public)
    assert all({**private, **public}[name] is vector for name, vector in held.items())
    assert all(vector.size == N for vector in held.values())


@every
def test_it_has_a_name(made):
    assert all(" object at " not in repr(transform) for transform in made.transforms)
