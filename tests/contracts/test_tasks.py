"""One suite for every learning problem: what engines and peers rely on."""

import numpy as np
import pytest

from eris.data import mnist_sample, partition
from eris.local.numpy_task import LogisticTask, QuadraticTask
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.models import model_factory
from eris.seeds import private_root, public_root


def torch_task(model="mlp", **work):
    digits = mnist_sample()
    shares = partition(digits.train.labels, 3, public_root(1), kind="quantity-skew", samples=10, validation=0.2)
    return TorchTask(
        model_factory(model),
        digits.train,
        shares.train,
        test=digits.test,
        validation=shares.validation,
        work=LocalWork(**work),
    )


TASKS = {
    "quadratic": lambda: QuadraticTask.synthetic(3, 20, public_root(1)),
    "logistic": lambda: LogisticTask.synthetic(3, public_root(1)),
    "torch-sgd": lambda: torch_task(batch=4),
    "torch-momentum": lambda: torch_task(momentum=0.9, keep_state=True),
    "torch-adam": lambda: torch_task(optimizer="adam", keep_state=True, epochs=2),
    "torch-svrg": lambda: torch_task(send="gradient", estimator="svrg", batch=2),
    "torch-saga": lambda: torch_task(send="gradient", estimator="saga", batch=2),
    "torch-batchnorm": lambda: torch_task("tiny-batchnorm", batch=4),
    "torch-local-statistics": lambda: torch_task("tiny-batchnorm", buffers="local"),
}


@pytest.fixture(params=TASKS.values(), ids=TASKS.keys())
def task(request):
    return request.param()


def train(task, member, model, memory, round):
    return task.train(member, model, memory, round=round, seed=private_root(5, member).child("round", round))


def test_the_initial_model_fits_the_spec_and_follows_the_seed(task):
    model = task.initial(public_root(1))
    assert model.dtype == np.float32
    assert model.shape == (task.spec.n,)
    assert np.array_equal(model, task.initial(public_root(1)))


def test_an_update_fits_and_leaves_the_model_alone(task):
    model = task.initial(public_root(1))
    before = model.copy()
    for member in range(task.members):
        result = train(task, member, model, task.memory(member), 0)
        assert result.update.dtype == np.float32
        assert result.update.shape == model.shape
        assert np.isfinite(result.update).all()
        assert result.update.any()
        assert result.samples == task.samples(member) > 0
        assert result.steps > 0
    assert np.array_equal(model, before)
    assert not np.shares_memory(result.update, model)


def test_updates_do_not_change_afterwards(task):
    """An engine keeps an update while the next member trains."""
    model = task.initial(public_root(1))
    first = train(task, 0, model, task.memory(0), 0).update
    kept = first.copy()
    train(task, 1, model + np.float32(1), task.memory(1), 0)
    task.evaluate(model + np.float32(2))
    assert np.array_equal(first, kept)


def test_memory_keeps_its_shape(task):
    model, memory = task.initial(public_root(1)), task.memory(1)
    shapes = {name: vector.shape for name, vector in memory.items()}
    train(task, 1, model, memory, 0)
    assert {name: vector.shape for name, vector in memory.items()} == shapes
    assert all(vector.dtype == np.float32 and vector.ndim == 1 for vector in memory.values())


def test_nothing_but_memory_survives_a_call(task):
    """The second round of a member is the same, whatever happened in between and in whichever order."""
    model = task.initial(public_root(1))

    def second_round(disturb):
        memory = task.memory(0)
        train(task, 0, model, memory, 0)
        if disturb:
            task.evaluate(model + np.float32(3))
            train(task, 2, model - np.float32(1), task.memory(2), 7)
        saved = {name: vector.copy() for name, vector in memory.items()}
        return train(task, 0, model, saved, 1).update

    assert np.array_equal(second_round(False), second_round(True))


def test_two_copies_of_a_task_agree(task, request):
    other = TASKS[request.node.callspec.id]()
    model = task.initial(public_root(1))
    assert task.spec.digest == other.spec.digest
    one, two = (train(each, 1, model, each.memory(1), 3).update for each in (task, other))
    assert np.array_equal(one, two)
    assert task.evaluate(model) == other.evaluate(model)


def test_metrics_are_numbers(task):
    metrics = task.evaluate(task.initial(public_root(1)))
    assert "loss" in metrics
    assert all(type(value) is float for value in metrics.values())
