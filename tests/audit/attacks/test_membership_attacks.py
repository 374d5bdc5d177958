"""Attacks on membership: they find what is there, are not misled by bad rounds, and keep their level under the null."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eris.audit.attack import CanaryProbe
from eris.audit.attacks.by_name import ATTACKS, STRONGEST, TUNING
from eris.audit.attacks.whitened_regression import expected, marginal
from eris.audit.canaries import plant
from eris.audit.membership import MembershipAudit
from eris.audit.observer import parse_observer
from eris.audit.scoring import area, standardised
from eris.events import Sent
from tests.audit.attacks.reference import StackedRegression
from tests.audit.federation import train

BOTH = (ATTACKS[STRONGEST], StackedRegression())
SIZE = {"samples": 32, "features": 300}


def scores(audited, observer, attacks=BOTH, events=None, rounds=-1):
    """Return by attack the scores of each member after some rounds, from the first place."""
    who = parse_observer(observer)
    audit = MembershipAudit(audited.composition, audited.problem, [who], views=1, attacks=attacks)
    for event in audited.events if events is None else events:
        audit(event)
    return {name: [part[rounds, 0] for part in members] for name, members in audit.scores(who).items()}


def auc(found, audited):
    pooled = np.concatenate([standardised(part) for part in found])
    return float(area(pooled, np.concatenate(audited.problem.canaries.coins)[None])[0])


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    return train(tmp_path_factory.mktemp("eris"), "rounds=6", **SIZE)


@pytest.mark.parametrize(("name", "least"), [("whitened", 0.95), ("lira", 0.75), ("rmia", 0.75)])
def test_a_server_is_told_by_every_attack(tmp_path, name, least):
    audited = train(tmp_path, "rounds=6", method="fedavg", **SIZE)
    assert auc(scores(audited, "server", (ATTACKS[name],))[name], audited) > least


def test_an_aggregator_of_five_and_broadcasts_tell_too(audited):
    assert auc(scores(audited, "aggregator")[STRONGEST], audited) > 0.95
    assert auc(scores(audited, "broadcast", BOTH[:1])[STRONGEST], audited) > 0.6


class Alone:
    """The default attack of somebody who knows the victim's candidates and nobody else's."""

    name, needs, cumulative = "alone", ATTACKS[STRONGEST].needs, True

    def score(self, seen, memory):
        return ATTACKS[STRONGEST].score(replace(seen, candidates=()), memory)


def test_a_mean_is_explained_better_by_the_candidates_of_all_its_members(tmp_path):
    """Means over several federations; with own values in hand it must make no difference at all."""
    leads = []
    for seed in range(1, 5):
        audited = train(tmp_path / str(seed), "rounds=6", seed=seed, **SIZE)
        together, alone = (auc(found, audited) for found in scores(audited, "broadcast", (BOTH[0], Alone())).values())
        leads.append(together - alone)
        own = scores(audited, "aggregator", (BOTH[0], Alone()))
        assert all(np.array_equal(*pair) for pair in zip(own[STRONGEST], own["alone"], strict=True))
    assert min(leads) > 0


def test_integrating_the_others_out_leaves_the_victims_expected_coins(audited):
    generator = np.random.default_rng(4)
    probes = tuple(CanaryProbe(audited.problem, member, np.zeros(1, np.float32)) for member in (0, 2, 3))
    count = sum(probe.count for probe in probes)
    rows = generator.standard_normal((count + 1, count + 9))
    together = rows @ rows.T
    for place, probe in enumerate(probes):
        start = sum(each.count for each in probes[:place])
        found = expected(marginal(together, probes, probe))
        assert found == pytest.approx(expected(together)[start : start + probe.count], rel=1e-9, abs=1e-9)


def test_who_takes_no_part_is_in_no_mean(tmp_path):
    """Three of five members train in a round: of the absent ones' canaries it must say nothing."""
    kept = []

    class Kept(Alone):
        def score(self, seen, memory):
            found = ATTACKS[STRONGEST].score(seen, memory)
            kept.append((seen, memory["together"].copy()))
            return found

    audited = train(tmp_path, "rounds=1", "participation=0.6", **SIZE)
    scores(audited, "broadcast", (Kept(),))
    assert len(kept) == 3
    for seen, together in kept:
        told = np.split(np.diag(together)[:-1], np.cumsum([probe.count for probe in seen.candidates])[:-1])
        assert {number for number, part in enumerate(told) if part.any()} == seen.averaged
        assert seen.probe.member in seen.averaged <= {each.probe.member for each, _ in kept}


@pytest.mark.parametrize("method", ["eris", "eris+dsc"])
def test_shifted_compression_and_kept_momentum_hide_little(tmp_path, method):
    kept = ("local.keep_state=true", "local.momentum=0.9", "rounds=6", "compression.keep=0.3")
    audited = train(tmp_path, *kept, method=method, momentum=0.9, **SIZE)
    assert auc(scores(audited, "aggregator")[STRONGEST], audited) > 0.75


def test_it_is_at_least_as_strong_as_the_reference(tmp_path):
    """In rounds of one step the reference misses nothing; the fitted noise must not cost anything."""
    differences = []
    for seed in range(1, 5):
        audited = train(tmp_path / str(seed), "rounds=4", seed=seed, **SIZE)
        ours, reference = (auc(found, audited) for found in scores(audited, "aggregator").values())
        differences.append(ours - reference)
    assert np.mean(differences) > 0


