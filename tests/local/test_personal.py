"""Tensors that stay with their member: trained like the rest, never sent, remembered."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import eris
from eris.data import ArrayExamples
from eris.errors import ConfigError, ModelError
from eris.local.torch_module import FlatModule, spec_of
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.methods import METHODS
from eris.privacy.torch_private import PrivateGradient
from eris.seeds import private_root, public_root
from tests.cli.processes import eris as command

X = (np.arange(60 * 4, dtype=np.float32).reshape(60, 4) % 7) / 7
Y = np.arange(60) % 3
PLACES = [np.arange(0, 20), np.arange(20, 40)]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.bn, self.head = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(torch.relu(self.bn(self.body(x))))


MODULE = """
import numpy as np
import torch
from torch import nn

x = ((np.arange(60 * 4) % 7) / 7).reshape(60, 4)
y = np.arange(60) % 3
data = (x, y), (x, y)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))
"""


def task(*keep, **work):
    settings = LocalWork(lr=0.1, batch=5, epochs=2, keep=keep, **work)
    held = [np.arange(40, 50), np.arange(50, 60)]
    return TorchTask(Network, ArrayExamples(X, Y), PLACES, validation=held, work=settings)


def roles(*keep):
    return {tensor.name: tensor.role for tensor in spec_of(Network(), keep=keep).tensors}


def test_patterns_name_tensors():
    kept = {name for name, role in roles("head.*", "bn.running*").items() if role == "local"}
    assert kept == {"head.weight", "head.bias", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}
    assert roles() == {**roles("head.*"), "head.weight": "trainable", "head.bias": "trainable"}
    with pytest.raises(ConfigError, match=r"local.keep has 'hat.\*', which matches no tensor of the model") as refused:
        roles("hat.*")
    assert refused.value.where["key"] == "local.keep"


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"optimizer": "adam"}, {"weight_decay": 0.1}])
@pytest.mark.parametrize("keep_state", [False, True])
def test_a_personal_head_is_trained_as_it_would_be_if_it_were_sent(settings, keep_state):
    """The first round of a member: the same steps on the same samples, only that the head is not in the update."""
    whole, parted = task(**settings, keep_state=keep_state), task("head.*", **settings, keep_state=keep_state)
    memories = [each.memory(0) for each in (whole, parted)]
    start = whole._module().vector.copy()  # both begin with the very weights that the head has at home
    own = parted._module().vector.copy()
    seed = private_root(3, peer=0)
    together = whole.train(0, start, memories[0], round=0, seed=seed).update
    update = parted.train(0, own, memories[1], round=0, seed=seed).update
    tensors, shared = whole.spec.unflatten(together), parted.spec.unflatten(update)
    assert "head.weight" not in shared
    for name, value in shared.items():
        assert np.array_equal(value, tensors[name]), name
    ends = dict(zip(["head.weight", "head.bias"], _kept(memories[1]["local"], [15, 3]), strict=True))
    begun = whole.spec.unflatten(start)
    for name, end in ends.items():
        assert np.abs(tensors[name]).max() > 1e-4
        np.testing.assert_allclose(end, (begun[name] - tensors[name]).reshape(-1), atol=1e-6)


def _kept(values, sizes):
    """The kept tensors in the order of the spec: counters of the normalisation first, then the head."""
    parts, start = [], values.size - sum(sizes)
    for size in sizes:
        parts.append(values[start : start + size])
        start += size
    return parts


def test_heads_differ_and_are_remembered():
    trained = task("head.*")
    model, memories = trained.initial(public_root(1)), [trained.memory(k) for k in range(2)]
    assert np.array_equal(memories[0]["local"], memories[1]["local"])
    for k in range(2):
        trained.train(k, model, memories[k], round=0, seed=private_root(1, k))
    assert not np.array_equal(memories[0]["local"], memories[1]["local"])
    before = memories[0]["local"].copy()
    again = [trained.train(0, model, {"local": before.copy()}, round=1, seed=private_root(1, 0)).update for _ in "ab"]
    fresh = trained.train(0, model, trained.memory(0), round=1, seed=private_root(1, 0)).update
    assert np.array_equal(again[0], again[1])
    assert not np.array_equal(again[0], fresh)


def test_what_a_member_has_of_its_own_is_scored_on_what_it_holds_back():
    trained = task("head.*", "bn.*")
    model, memory = trained.initial(public_root(1)), trained.memory(1)
    result = trained.train(1, model, memory, round=0, seed=private_root(1, 1))
    assert set(result.metrics) == {"personal_loss", "personal_accuracy"}
    flat = FlatModule(Network(), keep=("head.*", "bn.*"))
    flat.load(model)
    flat.load_local(memory["local"])
    flat.evaluate()
    logits = flat.module(torch.from_numpy(X[50:60]))
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(Y[50:60]))
    assert result.metrics["personal_loss"] == pytest.approx(loss.item(), rel=1e-6)


def test_a_run_with_heads_of_their_own_is_the_same_however_it_is_cut(tmp_path):
    data = ((X, Y), (X, Y))

    def ran(folder, *changes, **settings):
        federation = eris.Federation(
            Network, data, settings.pop("method", "eris"), members=3, rounds=4, changes=list(changes),
            local={"lr": 0.1, "batch": 5, "keep": ["head.*", "bn.*"]},
        )  # fmt: skip
        return federation.run(tmp_path / folder, report=False).summaries[0]

    whole = ran("whole", "aggregators=1")
    assert whole["parameters"] == 4 * 5 + 5
    assert ran("shards")["model_digest"] == whole["model_digest"]
    assert ran("fedavg", method="fedavg")["model_digest"] == whole["model_digest"]
    assert ran("dsc", method="eris+dsc")["finished"]


WITH_UPDATES = [
    name for name, method in METHODS.items() if method.exchange is None and name != "fedavg-dpsgd"
]  # with noise in local steps it is refused, see below


@pytest.mark.parametrize("method", WITH_UPDATES)
def test_it_goes_with_every_method_that_composes(method, tmp_path):
    federation = eris.Federation(
        Network, ((X, Y), (X, Y)), method, members=4, rounds=2, workers=1,
        local={"lr": 0.1, "batch": 5, "keep": ["head.*", "bn.*"]},
    )  # fmt: skip
    result = federation.run(tmp_path / "run", report=False)
    assert result[method]["parameters"] == 4 * 5 + 5
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all({"loss", "personal_loss"} <= line.keys() for line in lines)


def test_and_with_corrected_gradients(tmp_path):
    changes = ["local.correction=proximal", 'local.keep=["head.*"]', "local.buffers=local", "local.batch=5"]
    federation = eris.Federation(Network, ((X, Y), None), "eris", members=3, rounds=2, changes=changes)
    assert federation.run(tmp_path / "run", report=False).finished


def test_personal_and_shared_figures_stand_side_by_side(tmp_path):
    lines = {}
    for workers in ("inline", "processes"):
        (tmp_path / "persons.py").write_text(MODULE)
        settings = ["model.name=persons:Network", "data.name=persons:data", 'local.keep=["head.*"]', "method=eris"]
        words = [*settings, "members=3", "rounds=2", f"workers={1 if workers == 'inline' else 2}"]
        arguments = [part for word in words for part in ("--set", word)]
        command("run", *arguments, "--out", workers, cwd=tmp_path)
        text = (tmp_path / workers / "metrics.jsonl").read_text()
        lines[workers] = [json.loads(line) for line in text.splitlines()]
    for one, other in zip(lines["inline"], lines["processes"], strict=True):
        assert {"loss", "accuracy", "personal_loss", "personal_accuracy"} <= one.keys()
        assert one["personal_loss"] == other["personal_loss"] != one["loss"]


@pytest.mark.slow
def test_real_peers_keep_what_stays_at_home(tmp_path):
    """Processes end with the simulated model; each says how well its own does, and has it in its checkpoint."""
    (tmp_path / "persons.py").write_text(MODULE)
    settings = ["model.name=persons:Network", "data.name=persons:data", 'local.keep=["head.*"]', "method=eris"]
    arguments = [part for word in [*settings, "members=3", "rounds=2"] for part in ("--set", word)]
    command("run", *arguments, "--out", "simulated", cwd=tmp_path)
    command("up", *arguments, "--out", "processes", cwd=tmp_path)
    simulated = json.loads((tmp_path / "simulated" / "summary.json").read_text())
    assert (
        json.loads((tmp_path / "processes" / "outcome.json").read_text())["model_digest"] == simulated["model_digest"]
    )
    heads = set()
    for peer in range(3):
        folder = tmp_path / "processes" / "peers" / f"peer-{peer}"
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert all({"personal_loss", "personal_accuracy"} <= line.keys() for line in lines)
        heads.add(lines[-1]["personal_loss"])
    assert len(heads) == 3
    together = [json.loads(line) for line in (tmp_path / "simulated" / "metrics.jsonl").read_text().splitlines()]
    assert together[-1]["personal_loss"] == pytest.approx(sum(heads) / 3)


def test_a_run_goes_on_with_the_heads_it_had(tmp_path):
    def federation():
        local = {"lr": 0.1, "batch": 5, "keep": ["head.*"], "keep_state": True, "momentum": 0.9}
        return eris.Federation(Network, ((X, Y), (X, Y)), "eris", members=3, rounds=4, local=local)

    rounds = []

    def stop(event):
        rounds.append(event)
        if type(event).__name__ == "RoundEnded" and event.round == 1:
            raise KeyboardInterrupt

    from eris.simulate.run import run

    undisturbed = federation().run(tmp_path / "a", report=False).summaries[0]["model_digest"]
    broken = federation()
    with pytest.raises(KeyboardInterrupt):
        run(broken.config, tmp_path / "b", task=broken.task, listeners=[stop], checkpoint_seconds=0)
    assert federation().resume(tmp_path / "b", report=False).summaries[0]["model_digest"] == undisturbed


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: task("*").rehearse(), "local.keep keeps every trainable tensor at home"),
        (lambda: LocalWork(send="gradient", keep=("head.*",)), "tensors that stay at home would never be trained"),
        (lambda: task("head.*").check_cohort(), "tensors that stay at home cannot be trained in cohorts"),
        (
            lambda: TorchTask(
                Network, ArrayExamples(X, Y), PLACES, work=LocalWork(keep=("head.*",)), gradient=PrivateGradient(1, 1)
            ),
            "DP-SGD does not work with local.keep",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(make, words):
    with pytest.raises((ConfigError, ModelError), match=words):
        make()
