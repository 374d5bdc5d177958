"""Two committed sums that differ by one member: no mask prevents that, and slowly changing updates give it away."""

from __future__ import annotations

import numpy as np

from eris.audit.attack import CanaryProbe, Observation, PublicProbe
from eris.audit.attacks.by_name import ATTACKS
from eris.audit.estimate import UpdateEstimate
from eris.audit.scoring import area, pooled, standardised
from eris.events import RoundStarted, Sent, ShardPublished
from eris.view import View
from tests.audit.test_captured_bytes import Tapped, scored

MEMBERS = range(1, 8)  # all but the one that looks
WHITENED = ATTACKS["whitened"]


def sum_in(tapped: Tapped, round: int) -> np.ndarray:
    """Return everything that a round published."""
    whole = np.zeros(tapped.recipe.spec.n_trainable, np.float32)
    for event in tapped.events:
        if isinstance(event, ShardPublished) and event.round == round:
            assert not event.lost
            whole[tapped.recipe.layout(round).trainable.coordinates(event.shard)] = event.values
    return whole


def sent_by(tapped: Tapped, round: int, member: int) -> Sent:
    return next(e for e in tapped.events if isinstance(e, Sent) and (e.round, e.member) == (round, member))


def scores_of(tapped: Tapped, member: int) -> np.ndarray:
    """Attack the difference of the sums of rounds 0 and 1, in the second of which the member was not there."""
    weight = np.float32(sent_by(tapped, 0, member).weight)
    values = (sum_in(tapped, 0) - sum_in(tapped, 1)) / weight
    none, nowhere = np.empty(0, np.float32), np.empty(0, np.int64)
    estimate = UpdateEstimate(
        View(0, member, nowhere, none, nowhere, none, {}),
        np.arange(values.size),
        values,
        nowhere,
        none,
        0.0,
        values,
        none,
    )
    model = next(event.model for event in tapped.events if isinstance(event, RoundStarted))
    probe, public = CanaryProbe(tapped.problem, member, model), PublicProbe(tapped.problem.public, model)
    rate, samples = tapped.composition.config.local.lr, tapped.problem.task.samples(member)
    return WHITENED.score(Observation(0, estimate, probe, samples, rate, public), {})


def test_a_member_that_sits_a_round_out_is_found_in_the_difference_of_two_sums():
    """Everybody can do it from broadcasts alone: real roles, masks on, nothing refused."""
    there = Tapped(1).run(2, lost=None)
    without = {k: Tapped(1).run(2, lost=None, absent=(1, k)) for k in MEMBERS}
    for k, tapped in without.items():
        # The sum without a member is the sum less its part, which benchmarks/attackers.py takes for granted.
        part = np.float32(sent_by(there, 1, k).weight) * sent_by(there, 1, k).values
        assert np.allclose(sum_in(tapped, 1), sum_in(there, 1) - part, rtol=0, atol=1e-6)
    (together,) = pooled([standardised(scores_of(without[k], k)[None]) for k in MEMBERS])
    coins = np.concatenate([there.problem.canaries.coins[k] for k in MEMBERS])
    found = float(area(together, coins[None])[0])
    assert found > scored(there, there.events, "broadcast", WHITENED) + 0.05
    assert found > 0.9
