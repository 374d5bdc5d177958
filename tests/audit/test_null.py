"""Coins that have nothing to do with the training: twenty trainings, a thousand tosses each, and nothing is found.

Once they are tossed after scoring, which checks the statistics. Once they are planted beforehand, in the audit's own
hands all along, and the training ignores them: then an attack that reads coins is caught.
"""

from __future__ import annotations

import numpy as np
import pytest

from eris.audit.attack import Memory, Observation
from eris.audit.membership import MembershipAudit
from eris.audit.observer import Observer
from eris.audit.scoring import Scores, area, pooled
from tests.audit.federation import Audited, train

PIPELINES, TOSSES = 20, 1000
SPREAD = 1 / np.sqrt(3 * TOSSES)  # standard deviation of the area of as many coins by chance


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train twenty federations, each with other data and coins, and let the default attack score their canaries."""
    found = []
    for number in range(PIPELINES):
        method = ("eris", "eris+dsc")[number % 2]
        audited = train(tmp_path_factory.mktemp("null"), method=method, seed=100 + number)
        audit = audited.audit("aggregator", views=1)
        found.append(audit.result(audit.observers[0], "whitened", tosses=200))
    return found


def test_independent_coins_are_guessed_at_chance(trained):
    generator = np.random.default_rng(2026)
    means, above = [], 0
    for result in trained:
        (scores,) = pooled(result.sheet.last)
        areas = area(scores, generator.random((TOSSES, scores.size)) < 0.5)
        means.append(areas.mean())
        above += int((areas > result.figures["auc"].chance_95).sum())
    assert np.mean(means) == pytest.approx(0.5, abs=0.002)
    assert max(abs(mean - 0.5) for mean in means) < 0.02
    assert above / (PIPELINES * TOSSES) == pytest.approx(0.05, abs=0.015)


def test_the_real_coins_of_the_same_trainings_are_not(trained):
    assert np.mean([result.figures["auc"].value for result in trained]) > 0.6


class Peeking:
    """An attack that cheats: it looks up the coins in the task that it was given to ask for gradients."""

    name, needs, cumulative = "peeking", frozenset(), True

    def score(self, seen: Observation, memory: Memory) -> Scores:
        del memory
        noise = np.random.default_rng(seen.round).standard_normal(seen.probe.count)
        return noise + 0.2 * seen.probe._planted.canaries.coins[seen.probe.member]


@pytest.fixture(scope="module")
def heedless(tmp_path_factory) -> list[Audited]:
    """Train twenty federations on all canaries, whatever their coins say: 5 members × 200 coins."""
    folder = tmp_path_factory.mktemp("heedless")
    methods = ("eris", "eris+dsc", "eris+masked")
    return [
        train(
            folder / str(number), "rounds=2", method=methods[number % 3], seed=300 + number, samples=400, heeding=False
        )
        for number in range(PIPELINES)
    ]


def areas_of(trained: list[Audited], **attacks) -> dict[str, list[float]]:
    """Return every attack's area in each federation, judged by the coins that were planted before the training."""
    observer, found = Observer("aggregator"), {}
    for audited in trained:
        audit = MembershipAudit(audited.composition, audited.problem, [observer], views=1, **attacks)
        for event in audited.events:
            audit(event)
        for attack in audit.attacks:
            figure = audit.result(observer, attack.name, tosses=1).figures["auc"]
            found.setdefault(attack.name, []).append(figure.value)
    return found


def test_planted_coins_that_the_training_ignores_are_guessed_at_chance(heedless):
    assert {audited.problem.canaries.count for audited in heedless} == {TOSSES}
    found = areas_of(heedless)
    assert "whitened" in found
    for name, areas in found.items():
        assert np.mean(areas) == pytest.approx(0.5, abs=3.5 * SPREAD / np.sqrt(PIPELINES)), name
        assert max(abs(one - 0.5) for one in areas) < 4.5 * SPREAD, name


def test_an_attack_that_reads_them_is_caught(heedless):
    """Even one that only leans on the coins: otherwise the test above could not fail."""
    assert np.mean(areas_of(heedless, attacks=[Peeking()])["peeking"]) > 0.5 + 10 * SPREAD / np.sqrt(PIPELINES)
