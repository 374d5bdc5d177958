"""Whoever has a capability's method has the capability, and nobody else."""

from __future__ import annotations

import numpy as np
import pytest

from eris.errors import ConfigError
from eris.methods.own_model import own_model
from eris.methods.scaffold import ControlVariates
from eris.privacy import clip_by_norm, gaussian_noise
from eris.transforms import (
    AddsNoise,
    BeginsEpochs,
    BoundsNorm,
    ChangesStart,
    ChecksChain,
    ChecksLength,
    Compress,
    Drifts,
    KeepsPrivateState,
    KeepsPublicState,
    MeanStretch,
    Packs,
    PacksBlocks,
    Settles,
    SettlesUpdate,
    Transform,
    capabilities,
    chain,
    identity,
    normalise_steps,
    prune,
    rand_k,
    shift,
    top_k,
)
from tests.transforms.scenes import context, normal

PACKING = {Packs, PacksBlocks}
SHIFTING = PACKING | {KeepsPrivateState, KeepsPublicState, Settles, BeginsEpochs, ChecksLength}
HAVE = [
    (Transform(), set()),
    (clip_by_norm(1.0), {BoundsNorm}),
    (normalise_steps(), set()),
    (gaussian_noise(1.0, 1.0), {AddsNoise, ChecksChain}),
    (Compress(identity()), PACKING),
    (shift(rand_k(0.5)), SHIFTING),
    (prune(0.1), PACKING),
    (prune(0.1, keep_withheld=True), PACKING | {KeepsPrivateState, SettlesUpdate, ChangesStart, ChecksChain}),
    (ControlVariates(0.1), {KeepsPrivateState, KeepsPublicState, Settles, BeginsEpochs, Drifts}),
    (own_model(), {KeepsPrivateState, KeepsPublicState, BeginsEpochs, ChangesStart}),
]


@pytest.mark.parametrize(
    ("transform", "expected"), HAVE, ids=lambda value: "" if isinstance(value, set) else repr(value)[:40]
)
def test_capabilities_are_found_by_their_methods(transform, expected):
    every = {getattr(capabilities, name) for name in capabilities.__all__}
    assert len(every) == 13
    assert {capability for capability in every if isinstance(transform, capability)} == expected


def test_a_transform_itself_is_two_methods_and_four_facts():
    assert {name for name in vars(Transform) if not name.startswith("_")} == {
        "needs_linear_rule",
        "needs_steps",
        "only_sums",
        "direction_per_value",
        "outgoing",
        "incoming",
    }


@pytest.mark.parametrize(
    ("transforms", "blocks", "start", "noise"),
    [
        ((), False, False, False),
        ((rand_k(0.5),), True, False, False),
        ((shift(rand_k(0.5)),), True, False, False),
        ((shift(top_k(0.5), gamma=1),), False, False, False),
        ((clip_by_norm(1.0), rand_k(0.5)), False, False, False),
        ((clip_by_norm(1.0), gaussian_noise(1.0, 1.0)), False, False, True),
        ((prune(0.1),), False, False, False),
        ((prune(0.1, keep_withheld=True),), False, True, False),
        ((own_model(), rand_k(0.5)), False, True, False),
    ],
    ids=repr,
)
def test_a_chain_can_do_what_its_transforms_can(transforms, blocks, start, noise):
    made = chain(*transforms)
    assert (made.packs_blocks, made.changes_start, made.adds_noise) == (blocks, start, noise)


def test_noise_behind_what_does_not_say_its_norm_is_refused():
    class Doubles(Transform):
        def outgoing(self, update, context):
            return update + update

    class DoublesAndSays(Doubles):
        def norm_bound(self, before):
            return None if before is None else 2 * before

    with pytest.raises(ConfigError, match="unbounded"):
        chain(clip_by_norm(1.0), Doubles(), gaussian_noise(1.0, 1.0))
    with pytest.raises(ConfigError, match=r"up to 2\.0"):
        chain(clip_by_norm(1.0), DoublesAndSays(), gaussian_noise(1.0, 1.0))
    chain(clip_by_norm(1.0), DoublesAndSays(), gaussian_noise(1.0, 2.0))


def test_what_keeps_nothing_is_given_no_state():
    seen = []

    class Looks(Transform):
        def outgoing(self, update, context):
            seen.append((context.private_state, context.public_state))
            return update

        def incoming(self, direction, mean):
            seen.append(mean.public_state)

    made = chain(Looks(), shift(rand_k(0.5)))
    private, public = made.private_state(4), made.public_state(4)
    made.outgoing(normal(4), private, public, context(4))
    made.incoming(MeanStretch(np.zeros(4, np.float32)), public)
    assert seen == [({}, {}), {}]
