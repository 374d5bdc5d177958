from __future__ import annotations

import numpy as np
import pytest

from eris.errors import InputError
from eris.local.numpy_task import Descent, LogisticTask, QuadraticTask
from eris.local.spec import ModelSpec
from eris.local.task import Task
from eris.seeds import private_root, public_root

RUN, PEER = public_root(3), private_root(3, peer=0)


def tasks() -> list[Task]:
    batches = LogisticTask.synthetic(3, RUN, batch=7, epochs=2, descent=Descent(0.1, 0.9))
    return [QuadraticTask.synthetic(4, 5, RUN, descent=Descent(0.1, 0.5)), LogisticTask.synthetic(3, RUN), batches]


@pytest.mark.parametrize("task", tasks(), ids=["quadratic", "logistic", "batches"])
class TestEveryTask:
    def test_trains_to_the_same_bits_and_leaves_the_model_alone(self, task: Task) -> None:
        model = task.initial(RUN.child("initial"))
        before, first, second = model.copy(), task.memory(1), task.memory(1)
        a = task.train(1, model, first, round=0, seed=PEER)
        b = task.train(1, model, second, round=0, seed=PEER)
        assert np.array_equal(model, before)
        assert np.array_equal(a.update, b.update)
        assert a.update.dtype == np.float32
        assert a.update.shape == (task.spec.n,)
        assert a.samples == task.samples(1)
        assert all(np.array_equal(first[name], second[name]) for name in first)

    def test_members_differ(self, task: Task) -> None:
        model = task.initial(RUN)
        a, b = (task.train(k, model, task.memory(k), round=0, seed=PEER).update for k in (0, 1))
        assert not np.array_equal(a, b)

    def test_federated_averaging_lowers_the_loss(self, task: Task) -> None:
        model = task.initial(RUN)
        before = task.evaluate(model)["loss"]
        memories = [task.memory(k) for k in range(task.members)]
        total = sum(task.samples(k) for k in range(task.members))
        for round in range(30):
            results = [
                task.train(k, model, memories[k], round=round, seed=PEER.child(round, k)) for k in range(task.members)
            ]
            model = model - sum(r.update * np.float32(r.samples / total) for r in results)
        assert task.evaluate(model)["loss"] < 0.9 * before

    def test_wrong_model_length_is_refused(self, task: Task) -> None:
        with pytest.raises(InputError, match="the spec has"):
            task.train(0, np.zeros(task.spec.n + 1, np.float32), task.memory(0), round=0, seed=PEER)


@pytest.mark.parametrize("task", [task for task in tasks() if task.memory(0)], ids=["quadratic", "batches"])
def test_memory_moves_and_matters(task: Task) -> None:
    memory, model = task.memory(0), task.initial(RUN)
    first = task.train(0, model, memory, round=0, seed=PEER)
    assert memory["momentum"].any()
    second = task.train(0, model, memory, round=1, seed=PEER)
    assert not np.array_equal(first.update, second.update)


def test_quadratic_step_is_the_closed_form() -> None:
    task = QuadraticTask([[1.0, -2.0]], curvatures=[[0.5, 2.0]], steps=3, descent=Descent(0.25))
    start = np.array([3.0, 5.0], np.float32)
    update = task.train(0, start, {}, round=0, seed=PEER).update
    away = start - [1.0, -2.0]
    assert np.allclose(start - update, [1.0, -2.0] + away * (1 - 0.25 * np.array([0.5, 2.0])) ** 3)


def test_quadratic_optimum_has_no_gradient_and_no_distance() -> None:
    task = QuadraticTask.synthetic(6, 4, RUN)
    shares = np.array([task.samples(k) for k in range(6)], float)
    gradient = (shares[:, None] * task.curvatures * (task.optimum() - task.centres)).sum(axis=0)
    assert np.abs(gradient).max() < 1e-5
    assert task.evaluate(task.optimum().astype(np.float32))["distance"] < 1e-6


