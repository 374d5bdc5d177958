"""A torch model in blocks: the step of the task in memory, from a model that is only read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from eris.data import ArrayExamples
from eris.errors import ConfigError
from eris.local.task import BlockTask
from eris.local.torch_block_task import LongTorchTask
from eris.local.torch_losses import NextToken
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.seeds import private_root, public_root
from eris.storage.mapped import is_mapped, mapped

transformers = pytest.importorskip("transformers")

WORDS = np.random.default_rng(0).integers(0, 30, size=(8, 10))
TEXTS = ArrayExamples(WORDS, WORDS)
MEMBERS = [np.arange(4), np.arange(4, 8)]


def language_model():
    settings = transformers.GPTNeoConfig(
        vocab_size=30, hidden_size=16, num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]],
        max_position_embeddings=16, window_size=4, bos_token_id=1, eos_token_id=1,
        embed_dropout=0.0, attention_dropout=0.0, resid_dropout=0.0,
    )  # fmt: skip
    return transformers.GPTNeoForCausalLM(settings)


def made(kind=LongTorchTask, work=None, **more):
    return kind(
        language_model, TEXTS, MEMBERS, test=TEXTS, work=work or LocalWork(lr=0.1), objective=NextToken(), **more
    )


def on_disk(vector):
    model = mapped(vector.nbytes).view(np.float32)
    model[:] = vector
    model.flags.writeable = False
    return model


def test_the_step_is_the_one_taken_in_memory(tmp_path):
    task, whole = made(folder=tmp_path, turn=tmp_path / "turn"), made(TorchTask)
    assert isinstance(task, BlockTask)
    assert task.spec.digest == whole.spec.digest
    start = task.initial(public_root(3))
    np.testing.assert_array_equal(start, whole.initial(public_root(3)))
    seed, model = private_root(1, 0), on_disk(start)
    assert is_mapped(model)
    found = task.train(1, model, {}, round=0, seed=seed)
    wanted = whole.train(1, start, {}, round=0, seed=seed)
    np.testing.assert_allclose(found.update, wanted.update, atol=1e-7)
    assert found.loss == pytest.approx(wanted.loss, rel=1e-6)
    np.testing.assert_array_equal(model, start)
    assert task.evaluate(model)["loss"] == pytest.approx(whole.evaluate(start)["loss"], rel=1e-5)
    total, count = task.score(0, model, {})["loss"]
    assert total / count == pytest.approx(task.evaluate(model)["loss"])
    assert task.evaluate(start - found.update)["loss"] < task.evaluate(start)["loss"]


def test_parts_of_a_batch_add_up_and_the_turn_is_given_on(tmp_path):
    work = LocalWork(lr=0.1, micro_batch=1)
    task, whole = made(work=work, turn=tmp_path / "turn"), made(turn=tmp_path / "turn")
    start = task.initial(public_root(3))
    updates = [each.train(0, start, {}, round=0, seed=private_root(1, 0)).update for each in (task, whole)]
    np.testing.assert_allclose(*updates, atol=1e-6)


def test_weights_are_windows_and_gradients_are_let_go():
    task = made()
    model = on_disk(task.initial(public_root(3)))
    with task._lent(model):
        addresses = [parameter.data_ptr() for parameter in task._parameters.values()]
        inside = model.__array_interface__["data"][0]
        assert all(inside <= address < inside + model.nbytes for address in addresses)
    assert all(parameter.untyped_storage().nbytes() == 4 for parameter in task._parameters.values())
    task.train(0, model, {}, round=0, seed=private_root(1, 0))
    assert all(parameter.grad is None for parameter in task._parameters.values())


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (LocalWork(optimizer="adam"), r"adam would keep 0\.0 GB per member for a model of [\d,]+ values"),
        (LocalWork(momentum=0.9), "momentum would keep"),
        (LocalWork(steps=3), "one step per round"),
    ],
)
def test_what_would_be_longer_than_memory_is_refused(work, says):
    with pytest.raises(ConfigError, match=says):
        made(work=work)


def test_a_failing_step_gives_the_turn_on(tmp_path):
    task = made(turn=tmp_path / "turn")
    task._objective = None
    with pytest.raises(AttributeError):
        task.train(0, torch.zeros(task.spec.n).numpy(), {}, round=0, seed=private_root(1, 0))
    assert made(turn=tmp_path / "turn").members == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_benchmark_trains_a_small_network_by_real_peers():
    program = Path(__file__).parents[2] / "benchmarks" / "big.py"
    words = [sys.executable, str(program), "--model", "tiny", "--spill-above", "1000"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=500, check=True)
    found = json.loads(ended.stdout)
    assert found["one digest"]
    assert found["contributions missing"] == 0
    assert found["loss after"] < found["loss before"]
    assert "GB of disk" in ended.stderr.splitlines()[0]  # said first
