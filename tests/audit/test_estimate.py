"""What an attacker makes of its view: exact where it can be, never more than the view allows."""

from __future__ import annotations

import numpy as np
import pytest

from eris.audit.estimate import UpdateEstimator
from eris.audit.observer import Vantage
from tests.audit.federation import MEMBERS, train


def followed(audited, victim, vantage, **options):
    watcher = UpdateEstimator(audited.composition.recipe, victim, vantage, **options)
    for record in audited.records():
        estimate = watcher.follow(record)
        yield record, estimate, audited.updates[record.round, victim]


def close(found, true, scale=1.0):
    np.testing.assert_allclose(found, true, rtol=0, atol=2e-6 * scale * max(1.0, np.abs(true).max(initial=0.0)))


@pytest.mark.parametrize(
    "changes",
    [
        ("compression.keep=0.3",),
        ("compression.keep=0.3", "compression.masks=independent"),
        ("compression.keep=0.3", "compression.shared_reference=true"),
        ("compression.compressor=bernoulli", "compression.keep=0.4"),
        ("compression.compressor=stratified_rand_k", "compression.keep=0.25"),
        ("compression.keep=0.3", "faults.link_failure=0.3", "server.min_contributors=1"),
        ("compression.keep=0.3", "participation=0.6", "rounds=6"),
        ("compression.keep=0.3", "participation=0.6", "rounds=6", "compression.shared_reference=true"),
    ],
    ids=["rand-k", "independent", "shared reference", "bernoulli", "stratified", "lost links", "some", "some, shared"],
)
def test_whoever_follows_the_references_has_the_update_itself(tmp_path, changes):
    audited = train(tmp_path, "rounds=5", *changes, method="eris+dsc")
    watcher = UpdateEstimator(audited.composition.recipe, 0, Vantage((1, 3), "own"))
    seen = 0
    for record in audited.records():
        if 0 in record.sent:
            estimate = watcher.follow(record)
            close(estimate.update, audited.updates[record.round, 0][estimate.view.coordinates])
            seen += estimate.update.size
        else:
            watcher.miss(record)
    assert seen > 40


def test_the_raw_values_are_not_the_update(tmp_path):
    """Otherwise the test above would hold for an attacker that ignores scale and reference."""
    audited = train(tmp_path, "compression.keep=0.3", method="eris+dsc")
    _, estimate, true = list(followed(audited, 0, Vantage((1,), "own")))[-1]
    assert np.abs(estimate.view.values - true[estimate.view.coordinates]).max() > 0.5 * np.abs(true).max()


def test_without_compression_the_values_are_the_update(tmp_path):
    for _, estimate, true in followed(train(tmp_path), 0, Vantage((2,), "own")):
        assert np.array_equal(estimate.update, true[estimate.view.coordinates])


def test_the_rest_is_the_mean_of_the_others(tmp_path):
    audited = train(tmp_path)
    weights = np.array([audited.problem.task.samples(member) for member in range(MEMBERS)], float)
    for record, estimate, _ in followed(audited, 0, Vantage((2,), "own")):
        others = [member for member in range(MEMBERS) if member != 2]
        mean = np.average([audited.updates[record.round, k] for k in others], axis=0, weights=weights[others])
        close(estimate.means, mean[estimate.rest])
        assert estimate.share == pytest.approx(weights[0] / weights[others].sum())
        assert estimate.rest.size + estimate.view.coordinates.size == record.layout.trainable.n


@pytest.mark.parametrize("method", ["eris", "eris+dsc"])
def test_if_all_others_collude_the_last_shard_is_known_by_subtraction(tmp_path, method):
    """The largest coalition of a federation in which all aggregate misses one shard, and needs it not."""
    audited = train(tmp_path, method=method)
    for _, estimate, true in followed(audited, 0, Vantage((1, 2, 3, 4), "own")):
        assert estimate.seen.size > estimate.view.coordinates.size
        assert not estimate.rest.size
        close(estimate.update, true[estimate.seen], scale=20)


def test_momentum_is_taken_off(tmp_path):
    changes = ("local.momentum=0.9", "local.keep_state=true")
    audited = train(tmp_path, *changes, momentum=0.9, lr=0.1)
    task = audited.problem.task
    for record, estimate, _ in followed(audited, 0, Vantage((1,), "own"), momentum=0.9):
        features, labels = task._train[0]
        gradient = 0.1 * task.gradient(record.model, features, labels)[1]
        close(estimate.fresh_update, gradient[estimate.view.coordinates], scale=5)


def test_a_redrawn_plan_makes_the_attacker_guess_what_it_missed(tmp_path):
    audited = train(tmp_path, "rounds=6", "shards.schedule=redraw", "compression.keep=0.5", method="eris+dsc")
    errors, raw = [], []
    for _, estimate, true in followed(audited, 0, Vantage((1,), "own")):
        errors.append(np.abs(estimate.update - true[estimate.view.coordinates]).mean())
        raw.append(np.abs(estimate.view.values - true[estimate.view.coordinates]).mean())
    assert errors[0] < 1e-6
    assert np.mean(errors[1:]) < 0.8 * np.mean(raw[1:])


def test_what_only_the_victim_kept_is_published_to_everybody_if_masks_are_known(tmp_path):
    """With independent masks from a public seed, anybody could read these values off the means."""
    changes = ("rounds=4", "compression.keep=0.2", "compression.masks=independent")
    audited = train(tmp_path, *changes, method="eris+dsc")
    anybody = Vantage((3,), "none")
    for record, estimate, true in followed(audited, 0, anybody, masks_known=True):
        support = record.sent[0].support
        alone = [np.isin(support, record.sent[k].support, invert=True) for k in (1, 2, 4)]
        assert np.array_equal(estimate.seen, support[np.all(alone, axis=0)])
        assert set(estimate.rest) == set(support) - set(estimate.seen)
        if record.round == 0:
            close(estimate.update, true[estimate.seen], scale=5)
            assert estimate.seen.size > 0.3 * support.size
    assert not any(e.seen.size for _, e, _ in followed(audited, 0, anybody))  # our masks are secret


def test_a_shard_with_one_contributor_hides_nothing(tmp_path):
    audited = train(tmp_path, "faults.link_failure=0.6", "server.min_contributors=1", "rounds=4")
    found = 0
    for record, estimate, true in followed(audited, 0, Vantage((3,), "none")):
        shards = [s for s, mean in record.means.items() if set(mean.contributors) - {3} == {0}]
        assert set(record.layout.trainable.owners_of(estimate.seen).tolist()) == set(shards)
        close(estimate.update, true[estimate.seen], scale=5)
        found += len(shards)
    assert found
