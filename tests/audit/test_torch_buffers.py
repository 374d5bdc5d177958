"""Models with running statistics: buffers are part of what is seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from eris.audit.canaries import plant_in
from eris.audit.membership import MembershipAudit
from eris.audit.observer import parse_observer
from eris.compose import compose
from eris.config import load_config
from eris.data import ArrayExamples
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.simulate.run import run
from tests.audit.federation import play, scrambled


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def made_up():
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((80, 12)).astype(np.float32)
    examples = ArrayExamples(inputs, generator.integers(3, size=80))
    parts = [np.arange(member * 20, member * 20 + 20) for member in range(4)]
    problem = plant_in(TorchTask(network, examples, parts, work=LocalWork(lr=0.1)), seed=3)
    return problem, load_config(changes=["method=eris", "members=4", "rounds=3", "seed=3", "workers=1"])


@pytest.mark.parametrize("observer", ["aggregator", "coalition:2", "broadcast", "wire"])
def test_buffers_that_are_not_seen_change_no_score_by_a_bit(tmp_path, observer):
    problem, config = made_up()
    audited, who = play(tmp_path, config, problem), parse_observer(observer)
    honest = audited.audit(observer, views=1)
    again = audited.audit(observer, views=1, events=scrambled(audited.events, honest, 1, who))
    for name, members in honest.scores(who).items():
        assert members[1].tobytes() == again.scores(who)[name][1].tobytes(), name


def test_a_model_with_buffers_is_audited_from_events_alone(tmp_path):
    problem, config = made_up()
    composition = compose(config, problem.task.spec, [problem.task.samples(member) for member in range(4)])
    wire, alone = parse_observer("wire"), parse_observer("aggregator")
    audit = MembershipAudit(composition, problem, [wire, alone])
    plain = run(config, tmp_path / "a", task=problem.task)
    heard = run(config, tmp_path / "b", task=problem.task, listeners=[audit])
    assert plain["eris"]["model_digest"] == heard["eris"]["model_digest"]  # listening changes nothing
    assert composition.recipe.spec.n > composition.recipe.spec.n_trainable
    for observer in (wire, alone):
        for members in audit.scores(observer).values():
            assert all(np.isfinite(scores).all() for scores in members)
    result = audit.result(wire, "adaptive", tosses=9)
    assert 0.7 < result.visible_share < 0.8
