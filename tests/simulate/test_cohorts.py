"""Members trained in one vectorised call: the same up to rounding with any workers, and refused where bits count."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from eris.config import load_config
from eris.errors import ConfigError
from eris.federation import Federation
from eris.local.numpy_task import QuadraticTask
from eris.peer.federation_file import load_federation
from eris.seeds import public_root
from eris.simulate.process_engine import ProcessEngine
from eris.simulate.ray_actor import RayActor
from eris.simulate.run import run
from eris.simulate.work import Job
from eris.simulate.worker_process import TaskSource
from tests.simulate.setting import play, prepare
from tests.simulate.setting import settings as small

DIGITS = [
    "data.samples=6", "data.validation=0.0", "data.test_samples=50", "members=7", "rounds=3", "workers=1",
    "local.batch=full", "local.lr=0.05", "local.momentum=0.9", "evaluate_every=3",
]  # fmt: skip


def trained(folder, *changes, method="eris"):
    config = load_config(changes=[*DIGITS, f"method={method}", *changes])
    summary = run(config, folder)[method]
    vector = np.concatenate([part.reshape(-1) for part in load_file(folder / "model.safetensors").values()])
    return summary, vector


@pytest.mark.parametrize(
    "changes",
    [
        ["local.keep_state=true"],
        ["local.batch=4", "local.epochs=2"],
        ["local.optimizer=adam", "local.momentum=0.0", "local.lr=0.001", "local.keep_state=true"],
        ["method=eris+dsc", "compression.keep=0.3"],
        ["method=priprune-pseudo", "baselines.prune=0.2"],  # every member starts from a model of its own
        ["method=shatter"],
    ],
    ids=["full-batch", "epochs", "adam", "dsc", "own-start", "own-models"],
)
def test_the_model_is_that_of_members_one_by_one_up_to_rounding(changes, tmp_path):
    method = next((change[7:] for change in changes if change.startswith("method=")), "eris")
    _, alone = trained(tmp_path / "alone", *changes, method=method)
    summary, together = trained(tmp_path / "together", *changes, "local.cohort=4", method=method)
    assert not np.array_equal(alone, together)  # other kernels were at work
    np.testing.assert_allclose(together, alone, rtol=1e-3, atol=2e-5)
    assert summary["cohort"] == 4


def test_neither_workers_nor_aggregators_change_the_bits_of_cohorts(tmp_path):
    one, _ = trained(tmp_path / "one", "local.cohort=3")
    two, _ = trained(tmp_path / "two", "local.cohort=3", "workers=2")
    central, _ = trained(tmp_path / "central", "local.cohort=3", method="fedavg")
    assert one["model_digest"] == two["model_digest"] == central["model_digest"]


def test_the_summary_says_so(tmp_path):
    together, _ = trained(tmp_path / "together", "local.cohort=3", "rounds=1")
    alone, _ = trained(tmp_path / "alone", "rounds=1")
    assert (together["cohort"], alone["cohort"]) == (3, 1)
    assert any("cohorts" in note for note in together["notes"])
    assert alone["notes"] == []
    assert json.loads((tmp_path / "together" / "summary.json").read_text())["cohort"] == 3


def test_a_replay_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="replay promises the bits") as refused:
        run(load_config(changes=[*DIGITS, "method=eris", "local.cohort=3"]), tmp_path / "run", replay=tmp_path / "none")
    assert refused.value.where["key"] == "local.cohort"


def test_a_network_is_refused(tmp_path):
    path = tmp_path / "federation.toml"
    text = '[federation]\nname = "town"\ncoordinator = "127.0.0.1:7000"\npeers = ["a", "b", "c"]\n'
    path.write_text('method = "eris"\n' + text + "[local]\ncohort = 2\n")
    with pytest.raises(ConfigError, match="a peer trains alone"):
        load_federation(path)


class Noted(nn.Sequential):
    """A classifier of eight features with one more layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(nn.Linear(8, 6), layer, nn.Linear(6, 3))


class Wayward(nn.Module):
    """Draws random numbers where no layer shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, inputs):
        return self.layer(inputs + torch.randn_like(inputs))


@pytest.mark.parametrize(
    ("model", "changes", "reason"),
    [
        (lambda: Noted(nn.Dropout(0.5)), {}, "Dropout.* draws random numbers"),
        (lambda: Noted(nn.BatchNorm1d(6)), {}, "BatchNorm1d.* keeps running statistics"),
        (Wayward, {}, "cannot be trained in cohorts: vmap: called random operation"),
        (lambda: Noted(nn.ReLU()), {"send": "gradient", "momentum": 0.0}, "only the plain gradients"),
    ],
    ids=["dropout", "batch-norm", "hidden", "estimator"],
)
def test_what_one_call_cannot_do_for_many_is_refused(model, changes, reason, tmp_path):
    generator = np.random.default_rng(1)
    data = (generator.normal(size=(40, 8)).astype(np.float32), generator.integers(0, 3, 40))
    local = {"batch": "full", "cohort": 5, **changes}
    federation = Federation(model, (data, data), members=5, rounds=1, local=local, workers=1)
    with pytest.raises(ConfigError, match=reason) as refused:
        federation.run(tmp_path / "run")
    assert refused.value.where["key"] == "local.cohort"


def test_noise_in_every_step_and_tasks_without_torch_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="only the plain gradients"):
        trained(tmp_path / "noise", "local.cohort=3", method="fedavg-dpsgd")
    with pytest.raises(ConfigError, match="LogisticTask trains one member at a time"):
        trained(tmp_path / "clouds", "local.cohort=3", "data.name=synthetic-clouds", "data.validation=0.1")


class Together(QuadraticTask):
    """Does for a cohort exactly what it does for each; one member's values are not finite in one round."""

    def check_cohort(self):
        pass

    def train(self, member, model, memory, *, round, seed):
        result = super().train(member, model, memory, round=round, seed=seed)
        if (member, round) == (2, 1):
            result.update[3] = np.nan
        return result

    def train_cohort(self, members, models, memories, *, round, seeds):
        return [
            self.train(member, model, memory, round=round, seed=seed)
            for member, model, memory, seed in zip(members, models, memories, seeds, strict=True)
        ]


def together():
    return Together.synthetic(7, 10, public_root(1))


@pytest.mark.parametrize("cohort", [2, 3, 7])
def test_cohorts_lose_and_mix_up_nothing_on_the_way(cohort, tmp_path):
    """Where a call for many is exact, all engines end in the digest of members one by one, faults and all."""
    changes = ["faults.link_failure=0.2", "participation=0.8", "local.keep_state=true"]
    alone = play(small(*changes, method="eris+dsc"), tmp_path / "alone", task=together())
    config = small(*changes, f"local.cohort={cohort}", method="eris+dsc")
    inline = play(config, tmp_path / "inline", task=together())
    engine = ProcessEngine(TaskSource("tests.simulate.test_cohorts:together"), workers=2)
    processes = prepare(config, tmp_path / "processes", engine=engine)
    processes.simulation.play(config.rounds)
    engine.close()
    assert alone.digest == inline.digest == processes.digest


def test_an_actor_of_a_cluster_does_a_cohort():
    actor = RayActor("tests.simulate.test_cohorts:together", {}, [])
    config, task = small("local.cohort=3"), together()
    actor.begin(config.model_dump(mode="json", exclude_none=True), [task.samples(k) for k in range(config.members)])
    works = actor.train([Job(0, member) for member in (1, 2, 5)], np.zeros(10, np.float32), {}, [None] * 3)
    assert [work.job.member for work in works] == [1, 2, 5]
    assert len({work.values.tobytes() for work in works}) == 3