def test_the_stacked_attack_agrees_with_the_one_that_was_written_on_its_own(audited):
    """Both follow one description; they share no code."""
    found = scores(audited, "aggregator", (ATTACKS["stacked"], StackedRegression()))
    for ours, reference in zip(*found.values(), strict=True):
        assert np.corrcoef(ours, reference)[0, 1] > 0.999
        assert ours == pytest.approx(reference, abs=0.03)


def test_a_mean_with_others_tells_the_stacked_attack_something_too(audited):
    assert auc(scores(audited, "broadcast", (ATTACKS["stacked"],))["stacked"], audited) > 0.6
    silent = [replace(event, values=0 * event.values) if isinstance(event, Sent) else event for event in audited.events]
    for found in scores(audited, "aggregator", (ATTACKS["stacked"],), events=silent)["stacked"]:
        assert np.array_equal(found, np.full(16, 0.5))


def test_rounds_that_say_nothing_do_not_drown_those_that_do(audited):
    """The reference weighs all rounds alike and is lost; ours sees by the residual that a round does not fit."""
    generator = np.random.default_rng(3)
    spoilt = [_spoilt(event, generator) if isinstance(event, Sent) and event.round >= 3 else event
              for event in audited.events]  # fmt: skip
    found = scores(audited, "aggregator", events=spoilt)
    before = auc(scores(audited, "aggregator", rounds=2)[STRONGEST], audited)
    assert auc(found[STRONGEST], audited) > before - 0.02
    assert auc(found[STRONGEST], audited) > auc(found["reference"], audited) + 0.1


def _spoilt(sent, generator):
    noise = generator.standard_normal(sent.values.size).astype(np.float32)
    return replace(sent, values=30 * sent.values.std() * noise)


def test_an_attack_by_losses_never_builds_a_gradient(audited, monkeypatch):
    def refuse(*_):
        raise AssertionError("a gradient was built")

    monkeypatch.setattr(type(audited.problem.probe), "sample_gradients", refuse)
    scores(audited, "aggregator", [ATTACKS[name] for name in ("lira", "rmia", "calibrated", "loss", "paper")])
    with pytest.raises(AssertionError, match="a gradient was built"):
        scores(audited, "aggregator", BOTH[:1])


def test_a_member_that_sends_zeros_tells_nothing(audited):
    silent = [replace(event, values=0 * event.values) if isinstance(event, Sent) else event for event in audited.events]
    for found in scores(audited, "aggregator", BOTH[:1], events=silent)[STRONGEST]:
        assert np.array_equal(found, np.full(16, 0.5))


def test_the_default_is_the_best_on_the_tuning_seeds_and_reported_seeds_are_others():
    known = [name for name in ATTACKS if all(name in view for view in TUNING.auc.values())]
    assert {"whitened", "stacked", "lira", "rmia", "adaptive", "paper", "loss"} <= set(known)
    assert max(known, key=lambda name: sum(view[name] for view in TUNING.auc.values())) == STRONGEST
    assert set(TUNING.other_seeds(1, 10)).isdisjoint({*TUNING.seeds, *TUNING.chosen_on})
    assert list(TUNING.other_seeds(100, 2)) == [100, 101]


def test_another_draw_of_coins_is_not_found_in_a_real_training(tmp_path):
    """The whole pipeline runs with one set of coins and is scored against a second, drawn apart from it.

    Tossing against fixed scores only tests the statistics; here coins that were really planted decide what is trained
    on, and scores that find them must say nothing about the others. Each federation gives one independent z.
    """
    found, own = [], []
    for pipeline in range(12):
        audited = train(tmp_path / str(pipeline), "rounds=4", seed=50 + pipeline, **SIZE)
        pooled = np.concatenate([standardised(part) for part in scores(audited, "aggregator", BOTH[:1])[STRONGEST]])
        canaries = audited.problem.canaries
        others = plant([32] * len(canaries.coins), seed=5000 + pipeline).coins
        assert [len(part) for part in others] == [len(part) for part in canaries.coins]
        own.append(float(area(pooled, np.concatenate(canaries.coins)[None])[0]))
        heads = np.concatenate(others)
        inside, outside = heads.sum(), (~heads).sum()
        deviation = np.sqrt((len(heads) + 1) / (12 * inside * outside))
        found.append((float(area(pooled, heads[None])[0]) - 0.5) / deviation)
    assert np.mean(own) > 0.9  # so there is something to mistake
    assert abs(np.mean(found)) < 3 / np.sqrt(len(found))
    assert 0.3 < np.std(found) < 1.8


def test_coins_that_the_training_never_saw_are_not_found(tmp_path):
    """Twenty pipelines, and in each a thousand tosses that are independent of the training.

    With m heads among n the area's deviation under chance is √((n + 1) / (12 m (n − m))); tosses of one pipeline share
    its scores, which is no matter: given any scores, every toss is a fair draw.
    """
    shares, deviations = [], []
    for pipeline in range(20):
        audited = train(tmp_path / str(pipeline), "rounds=2", samples=16, seed=pipeline + 1)
        found = scores(audited, "aggregator", BOTH[:1])[STRONGEST]
        pooled = np.concatenate([standardised(part) for part in found])
        tosses = np.random.default_rng(1000 + pipeline).random((1000, len(pooled))) < 0.5
        heads = tosses.sum(axis=1)
        deviation = np.sqrt((len(pooled) + 1) / (12 * heads * (len(pooled) - heads)))
        z = (area(pooled, tosses) - 0.5) / deviation
        deviations.append(z.mean())
        shares.append((np.abs(z) > 1.96).mean())
    assert abs(np.mean(deviations)) < 4 / np.sqrt(20_000)
    assert 0.04 < np.mean(shares) < 0.06
