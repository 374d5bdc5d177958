import numpy as np
import pytest
import torch
from torch import nn

from eris.data import ArrayExamples, mnist_sample, partition
from eris.local.torch_losses import Classification
from eris.local.torch_module import FlatModule, spec_of, tensors_of
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.models import model_factory
from eris.seeds import private_root, public_root

PRIVATE = private_root(0, 0)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 4, bias=False)
        self.out = nn.Linear(4, 4)
        self.out.weight = self.embed.weight
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.out(torch.relu(self.frozen(self.embed(x))))


def tiny(**work):
    digits = mnist_sample()
    shares = partition(digits.train.labels, 2, public_root(0), samples=8)
    return TorchTask(
        model_factory("tiny-batchnorm"), digits.train, shares.train, test=digits.test, work=LocalWork(lr=0.1, **work)
    )


def roles(spec):
    return {tensor.name: tensor.role for tensor in spec.tensors}


def test_roles_of_a_network_with_statistics():
    module = model_factory("tiny-batchnorm")()
    assert roles(spec_of(module)) == {
        "conv.weight": "trainable",
        "norm.weight": "trainable",
        "norm.bias": "trainable",
        "norm.running_mean": "buffer",
        "norm.running_var": "buffer",
        "norm.num_batches_tracked": "local",
        "classifier.weight": "trainable",
        "classifier.bias": "trainable",
    }
    assert roles(spec_of(module, buffers="local"))["norm.running_var"] == "local"
    assert roles(spec_of(module, buffers="frozen"))["norm.running_var"] == "frozen"


def test_shared_and_frozen_tensors():
    spec = spec_of(Tied())
    assert roles(spec) == {
        "unused": "trainable",
        "embed.weight": "trainable",
        "out.bias": "trainable",
        "frozen.weight": "frozen",
        "frozen.bias": "frozen",
    }
    flat = FlatModule(Tied())
    flat.load(np.arange(flat.spec.n, dtype=np.float32))
    assert flat.module.out.weight is flat.module.embed.weight
    assert flat.module.out.weight.flatten().tolist() == list(range(3, 19))
    flat.differentiate(Classification(), torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0]))
    assert not flat.gradient[:3].any()
    assert flat.gradient[3:].any()


def test_vector_and_tensors_are_one_memory():
    flat = FlatModule(nn.Linear(3, 2))
    flat.vector[:] = 5
    assert torch.equal(flat.module.weight, torch.full((2, 3), 5.0))
    with torch.no_grad():
        flat.module.bias.fill_(7)
    assert flat.vector.tolist() == [5] * 6 + [7] * 2


def test_halves_and_doubles_become_float32():
    for dtype in (torch.float16, torch.float64):
        flat = FlatModule(nn.Linear(3, 2).to(dtype))
        assert flat.spec.tensor("weight").dtype == "float32"
        assert flat.module(torch.zeros(1, 3)).dtype == torch.float32


def test_averaged_statistics_are_part_of_the_update():
    task = tiny()
    model = task.initial(public_root(0))
    update = task.train(0, model, task.memory(0), round=0, seed=PRIVATE).update
    module = model_factory("tiny-batchnorm")()
    start = task.spec.unflatten(model.copy())
    module.load_state_dict({name: torch.tensor(value) for name, value in start.items()}, strict=False)
    inputs, _ = mnist_sample().train.take(task._places[0])
    module.train()
    module(torch.from_numpy(inputs))
    moved = task.spec.unflatten(model - update)
    assert update.size == task.spec.n
    torch.testing.assert_close(torch.tensor(moved["norm.running_mean"]), module.norm.running_mean)
    torch.testing.assert_close(torch.tensor(moved["norm.running_var"]), module.norm.running_var)


def test_local_statistics_stay_with_their_member():
    task = tiny(buffers="local")
    assert task.spec.n_buffer == 0
    model, memory = task.initial(public_root(0)), task.memory(0)
    assert memory["local"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0]
    task.train(0, model, memory, round=0, seed=PRIVATE)
    first = memory["local"].copy()
    assert first[-1] == 1
    assert first[:4].any()
    other = task.memory(1)
    task.train(1, model, other, round=0, seed=private_root(0, 1))
    assert not np.array_equal(other["local"], first)
    task.train(0, model, memory, round=1, seed=PRIVATE)
    assert memory["local"][-1] == 2


def test_frozen_statistics_are_used_and_kept():
    task = tiny(buffers="frozen")
    model = task.initial(public_root(0))
    task.train(0, model, task.memory(0), round=0, seed=PRIVATE)
    norm = task._module().module.norm
    assert norm.running_mean.tolist() == [0] * 4
    assert norm.running_var.tolist() == [1] * 4
    assert not norm.training
    assert task._module().module.conv.training
    task.evaluate(model)
    task.train(0, model, task.memory(0), round=1, seed=PRIVATE)
    assert not norm.training


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(nn.functional.dropout(x, 0.5, self.training))


def dropping():
    inputs = np.ones((10, 6), np.float32)
    return TorchTask(Dropping, ArrayExamples(inputs, np.arange(10) % 3), [np.arange(10)], work=LocalWork(lr=1.0))


def test_dropout_follows_the_private_seed():
    task = dropping()
    model = task.initial(public_root(0))

    def update(seed, round=0):
        torch.rand(3)  # whatever else draws from torch's generator in between
        return task.train(0, model, {}, round=round, seed=seed).update

    assert np.array_equal(update(PRIVATE), update(PRIVATE))
    assert not np.array_equal(update(PRIVATE), update(PRIVATE, round=1))
    assert not np.array_equal(update(PRIVATE), update(private_root(0, 1)))


def test_tensors_come_once_under_their_first_name():
    assert list(tensors_of(Tied())) == ["unused", "embed.weight", "out.bias", "frozen.weight", "frozen.bias"]


@pytest.mark.parametrize("budget", [1, 1 << 30])
def test_results_do_not_depend_on_what_is_cached(budget):
    digits = mnist_sample()
    shares = partition(digits.train.labels, 3, public_root(0), samples=8)
    task = TorchTask(
        model_factory("mlp"), digits.train, shares.train, test=digits.test, cache_bytes=budget, evaluation_batch=300
    )
    model = task.initial(public_root(0))
    first = [task.train(k, model, {}, round=0, seed=PRIVATE).update for k in (0, 1, 2, 0)]
    assert np.array_equal(first[0], first[3])
    assert not np.array_equal(first[0], first[1])
    assert task.evaluate(model) == task.evaluate(model)
