"""What must hold, as functions that raise AssertionError where it does not. Each has a name that mutations refer to."""

from __future__ import annotations

import numpy as np
import pytest

from eris.errors import InputError
from eris.events import Event, RoundStarted
from eris.local.spec import Vector
from eris.local.task import LocalResult
from eris.privacy import clip_by_norm
from eris.privacy.noise import gaussian_noise
from eris.seeds import private_root, public_root
from eris.shards.plan import contiguous
from eris.transforms import SendContext, State, Transform, chain
from tests.equivalence.case import Case
from tests.equivalence.federation import Federation
from tests.equivalence.reference import centrally
from tests.equivalence.simulated import simulate


def equals_the_reference(case: Case) -> None:
    """Model, optimizer state and all references are those of the plain loop, with the same messages missing."""
    federation = Federation(case)
    outcome = federation.run()
    differences = outcome.differences(centrally(case, federation.participants))
    assert not differences, f"not what a central server would have: {differences}"


def the_simulator_equals_the_reference(case: Case) -> None:
    """So they are where the simulator plays all peers, without messages."""
    outcome, participants = simulate(case)
    assert len(participants) == case.rounds
    differences = outcome.differences(centrally(case, participants))
    assert not differences, f"not what a central server would have: {differences}"


class OneAhead(Transform):
    """Lets members train from the common model plus one."""

    def start(self, model: Vector, private: State) -> None:
        model += np.float32(1)


def training_begins_where_the_chain_says(case: Case) -> None:
    """Members train from what the chain makes of the common model; buffers stay, and so does the model itself."""
    federation = Federation(case, OneAhead())
    plan = federation.plan()
    for member in federation.members.values():
        member.begin(plan)
        _is_one_ahead(member.look(), member.replica.model, case)
        assert np.array_equal(member.replica.model, case.initial)


def the_simulators_training_begins_there_too(case: Case) -> None:
    """So do the members of the simulator."""
    common: list[Vector] = []

    def listen(event: Event) -> None:
        if isinstance(event, RoundStarted) and event.model is not None:
            common.append(event.model.copy())

    seen: list[Vector] = []
    simulate(case.change(rounds=1), OneAhead(), listeners=[listen], trained=lambda model: seen.append(model.copy()))
    assert len(seen) == case.members
    for model in seen:
        _is_one_ahead(model, common[0], case)


def _is_one_ahead(model: Vector, common: Vector, case: Case) -> None:
    assert np.array_equal(model[: case.n], common[: case.n] + np.float32(1))
    assert np.array_equal(model[case.n :], common[case.n :])


def equals_one_aggregator(case: Case) -> None:
    """Cutting the vector into shards changes no bit."""
    alone = case.change(shards=1, capacities=None, arrival=0)
    differences = Federation(case).run().differences(Federation(alone).run())
    assert not differences, f"A = {case.shards} and A = 1 differ: {differences}"


def equals_one_aggregator_and_the_reference(case: Case) -> None:
    """Both at once, with one run of the case."""
    federation = Federation(case)
    outcome = federation.run()
    alone = Federation(case.change(shards=1, capacities=None, arrival=0)).run()
    assert not outcome.differences(alone)
    assert not outcome.differences(centrally(case, federation.participants))


def order_of_arrival_does_not_matter(case: Case) -> None:
    """Messages may come in any order, and twice."""
    first, second = (Federation(case.change(arrival=arrival)).run() for arrival in (1, 2))
    assert not first.differences(second)
    assert not first.differences(Federation(case.change(arrival=0)).run())


def references_add_up(case: Case) -> None:
    """s = Σ w_k s_k over all members, up to rounding, after every round."""
    federation = Federation(case)
    total = sum(case.member_weights)
    for _ in range(case.rounds):
        federation.round()
        outcome = federation.outcome()
        assert outcome.reference is not None
        parts = [case.member_weights[k] / total * s_k.astype(float) for k, s_k in outcome.references.items()]
        largest = max(float(np.abs(s_k).max()) for s_k in outcome.references.values())
        error = float(np.abs(outcome.reference - np.sum(parts, axis=0)).max())
        assert error <= 1e-5 * max(largest, 1e-30), f"s is off by {error:.1e}"


def lost_shards_are_frozen(case: Case) -> None:
    """On the coordinates of a lost shard nothing moves: model, optimizer state, s."""
    federation = Federation(case)
    before = federation.outcome()
    some_lost = False
    for round in range(case.rounds):
        federation.round()
        after = federation.outcome()
        for shard in case.faults(round).shards:
            mine = case.policy.layout(round).trainable.coordinates(shard)
            some_lost |= mine.size > 0
            for name, old in before._named().items():
                if not name.startswith("s_"):
                    assert np.array_equal(old[mine], after._named()[name][mine]), f"{name} moved on a lost shard"
        before = after
    assert some_lost, "the case loses nothing"


def nobody_moves_before_the_verdict(case: Case) -> None:
    """Until the verdict, state is untouched at every peer, whatever it has received."""
    federation = Federation(case)

    def look() -> None:
        for member in peers:
            member.report()
        now = [(m.replica.digest(), {name: value.copy() for name, value in m.private.items()}) for m in peers]
        assert [digest for digest, _ in now] == [digest for digest, _ in earlier], "a model moved early"
        for (_, mine), (_, old) in zip(now, earlier, strict=True):
            assert all(np.array_equal(mine[name], old[name]) for name in old), "a private reference moved early"

    federation.before_the_verdict = look  # type: ignore[method-assign]
    peers = list(federation.members.values())
    for _ in range(case.rounds):
        earlier = [(m.replica.digest(), {name: value.copy() for name, value in m.private.items()}) for m in peers]
        federation.round()


def noise_is_private(case: Case) -> None:
    """Noise is refused a public seed, and no two members draw the same."""
    noisy = chain(clip_by_norm(1.0), gaussian_noise(1.0, bound=1.0))
    plan, zeros = contiguous(case.n, 1), np.zeros(case.n, np.float32)
    public = public_root(case.seed).child("round", 0)
    with pytest.raises(InputError, match="private seed"):
        noisy.outgoing(zeros, {}, {}, SendContext(0, 0, plan, public, public))
    federation = Federation(case.change(buffers=0), clip_by_norm(1.0), gaussian_noise(1.0, bound=1.0))
    round_plan = federation.coordinator.plan(0.0)
    drawn = []
    for member in federation.members.values():
        member.begin(round_plan)
        uploads = member.contribute(LocalResult(zeros, samples=1))
        drawn.append(np.concatenate([upload.part.values() for upload in uploads]))
    assert len({values.tobytes() for values in drawn}) == case.members, "members drew the same noise"
    secret = private_root(case.seed, 0)
    assert not np.array_equal(secret.words(4), public_root(case.seed).words(4))
