"""Every way to train takes batches of every form: the bits are those of plain tensors, or the same up to rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from eris.data import ArrayExamples
from eris.local.own_examples import Columns
from eris.local.torch_losses import objective_of
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.privacy.torch_private import PrivateGradient
from eris.seeds import private_root, public_root

X = (np.arange(40 * 4, dtype=np.float32).reshape(40, 4) % 7) / 7
MANY = np.stack([X[:, 0] > 0.5, X[:, 1] > 0.3], 1).astype(np.float32)
PLACES = [np.arange(0, 20), np.arange(20, 40)]


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.left(x[:, :2]) + self.right(x[:, 2:])


class Named(Plain):
    def forward(self, left, right):
        return self.left(left) + self.right(right)


def tasks(work, **options):
    columns = Columns({"left": X[:, :2], "right": X[:, 2:], "labels": MANY})
    shared = {"work": work, "objective": objective_of("bce"), **options}
    return [TorchTask(Plain, ArrayExamples(X, MANY), PLACES, **shared), TorchTask(Named, columns, PLACES, **shared)]


def updates(made):
    start = made[0].initial(public_root(1))
    return [each.train(1, start, each.memory(1), round=0, seed=private_root(1, 1)).update for each in made]


@pytest.mark.parametrize(
    "work",
    [
        LocalWork(lr=0.5, batch=6, epochs=2),
        LocalWork(lr=0.5, micro_batch=7),
        LocalWork(send="gradient", estimator="svrg", batch=5),
        LocalWork(send="gradient", estimator="saga", batch=5),
    ],
    ids=["steps", "in parts", "svrg", "saga"],
)
def test_names_are_trained_as_tensors_are(work):
    plain, named = updates(tasks(work))
    assert np.abs(plain).max() > 1e-3
    np.testing.assert_allclose(named, plain, atol=1e-6)


def test_every_sample_is_clipped_by_itself():
    plain, named = updates(tasks(LocalWork(lr=0.5), gradient=PrivateGradient(0.1, 0.5)))
    np.testing.assert_allclose(named, plain, atol=1e-6)


def test_cohorts_of_names():
    made = tasks(LocalWork(lr=0.5, batch=6, epochs=2))[1]
    start, seeds = made.initial(public_root(1)), [private_root(1, member) for member in range(2)]
    made.check_cohort()
    together = made.train_cohort([0, 1], [start, start], [{}, {}], round=0, seeds=seeds)
    for member, result in enumerate(together):
        alone = made.train(member, start, {}, round=0, seed=seeds[member])
        np.testing.assert_allclose(result.update, alone.update, atol=1e-6)


def test_single_samples_of_names():
    plain, named = tasks(LocalWork())
    start = plain.initial(public_root(1))
    np.testing.assert_allclose(named.sample_gradients(0, start), plain.sample_gradients(0, start), atol=1e-6)
    np.testing.assert_allclose(named.sample_losses(0, start), plain.sample_losses(0, start), atol=1e-6)
    assert named.gradient_norm(start) == pytest.approx(plain.gradient_norm(start), rel=1e-5)


def test_the_gradient_is_that_of_torch():
    made = tasks(LocalWork(lr=1.0))[1]
    start = made.initial(public_root(1))
    module = Named()
    module.load_state_dict({name: torch.tensor(value) for name, value in made.spec.unflatten(start.copy()).items()})
    x, y = torch.from_numpy(X[:20]), torch.from_numpy(MANY[:20])
    nn.functional.binary_cross_entropy_with_logits(module(x[:, :2], x[:, 2:]), y).backward()
    expected = made.spec.flatten({name: part.grad.numpy() for name, part in module.named_parameters()})
    update = made.train(0, start, {}, round=0, seed=private_root(1, 0)).update
    np.testing.assert_allclose(update, expected, atol=1e-6)
