"""Coordinators that plan again and again, so that a friend collects an update piece by piece."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from eris.aggregate.mean import WeightedMean
from eris.events import Received, VerdictWritten
from eris.local.spec import ModelSpec, TensorSpec
from eris.local.task import LocalResult
from eris.protocol.coordinator import Coordinator
from eris.protocol.floor import Floor
from eris.protocol.journal import Entry
from eris.protocol.member import Member
from eris.protocol.messages import Manifest, Published, Upload, payload_hash
from eris.protocol.open_round import OpenRound
from eris.protocol.recipe import Recipe
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.protocol.rules import Rules
from eris.protocol.shown import SHOWN, Shown
from eris.protocol.verdict import GENESIS, ShardVerdict, Verdict
from eris.seeds import private_root, public_root
from eris.shards.policy import ShardPolicy
from eris.step.plain import FedAvgM
from eris.transforms import chain
from tests.peer.town import noting, settings, town

FRIEND, PEERS, SHARDS = "birch", 6, 5
SPEC = ModelSpec((
    TensorSpec("weight", (50,), "float32", "trainable"),
    TensorSpec("mean", (10,), "float32", "buffer"),
))  # fmt: skip


def test_prevented_lost_rounds_with_rotated_shards_show_a_friend_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevented, over TLS, counted from the bytes that the friend received; the run goes on to its end."""
    config = settings("members=5", "aggregators=5", "rounds=5", "server.min_contributors=1")
    monkeypatch.setattr(
        Coordinator, "_assignment", lambda self, _: (tuple((shard + self.round) % 5 for shard in range(5)), ())
    )
    monkeypatch.setattr(
        OpenRound, "_shard", lambda self, shard, *_: ShardVerdict(shard, self.plan.assignment[shard], lost="so I say")
    )
    with town(tmp_path, config, round=6.0) as place:
        received: list[Received] = []
        verdicts: list[VerdictWritten] = []
        floor = Floor(max_share=0.45, min_contributors=1)
        nodes = {
            name: place.node(
                name,
                floor=floor,
                listeners=noting(received, Received) if name == FRIEND else noting(verdicts, VerdictWritten),
            )
            for name in place.names
        }
        for name, node in nodes.items():
            place.start(name, node.run)
        place.wait()
        n, friend = nodes[FRIEND].recipe.spec.n, place.names.index(FRIEND)
        assert {event.plan.round for event in verdicts} == set(range(5))
        assert {event.plan.shards_of(friend) for event in verdicts} == {(shard,) for shard in range(5)}
        for victim in set(range(5)) - {friend}:
            seen = [event.coordinates for event in received if event.member == victim]
            assert 0.3 < np.unique(np.concatenate(seen)).size / n <= 0.45


def recipe(schedule: str) -> Recipe:
    policy = ShardPolicy(SPEC, SHARDS, public_root(1), schedule=schedule)  # type: ignore[arg-type]
    return Recipe(SPEC, policy, chain(), WeightedMean(), FedAvgM(lr=1.0, beta=0.5), public_root(1))


def plan_of(made: Recipe, member: Member, assignment: Iterable[int], epoch: int) -> RoundPlan:
    roster = tuple(RosterEntry(p, f"peer-{p}", 1.0, organisation="acme" if p in (4, 5) else "") for p in range(PEERS))
    peers, draw = tuple(range(PEERS)), made.policy.draw(member.round)
    return RoundPlan("run", epoch, member.round, member.chain, SPEC.digest, roster, peers, tuple(assignment), draw=draw)


def all_lost(plan: RoundPlan) -> Verdict:
    return verdict_on(plan, [])


def verdict_on(plan: RoundPlan, manifests: Iterable[Manifest]) -> Verdict:
    """Return a verdict that commits what these say, and nothing else."""
    found = {each.shard: each for each in manifests}
    rows = (
        ShardVerdict(shard, owner, found[shard].hash, found[shard].contributors, manifest=found[shard].digest)
        if shard in found
        else ShardVerdict(shard, owner, lost="so I say")
        for shard, owner in enumerate(plan.assignment)
    )
    return Verdict(plan.run, plan.epoch, plan.round, plan.digest, plan.chain, tuple(rows))


def commit(made: Recipe, member: Member, plan: RoundPlan, shards: Iterable[int]) -> None:
    """Let the model move on some shards, by the least that makes another state of it."""
    manifests = []
    for shard in shards:
        layout = made.layout(plan.round)
        values = np.full(int(layout.trainable.sizes[shard]), 2.0**-100, np.float32)
        buffers = np.zeros(int(layout.buffers.sizes[shard]), np.float32)
        said = (plan.digest, plan.round, shard, plan.assignment[shard], plan.participants, 1.0, 1.0)
        manifest = Manifest(*said, payload_hash(values, buffers))
        assert member.receive(Published(manifest, values, buffers)) is None
        manifests.append(manifest)
    assert member.conclude(verdict_on(plan, manifests)) is None


def coordinates(made: Recipe, upload: Upload) -> set[int]:
    return of_shard(made, upload.round, upload.shard)


