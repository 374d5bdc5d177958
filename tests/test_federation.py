from __future__ import annotations

import numpy as np
import pytest

import eris
from eris.errors import ConfigError
from eris.events import RoundEnded
from eris.local.numpy_task import QuadraticTask


def test_names_are_enough(tmp_path):
    federation = eris.Federation("lenet5", "mnist-sample", "eris", members=3, changes=["workers=1"])
    assert repr(federation) == "Federation(3 members, eris, lenet5 on mnist-sample)"


def test_a_model_and_arrays_of_ones_own(tmp_path):
    torch = pytest.importorskip("torch")
    seed = eris.public_root(1)
    inputs = (2 * seed.child("x").uniforms(60 * 4) - 1).reshape(60, 4).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(np.int64)
    federation = eris.Federation(
        lambda: torch.nn.Linear(4, 2),
        ((inputs, labels), (inputs, labels)),
        ["fedavg", "eris"],
        members=3,
        rounds=25,
        local={"lr": 0.5, "batch": 5},
    )
    heard = []
    result = federation.run(tmp_path / "run", listeners=[heard.append])
    assert result.finished
    assert result["eris"]["model_digest"] == result["fedavg"]["model_digest"]
    assert result["eris"]["final_accuracy"] > 0.9
    assert sum(isinstance(event, RoundEnded) for event in heard) == 50


def test_a_task_of_ones_own(tmp_path):
    task = QuadraticTask.synthetic(4, 30, eris.public_root(2))
    result = eris.Federation(task=task, method="eris+dsc", members=4, rounds=5).run(tmp_path / "run")
    assert result.summaries[0]["rounds"] == 5
    assert eris.Federation(task=task, method="eris+dsc", members=4, rounds=5).resume(tmp_path / "run").finished


def test_mistakes_are_those_of_a_configuration():
    with pytest.raises(ConfigError, match="did you mean rounds"):
        eris.Federation(method="eris", round=3)


def test_a_model_without_data_of_ones_own_needs_no_names(tmp_path):
    torch = pytest.importorskip("torch")
    federation = eris.Federation(
        lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)), "mnist-sample", "eris",
        members=3, rounds=1, changes=["data.samples=20"], local={"steps": 1},
    )  # fmt: skip
    assert federation.run(tmp_path / "run").finished