def test_quadratic_takes_a_spec_with_buffers() -> None:
    spec = ModelSpec.of({"w": np.ones(2, np.float32), "mean": np.ones(1, np.float32)}, roles={"mean": "buffer"})
    task = QuadraticTask([[1.0, 1.0, 8.0]], spec=spec)
    assert task.train(0, np.zeros(3, np.float32), {}, round=0, seed=PEER).update[2] < 0
    with pytest.raises(InputError, match="centres have 2 values, the spec has 3"):
        QuadraticTask([[1.0, 1.0]], spec=spec)


def test_logistic_gradient_is_the_slope_of_its_loss() -> None:
    task = LogisticTask.synthetic(1, RUN, samples=30, features=3)
    features, labels = task._train[0]
    model = task.initial(RUN)
    _, gradient = task.gradient(model, features, labels)
    for i in range(task.spec.n):
        bump = np.zeros_like(model)
        bump[i] = 1e-2
        above, _ = task.gradient(model + bump, features, labels)
        below, _ = task.gradient(model - bump, features, labels)
        assert gradient[i] == pytest.approx((above - below) / 2e-2, abs=2e-3)


def test_logistic_batches_cover_every_row_once_an_epoch() -> None:
    task = LogisticTask.synthetic(1, RUN, samples=10, batch=4, epochs=3)
    batches = list(task._batches(10, PEER))
    assert [b.size for b in batches] == [4, 4, 2] * 3
    for epoch in range(3):
        assert sorted(np.concatenate(batches[3 * epoch : 3 * epoch + 3]).tolist()) == list(range(10))
    assert not np.array_equal(batches[0], batches[3])


def test_logistic_batches_refuse_a_public_seed() -> None:
    task = LogisticTask.synthetic(1, RUN, batch=4)
    with pytest.raises(InputError, match="private seed"):
        task.train(0, task.initial(RUN), {}, round=0, seed=RUN)


def test_logistic_member_without_rows_does_not_move() -> None:
    task = LogisticTask([(np.empty((0, 2)), np.empty(0, int))], ([[1.0, 2.0]], [1]), classes=2)
    result = task.train(0, task.initial(RUN), {}, round=0, seed=PEER)
    assert not result.update.any()
    assert (result.samples, result.steps) == (0, 0.0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Descent(learning_rate=0), "learning rate is 0"),
        (lambda: Descent(learning_rate=float("nan")), "learning rate is nan"),
        (lambda: Descent(momentum=1.0), "momentum is 1.0"),
        (lambda: QuadraticTask([[1.0]], curvatures=-1.0), "not all positive"),
        (lambda: QuadraticTask([[1.0]], curvatures=[1.0, 2.0]), "curvatures have shape"),
        (lambda: QuadraticTask([[1.0]], samples=[0]), "samples are"),
        (lambda: QuadraticTask([[1.0]], samples=[1, 2]), "samples are"),
        (lambda: QuadraticTask([[1.0]], steps=0), "local steps is 0"),
        (lambda: LogisticTask([([[1.0]], [3])], ([[1.0]], [0]), classes=2), "labels are not class numbers"),
        (lambda: LogisticTask([([[1.0]], [0.5])], ([[1.0]], [0]), classes=2), "labels are not class numbers"),
        (lambda: LogisticTask([([1.0], [0])], ([[1.0]], [0]), classes=2), "features have shape"),
        (lambda: LogisticTask([([[1.0, 2.0]], [0])], ([[1.0]], [0]), classes=2), "features"),
        (lambda: LogisticTask([([[np.inf]], [0])], ([[1.0]], [0]), classes=2), "not all finite"),
        (lambda: LogisticTask.synthetic(1, RUN, batch=0), "batch size is 0"),
        (lambda: LogisticTask.synthetic(1, RUN, epochs=0), "epochs is 0"),
    ],
)
def test_bad_input_is_named(build: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()  # type: ignore[operator]
