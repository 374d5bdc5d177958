"""How long a mean, and a contribution to it, may be: also where a model has converged and its steps are tiny."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from eris.errors import Reason, Refused
from eris.protocol.aggregator import Aggregator
from eris.protocol.member import Member
from eris.protocol.messages import Published
from eris.protocol.step_guard import StepGuard
from eris.seeds import private_root
from tests.protocol.test_rounds import recipe, world
from tests.protocol.world import Peer, World, pretend_to_train, sign_as, verify

ROUNDS, SHARDS = 40, 2


def guarded(rounds: int) -> tuple[World, dict[int, StepGuard]]:
    """Play rounds of members that pull towards points of their own, with a guard at every peer.

    When the model stands still their updates still are as long as they are apart, and the mean is next to nothing.
    """
    made, guards = world(SHARDS, made=recipe(SHARDS)), dict[int, StepGuard]()
    for peer in made.peers:
        guards[peer] = guard = StepGuard("auto")
        member = Member(
            peer, made.recipe, made.model, private_root(0, peer), floor=made.floor, verify=verify, guard=guard
        )
        made.peers[peer] = Peer(member, Aggregator(peer, made.recipe, sign=sign_as(peer), verify=verify, guard=guard))
    made.settle(rounds=rounds)
    return made, guards


def test_members_that_pull_against_each_other_converge_and_nobody_is_refused() -> None:
    made, guards = guarded(ROUNDS)
    assert not made.refusals
    assert [verdict.lost_shards for _, verdict in made.verdicts] == [()] * ROUNDS
    usual, own = statistics.median(guards[0]._lengths), statistics.median(guards[0]._own)
    assert 10 * usual < own / len(made.peers)  # measured by the means alone, most contributions would be too long


@pytest.mark.parametrize(("times", "refused"), [(1.0, False), (1e3, True)])
def test_a_contribution_is_measured_by_those_before_it_and_not_waited_for_when_refused(
    times: float, refused: bool
) -> None:
    made, _ = guarded(ROUNDS)
    assert made.coordinator is not None
    plan = made.coordinator.plan(made.now)
    aggregator, shard = made.peers[plan.assignment[0]].aggregator, 0
    aggregator.begin(plan, made.now)
    reasons, outcomes = [], []
    for member in (made.peers[peer].member for peer in plan.participants):
        member.begin(plan)
        upload = member.contribute(pretend_to_train(member.look(), member.peer, plan.round))[shard]
        if member.peer == 1:
            upload.part.symbols[:] *= np.float32(times)
        try:
            aggregator.receive(upload, member.peer)
        except Refused as refusal:
            reasons.append((member.peer, refusal.reason))
        outcomes += aggregator.tick(made.now)  # long before the cut
    assert reasons == ([(1, Reason.OUT_OF_RANGE)] if refused else [])
    (published,) = outcomes
    assert isinstance(published, Published)
    assert (1 in published.manifest.contributors) is not refused


def test_the_steps_of_a_converged_model_are_of_any_length() -> None:
    guard = StepGuard("auto")
    for step in [1.0] * 20 + [1e-9] * 40:
        guard.note(step)
    assert guard.allows(np.full(4, 1e-6, np.float32))  # a thousand times the usual, and nothing
    assert not guard.allows(np.full(4, 1e-2, np.float32))
