"""Coins that have nothing to do with the training: twenty trainings, a thousand tosses each, and nothing is found."""

from __future__ import annotations

import numpy as np
import pytest

from eris.audit.scoring import area, pooled
from tests.audit.federation import train

PIPELINES, TOSSES = 20, 1000


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