def of_shard(made: Recipe, round: int, shard: int) -> set[int]:
    layout = made.layout(round)
    buffers = (layout.trainable.n + np.asarray(layout.buffers.coordinates(shard))).tolist()
    return {*layout.trainable.coordinates(shard).tolist(), *buffers}


Step = tuple[tuple[int, ...], str]
STEPS = st.tuples(
    st.permutations(range(1, PEERS)).map(lambda peers: tuple(peers[:SHARDS])),
    st.sampled_from(["plan again", "lose the round", "commit a shard", "commit all", "restart", "go back", "snapshot"]),
)


@pytest.mark.parametrize("schedule", ["fixed", "redraw", "rotate"])
def test_prevented_whatever_is_planned(tmp_path_factory: pytest.TempPathFactory, schedule: str) -> None:
    """Prevented: a property of the member's role alone, so in memory; what each peer holds is counted from uploads.

    With fixed shards over the whole run. Otherwise over all updates from one state, and from those that differ from it
    in less than half of the coordinates.
    """
    made = recipe(schedule)
    floor = Floor(max_share=0.45, max_organisation_share=0.6, min_contributors=1)

    @hypothesis_settings(max_examples=60, deadline=None)
    @given(st.lists(STEPS, min_size=1, max_size=12))
    def play(steps: list[Step]) -> None:
        folder = tmp_path_factory.mktemp("peer")
        fresh = lambda: Member(  # noqa: E731
            0, made, np.zeros(SPEC.n, np.float32), private_root(0, 0), floor=floor, shown=Shown(made, folder / SHOWN)
        )
        member, held, moved = fresh(), defaultdict[int, set[int]](set), set[int]()
        began, first = member.snapshot(), True  # where what is counted began; whether that is where the run did
        for epoch, (assignment, then) in enumerate(steps):
            plan = plan_of(made, member, assignment, epoch)
            member.begin(plan)
            for upload in member.contribute(LocalResult(np.ones(SPEC.n, np.float32), 1)):
                held[assignment[upload.shard]] |= coordinates(made, upload)
            assert all(len(seen) / SPEC.n <= 0.45 + 1e-9 for seen in held.values())
            assert len(held[4] | held[5]) / SPEC.n <= 0.6 + 1e-9
            if then == "lose the round":
                member.conclude(all_lost(plan))
            elif then in ("commit a shard", "commit all"):  # one of a friend's, moved by next to nothing
                shards = [0] if then == "commit a shard" else range(SHARDS)
                for shard in shards:
                    moved |= of_shard(made, plan.round, shard)
                commit(made, member, plan, shards)
                if schedule != "fixed" and len(moved) >= SPEC.n / 2:  # one shard in each of three draws may do
                    held.clear()
                    began, first, moved = member.snapshot(), False, set()
            elif then == "restart":
                snapshot, member = member.snapshot(), fresh()
                member.restore(snapshot)
                moved = set()
            elif then == "go back":
                back = replace(began, round=0, chain=GENESIS) if first else began
                member.restore(back)
                moved = set()
            elif then == "snapshot":  # a friend's, which differs in a bit
                taken = member.snapshot()
                taken.state["model"][0] += np.float32(1.0)
                member.restore(taken)
                moved = set()  # how far it has moved is not known any more

    play()


def test_honest_stand_ins_stay_within_what_members_count_over_the_run() -> None:
    """Whoever is away, one after another: a shard has one stand-in, always the same, and nobody has two."""
    made = recipe("fixed")
    roster = [RosterEntry(peer, f"peer-{peer}", 1.0) for peer in range(SHARDS)]
    journal: list[Entry] = []
    rules = Rules("run", tuple(range(SHARDS)), min_contributors=1, max_share=0.45)
    seen, stood_in = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
    for away in (*range(SHARDS), *reversed(range(SHARDS))):
        coordinator = Coordinator(made, rules, roster, journal)  # it remembers by its journal
        coordinator.gone(away)
        plan = coordinator.plan(0.0)
        for shard, peer in enumerate(plan.assignment):
            seen[peer].add(shard)
        stood_in[away].add(plan.assignment[away])
        assert away not in plan.assignment
        coordinator.decide(1e9)
    assert all(len(shards) <= 2 for shards in seen.values())
    assert all(len(peers) == 1 for peers in stood_in.values())


def test_the_same_plan_again_costs_nothing(tmp_path: Path) -> None:
    """What honest recovery needs: under an unchanged assignment a round can be played again as often as it takes."""
    made = recipe("fixed")
    member = Member(
        0, made, np.zeros(SPEC.n, np.float32), private_root(0, 0),
        floor=Floor(max_share=0.25, min_contributors=1), shown=Shown(made, tmp_path / SHOWN),
    )  # fmt: skip
    for epoch in range(10):
        member.begin(plan_of(made, member, range(1, 6), epoch))
        assert len(member.contribute(LocalResult(np.ones(SPEC.n, np.float32), 1))) == SHARDS
        assert member.unsent == ()
    assert len((tmp_path / SHOWN).read_text().splitlines()) == 1
    again = Shown(made, tmp_path / SHOWN)
    assert again.share("", [1]) == pytest.approx(0.2)
    assert again.share("", [1, 2]) == pytest.approx(0.4)
