"""What members scored travels with shard 0, adds up to the same mean everywhere, and decides when to stop."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eris.aggregate.figures import Figures, add, signed
from eris.aggregate.fixed_point import Ring64
from eris.compose import Composition, compose, initial_seed, training_seed
from eris.config import load_config
from eris.errors import FloorError, Reason, Refused
from eris.events import VerdictWritten
from eris.local.numpy_task import QuadraticTask
from eris.local.scores import Scores, scores_of
from eris.local.task import LocalResult
from eris.protocol.best_round import BestRound
from eris.protocol.coordinator import Coordinator
from eris.protocol.floor import Floor
from eris.protocol.in_process import InProcess
from eris.protocol.member import Member
from eris.protocol.messages import Published, Upload, Withheld
from eris.protocol.round_plan import RoundPlan
from eris.protocol.rules import Rules
from eris.seeds import private_root, public_root
from tests.simulate.setting import play, settings

TASK = QuadraticTask.synthetic(5, 24, public_root(3))
SHARED = ["seed=1", "members=5", "aggregators=3", "stop=patience:2", "keep=best"]
ENCODINGS = {
    "float": (),
    "fixed": ("server.encoding=fixed",),
    "masked": ("server.encoding=fixed", "privacy.masking=pairs"),
    "replicas": ("shards.replicas=2",),
}
ALLOWED = Floor(share_figures=True)


def composed(*changes: str) -> Composition:
    config = load_config(changes=[*SHARED, "method=eris", *changes])
    return compose(config, TASK.spec, [TASK.samples(k) for k in range(5)])


def roles_of(made: Composition, floor: Floor = ALLOWED) -> InProcess:
    rules, model = Rules(made.run, made.aggregators), TASK.initial(initial_seed(1))
    return InProcess(made.recipe, rules, made.roster, model, lambda k: private_root(1, k), floor=floor)


def train(member: Member, plan: RoundPlan) -> LocalResult:
    seed = training_seed(private_root(1, member.peer).child("round", plan.round))
    return TASK.train(member.peer, member.look(), {}, round=plan.round, seed=seed)


def score(member: Member, plan: RoundPlan) -> Scores:
    del plan
    return scores_of(TASK, member.peer, member.replica.model, {}, ["loss"])


def begun(roles: InProcess) -> tuple[RoundPlan, list[Upload]]:
    plan = roles.plan()
    roles.begin(plan)
    return plan, roles.contribute(plan, train, score)


@pytest.mark.parametrize("changes", ENCODINGS.values(), ids=list(ENCODINGS))
def test_all_peers_and_the_simulator_come_to_the_same_figures_and_decide_alike(
    changes: tuple[str, ...], tmp_path: Path
) -> None:
    made = composed(*changes)
    roles, verdicts = roles_of(made), []
    figures = made.recipe.figures
    assert figures is not None
    for _ in range(4):
        given = [figures.encode(score(member, roles.plan()), 5) for member in roles.members.values()]
        total: Ring64 = np.zeros(2, np.uint64)
        for words in given:
            add(total, words)
        verdicts.append(roles.play(train, score))
        assert verdicts[-1].figures == signed(total), "the sum of what each member scored, exactly"
    config = settings(*SHARED, "rounds=4", "data.name=synthetic-quadratic", *changes)
    simulated = play(config, tmp_path, task=TASK)
    assert [event.verdict.figures for event in simulated.of(VerdictWritten)] == [v.figures for v in verdicts]
    digests = {member.replica.digest() for member in roles.members.values()}
    assert digests == {simulated.simulation.replica.digest()}
    replica = roles.members[0].replica
    assert BestRound.of(replica.best_round) == roles.coordinator.best
    assert np.array_equal(replica.chosen, simulated.simulation.replica.chosen)
    means = [figures.means(verdict.figures)["loss"] for verdict in verdicts]
    assert roles.coordinator.best.round == int(np.argmin(means))


def test_patience_ends_a_run_and_the_best_model_is_kept() -> None:
    roles = roles_of(composed())
    scores = iter([3.0, 1.0, math.nan, 2.0, 0.5])
    models = []
    for _ in range(4):
        said = next(scores)
        models.append(roles.members[0].replica.model.copy())
        assert not roles.coordinator.is_done(99)
        roles.play(train, lambda member, plan, said=said: {"loss": (4 * said, 4)})
    assert roles.coordinator.is_done(99), "two evaluations in a row were no better than the second"
    for member in roles.members.values():
        assert member.replica.is_done
        assert np.array_equal(member.replica.chosen, models[1])
    again = Coordinator(roles.recipe, roles.coordinator.rules, roles.coordinator.roster.values(), roles.journal)
    assert again.best == roles.coordinator.best, "a coordinator that comes back knows it from its journal"
    assert again.is_done(99)
    again.rewind(2)
    assert again.best == BestRound(-1.0, 1)


def test_a_newcomer_is_handed_the_best_model_too() -> None:
    roles = roles_of(composed())
    roles.play(train, score)
    first, late = roles.members[0], roles_of(composed()).members[1]
    late.restore(first.snapshot())
    assert late.replica.digest() == first.replica.digest()
    assert np.array_equal(late.replica.chosen, first.replica.chosen)


@pytest.mark.parametrize("changes", [(), ENCODINGS["masked"]], ids=["plain", "masked"])
def test_too_few_contributors_publish_no_figures(changes: tuple[str, ...]) -> None:
    roles = roles_of(composed(*changes))
    plan, uploads = begun(roles)
    roles.upload(plan, [upload for upload in uploads if upload.shard != 0 or upload.member < 2])
    outcomes = roles.cut(plan)
    assert [o.reason for o in outcomes if isinstance(o, Withheld)] == [Reason.TOO_FEW]
    roles.publish(plan, outcomes)
    verdict = roles.decide()
    roles.conclude(verdict)
    assert (verdict.lost_shards, verdict.figures) == ((0,), ())
    assert roles.members[0].replica.choice().best_round == -1
    assert roles.coordinator.best == BestRound()


def test_who_is_missing_from_shard_0_is_missing_from_the_mean() -> None:
    roles = roles_of(composed())
    plan, uploads = begun(roles)
    roles.upload(plan, [upload for upload in uploads if (upload.shard, upload.member) != (0, 4)])
    roles.publish(plan, roles.cut(plan))
    verdict = roles.decide()
    wanted = sum(TASK.samples(k) for k in range(4)) << 20
    assert verdict.figures[1] == wanted


def forged(upload: Upload, *words: int) -> Upload:
    return replace(upload, figures=np.array(words, np.int64).view(np.uint64))


def test_figures_that_nobody_can_have_scored_are_refused_where_they_can_be_read() -> None:
    roles = roles_of(composed())
    plan, uploads = begun(roles)
    bad = [forged(u, 1 << 62, 1) if (u.shard, u.member) == (0, 3) else u for u in uploads]
    with pytest.raises(Refused, match="no member can have scored") as caught:
        roles.upload(plan, bad)
    assert caught.value.reason is Reason.OUT_OF_RANGE
    with pytest.raises(Refused, match="bytes"):
        roles.upload(plan, [forged(next(u for u in uploads if (u.shard, u.member) == (1, 4)), 1, 1)])


def test_under_pads_they_cost_the_round_its_figures_and_nobody_the_model() -> None:
    roles = roles_of(composed(*ENCODINGS["masked"]))
    plan, uploads = begun(roles)
    for upload in uploads:
        if (upload.shard, upload.member) == (0, 3):
            upload.figures[:] += np.uint64(1 << 62)
    roles.upload(plan, uploads)
    roles.publish(plan, roles.cut(plan))
    verdict = roles.decide()
    roles.conclude(verdict)
    assert (verdict.lost_shards, verdict.figures) == ((), ())
    assert roles.members[0].round == 1


def test_what_an_aggregator_or_the_coordinator_makes_up_is_refused() -> None:
    roles = roles_of(composed())
    plan, uploads = begun(roles)
    roles.upload(plan, uploads)
    outcomes = [outcome for outcome in roles.cut(plan) if isinstance(outcome, Published)]
    member, shard_0 = roles.members[4], next(o for o in outcomes if o.manifest.shard == 0)
    for lie in ((5,), (1 << 62, 1 << 20), (0, 0), (1, 1, 1, 1)):
        made_up = replace(shard_0, manifest=replace(shard_0.manifest, figures=lie))
        with pytest.raises(Refused, match="scored such figures"):
            member.receive(made_up)
        with pytest.raises(Refused, match="scored such figures"):
            roles.coordinator.manifest(made_up.manifest)
    elsewhere = next(o for o in outcomes if o.manifest.shard == 1)
    with pytest.raises(Refused, match="scored such figures"):
        member.receive(replace(elsewhere, manifest=replace(elsewhere.manifest, figures=shard_0.manifest.figures)))
    roles.publish(plan, outcomes)
    verdict = roles.decide()
    before = member.replica.digest()
    with pytest.raises(Refused, match="figures differ from those in the manifest"):
        member.conclude(replace(verdict, figures=(0, 1 << 20)))
    assert member.replica.digest() == before
    roles.conclude(verdict)


def test_a_member_that_allows_nothing_says_what_would_be_seen() -> None:
    roles = roles_of(composed(), Floor())
    with pytest.raises(FloorError, match="everybody learns the mean over all members of every round, one aggregator"):
        roles.begin(roles.plan())
    masked = roles_of(composed(*ENCODINGS["masked"]), Floor())
    with pytest.raises(FloorError, match="nobody this member's own"):
        masked.begin(masked.plan())


def test_only_every_so_many_rounds() -> None:
    roles = roles_of(composed("evaluate_every=2"))
    assert [bool(roles.play(train, score).figures) for _ in range(4)] == [True, False, True, False]


def test_what_cannot_be_written_is_as_bad_as_can_be() -> None:
    figures = Figures(("loss", "accuracy"))
    worst = signed(figures.encode({"loss": (math.inf, 3), "accuracy": (math.nan, 3)}, members=10))
    assert worst[0] > 0 > worst[2]
    assert figures.possible(worst, 1, 10)
    total = signed(
        np.sum([figures.encode({"loss": (1e300, 1e300), "accuracy": (-1e300, 1)}, 7)] * 7, axis=0, dtype="u8")
    )
    assert figures.possible(total, 7, 7), "all members at the limit do not reach the edge of the ring"
