"""The simulator's shortcut against the roles of the protocol, message by message, bit for bit."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from eris.compose import initial_seed, training_seed
from eris.errors import Refused
from eris.events import RoundEnded, VerdictWritten
from eris.local.numpy_task import Descent, QuadraticTask
from eris.local.spec import ModelSpec
from eris.protocol.floor import Floor
from eris.protocol.in_process import InProcess
from eris.protocol.messages import Published
from eris.protocol.rules import Rules
from eris.seeds import private_root, public_root
from eris.simulate.process_engine import ProcessEngine
from eris.simulate.work import StateLayout
from eris.simulate.worker_process import TaskSource
from tests.simulate.setting import Played, play, prepare, settings

CASES = {
    "fedavg": ("fedavg", []),
    "eris": ("eris", []),
    "few aggregators": ("eris", ["aggregators=3"]),
    "contiguous": ("eris", ["shards.plan=contiguous", "aggregators=2"]),
    "redrawn": ("eris+dsc", ["shards.schedule=redraw"]),
    "rotating": ("eris", ["shards.schedule=rotate", "aggregators=3"]),
    "dsc": ("eris+dsc", []),
    "dsc, own masks": ("eris+dsc", ["compression.masks=independent", "compression.keep=0.3"]),
    "dsc, quantised": ("eris+dsc", ["compression.compressor=qsgd", "compression.options={levels=4}"]),
    "dsc, top-k": ("eris+dsc", ["compression.compressor=top_k", "compression.gamma=1.0"]),
    "shared reference": ("eris+dsc", ["compression.shared_reference=true"]),
    "withheld parts": ("priprune-pseudo", []),
    "partial": ("eris+dsc", ["participation=0.6"]),
    "median": ("eris", ["server.rule=median"]),
    "median with faults": ("eris", ["server.rule=median", "faults.link_failure=0.3", "aggregators=3"]),
    "momentum": ("eris", ["server.optimizer=fedavgm", "local.keep_state=true"]),
    "adam": ("eris+dsc", ["server.optimizer=fedadam", "server.optimizer_options={lr=0.1}", "local.keep_state=true"]),
    "fednova": ("eris", ["server.optimizer=fednova"]),
    "noise": ("eris+dsc", ["privacy.clip=1.0", "privacy.noise_multiplier=0.1"]),
    "lost links": ("eris+dsc", ["faults.link_failure=0.4"]),
    "lost aggregators": ("eris+dsc", ["faults.aggregator_dropout=0.3", "server.optimizer=fedyogi"]),
    "everything": (
        "eris+dsc",
        ["faults.link_failure=0.3", "faults.aggregator_dropout=0.2", "participation=0.8", "server.normalisation=none"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_folding_whole_vectors_is_what_the_aggregators_do(case, tmp_path):
    method, changes = CASES[case]
    played = play(settings(*changes, method=method), tmp_path)
    replay_by_messages(played)
    assert len(played.of(RoundEnded)) == 4
    if "faults" in " ".join(changes):
        assert any(event.lost_shards for event in played.of(RoundEnded)) or "link_failure" in " ".join(changes)


MASKED = {
    "masked": ("eris+masked", []),
    "masked, one aggregator": ("eris+masked", ["aggregators=1"]),
    "masked dsc, half take part": ("eris+dsc+masked", ["participation=0.6", "aggregators=3", "members=10"]),
    "masked, late members": ("eris+dsc+masked", ["faults.link_failure=0.05", "server.optimizer=fedyogi"]),
    "masked, shares of noise": ("eris+ldp", ["privacy.masking=pairs", "privacy.noise=shares", "privacy.epsilon=20"]),
    "masked, ten of ten": ("eris+masked", ["members=10", "aggregators=10"]),
}


@pytest.mark.parametrize("case", MASKED)
def test_sums_without_pads_are_those_that_pads_were_taken_off(case, tmp_path):
    """The simulator adds no pads; real members do, real aggregators fold them, real unmaskers take them off."""
    method, changes = MASKED[case]
    played = play(settings(*changes, method=method), tmp_path)
    replay_by_messages(played, round=masked_round)
    assert len(played.of(RoundEnded)) == 4
    if "faults" in " ".join(changes):
        verdicts = [event.verdict for event in played.of(VerdictWritten)]
        everybody = tuple(range(played.config.members))
        assert any(entry.contributors != everybody for verdict in verdicts for entry in verdict.shards)


@pytest.mark.parametrize("workers", [1, 2])
def test_shares_of_noise_in_another_epoch_are_those_of_the_roles(workers, tmp_path):
    """A coordinator that was started again plans in another epoch, and members draw their shares anew."""
    method, changes = MASKED["masked, shares of noise"]
    config = settings(*changes, method=method)
    source = TaskSource("eris.tasks:build_task", {"config": config.model_dump(mode="json", exclude_none=True)})
    with ExitStack() as stack:
        engine = stack.enter_context(closing(ProcessEngine(source, 2))) if workers > 1 else None
        played = prepare(config, tmp_path / "one", **({} if engine is None else {"engine": engine}))
        played.simulation.play(2)
        played.simulation._script._coordinator.epoch = 3
        played.simulation.play(4)
    assert [event.plan.epoch for event in played.of(VerdictWritten)] == [0, 0, 3, 3]
    replay_by_messages(played, round=masked_round)
    whole = play(settings(*changes, method=method), tmp_path / "whole").simulation
    assert not np.array_equal(played.simulation.replica.model, whole.replica.model)


def masked_round(roles, plan, verdict, train) -> None:
    """Play a recorded round under real keys; every sum must have the recorded hash once its pads are off."""
    roles.coordinator.epoch = plan.epoch
    planned = roles.plan()
    assert plan.unmaskers
    assert planned == replace(plan, chain=planned.chain, mask_keys=planned.mask_keys)
    roles.begin(planned)
    uploads = roles.contribute(planned, train)
    roles.upload(planned, [u for u in uploads if u.member in verdict.shards[u.shard].contributors])
    roles.publish(planned, roles.cut(planned))
    decided = roles.decide()
    told = [(entry.shard, entry.hash, entry.contributors, entry.lost) for entry in verdict.shards]
    assert [(entry.shard, entry.hash, entry.contributors, entry.lost) for entry in decided.shards] == told
    roles.conclude(decided)


def test_buffers_and_losses_too(tmp_path):
    spec = ModelSpec.of({"weight": np.zeros(23, np.float32), "mean": np.zeros(6, np.float32)}, roles={"mean": "buffer"})
    seed = public_root(5)
    centres = seed.uniforms(7 * 29).reshape(7, 29)
    task = QuadraticTask(centres, samples=[1, 2, 3, 4, 5, 6, 7], spec=spec, descent=Descent(0.3, 0.5))
    config = settings("faults.link_failure=0.3", "aggregators=4", method="eris+dsc")
    replay_by_messages(play(config, tmp_path, task=task), task)


def test_a_member_with_values_that_are_not_finite_is_left_out_where_they_are(tmp_path):
    task = QuadraticTask.synthetic(7, 40, public_root(3))
    task.centres[2, 11] = np.nan
    played = play(settings("aggregators=4", "compression.keep=0.5", "rounds=8", method="eris+dsc"), tmp_path, task=task)
    verdicts = [event.verdict for event in played.of(VerdictWritten)]
    without = {sum(2 not in entry.contributors for entry in verdict.shards) for verdict in verdicts}
    assert without == {0, 1}  # one shard, in the rounds whose mask has the coordinate
    assert np.isfinite(played.simulation.replica.model).all()
    replay_by_messages(played, task)


def test_a_reference_epoch_in_the_middle(tmp_path):
    config = settings("participation=0.6", "compression.keep=0.5", "local.keep_state=true", method="eris+dsc")
    played = prepare(config, tmp_path)
    played.simulation.play(2)
    played.simulation._script._coordinator.reference_epoch = 1
    played.simulation.play(4)
    replay_by_messages(played)


def replay_by_messages(played: Played, task=None, *, round=None) -> None:
    """Drive the roles through the recorded rounds; hold every hash, model and state to the simulator's."""
    from eris.tasks import build_task

    config, composition = played.config, played.composition
    task = task or build_task(config.model_dump(mode="json", exclude_none=True))
    root, memories = partial(private_root, config.seed), [task.memory(k) for k in range(config.members)]
    rules = Rules(
        composition.run,
        composition.aggregators,
        participation=config.participation,
        normalisation=config.server.normalisation,
        min_contributors=config.server.min_contributors,
    )
    model, floor = task.initial(initial_seed(config.seed)), Floor(min_contributors=1)
    roles = InProcess(composition.recipe, rules, composition.roster, model, root, floor=floor)

    def train(member, plan):
        seed = training_seed(root(member.peer).child("round", plan.round))
        return task.train(member.peer, member.look(), memories[member.peer], round=plan.round, seed=seed)

    for event in played.of(VerdictWritten):
        (round or one_round)(roles, event.plan, event.verdict, train)
    for k, member in roles.members.items():
        assert np.array_equal(member.replica.model, played.simulation.replica.model)
        assert member.replica.digest() == played.simulation.replica.digest()
        stored = played.simulation.states.read(k)
        if stored is not None:
            memory, private = StateLayout(task.memory(k), member.private).views(stored)
            assert all(np.array_equal(private[name], member.private[name]) for name in private)
            assert all(np.array_equal(memory[name], memories[k][name]) for name in memory)


def one_round(roles, plan, verdict, train) -> None:
    """Let the recorded contributions arrive; what the roles publish must have the recorded hash."""
    roles.begin(plan)
    for upload in roles.contribute(plan, train):
        entry = verdict.shards[upload.shard]
        try:
            if upload.member in entry.contributors or entry.lost == "too-few":
                roles.upload(plan, [upload])
        except Refused:
            assert upload.member not in entry.contributors
    for outcome in roles.cut(plan):
        if isinstance(outcome, Published) and verdict.shards[outcome.manifest.shard].committed:
            assert outcome.manifest.hash == verdict.shards[outcome.manifest.shard].hash
            for member in roles.members.values():
                member.receive(outcome)
    roles.conclude(verdict)
