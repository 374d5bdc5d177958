"""A dry batch finds mistakes and leaves no trace. (What it says: tests/test_bad_inputs.py.)"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from eris.data import ArrayExamples, mnist_sample, partition
from eris.errors import DataError, ModelError
from eris.local.numpy_task import QuadraticTask
from eris.local.own_examples import Items
from eris.local.task import rehearse
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.models import model_factory
from eris.seeds import private_root, public_root

X = (np.arange(60 * 4, dtype=np.float32).reshape(60, 4) % 7) / 7
Y = np.arange(60) % 3


class Restless(nn.Module):
    """Has everything that a forward pass could leave a trace in."""

    def __init__(self):
        super().__init__()
        self.body, self.bn, self.head = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(nn.functional.dropout(self.bn(self.body(x)), 0.5, self.training))


@pytest.mark.parametrize("buffers", ["average", "local", "frozen"])
def test_a_dry_batch_leaves_no_trace(buffers):
    def made():
        work = LocalWork(lr=0.1, batch=5, buffers=buffers, keep=("head.*",))
        return TorchTask(Restless, ArrayExamples(X, Y), [np.arange(30)], test=ArrayExamples(X, Y), work=work)

    tried, untried = made(), made()
    state = torch.get_rng_state()
    tried.rehearse()
    assert torch.equal(torch.get_rng_state(), state)
    start, memories = tried.initial(public_root(1)), [tried.memory(0), untried.memory(0)]
    for round in range(2):
        updates = [
            each.train(0, start, memory, round=round, seed=private_root(1, 0)).update
            for each, memory in zip((tried, untried), memories, strict=True)
        ]
        assert np.array_equal(*updates)
    assert np.array_equal(memories[0]["local"], memories[1]["local"])
    assert tried.evaluate(start) == untried.evaluate(start)


def test_only_what_a_peer_has_is_looked_at():
    inputs = X.copy()
    inputs[40, 0] = np.nan
    task = TorchTask(lambda: nn.Linear(4, 3), ArrayExamples(inputs, Y), [np.arange(30), np.arange(30, 60)])
    task.rehearse([0])
    with pytest.raises(DataError, match=r"sample 40 .* \[sample=40, peer=1\]"):
        task.rehearse([1])


def test_samples_by_number_are_read_up_to_a_bound():
    class Counted:
        read = 0

        def __len__(self):
            return 5000

        def __getitem__(self, place):
            Counted.read += 1
            return np.ones(4, np.float32), 0

    task = TorchTask(lambda: nn.Linear(4, 3), Items(Counted()), [np.arange(2500), np.arange(2500, 5000)])
    task.rehearse()
    assert Counted.read < 1200


def test_pictures_of_ours_are_not_read_through(monkeypatch):
    digits = mnist_sample()
    shares = partition(digits.train.labels, 3, public_root(0), samples=500)
    taken, take = [], type(digits.train).take

    def counted(self, places):
        taken.append(len(places))
        return take(self, places)

    monkeypatch.setattr(type(digits.train), "take", counted)
    TorchTask(model_factory("lenet5"), digits.train, shares.train, test=digits.test).rehearse()
    assert sum(taken) <= 4


def test_a_gradient_that_is_not_finite_names_its_tensor():
    class Rooted(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale = nn.Linear(4, 3), nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return self.layer(x) + torch.sqrt(self.scale)

    with pytest.raises(ModelError, match="the gradient of tensor scale is not finite"):
        TorchTask(Rooted, ArrayExamples(X, Y), [np.arange(30)]).rehearse()


def test_other_tasks_are_taken_as_they_are():
    rehearse(QuadraticTask.synthetic(3, 5, public_root(0)))


def test_members_of_other_shapes_are_told_apart():
    class Uneven:
        def __len__(self):
            return 20

        def take(self, places):
            width = 4 if places[0] < 10 else 5
            return np.ones((len(places), width), np.float32), np.zeros(len(places), np.int64)

    task = TorchTask(lambda: nn.Linear(4, 3), Uneven(), [np.arange(10), np.arange(10, 20)])
    with pytest.raises(DataError, match=r"the inputs of sample 10 have the shape \(5,\), but others have \(4,\)"):
        task.rehearse()
