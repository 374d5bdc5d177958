import numpy as np
import pytest

from eris.data import mnist_sample, partition
from eris.local.estimator import BatchMean, Saga, Svrg
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.models import model_factory
from eris.seeds import private_root, public_root

SAMPLES, N = 8, 5
CENTRES = public_root(1).uniforms(SAMPLES * N).reshape(SAMPLES, N).astype(np.float32) * 4 - 2
SCALES = public_root(2).uniforms(SAMPLES).astype(np.float32)[:, None] + np.float32(0.5)


def oracle(point, places):
    """f_j(x) = a_j/2 ‖x − c_j‖²: gradients in closed form."""
    places = np.arange(SAMPLES) if places is None else places
    differences = SCALES[places] * (point - CENTRES[places])
    return differences.mean(axis=0, dtype=np.float32), float((differences**2).sum())


def full(point):
    return oracle(point, None)[0]


def estimates(estimator, point, count, start=None):
    """Independent estimates at `point`, each from its own copy of a memory that has seen `start`."""
    memory = estimator.init(SAMPLES, N)
    if start is not None:
        estimator.estimate(oracle, start, SAMPLES, memory, private_root(0, 0))
    drawn = []
    for number in range(count):
        copy = {name: vector.copy() for name, vector in memory.items()}
        drawn.append(estimator.estimate(oracle, point, SAMPLES, copy, private_root(1, number))[0])
    return np.array(drawn)


START = np.zeros(N, np.float32)
NEAR = START + np.float32(0.01)


@pytest.mark.parametrize("kind", [BatchMean, Svrg, Saga])
@pytest.mark.parametrize("batch", [None, SAMPLES])
def test_over_all_samples_every_estimator_is_the_gradient(kind, batch):
    drawn = estimates(kind(batch), NEAR, 1, START)[0]
    np.testing.assert_allclose(drawn, full(NEAR), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("estimator", [BatchMean(2), Svrg(2, refresh=0.01), Saga(2)])
def test_estimates_are_unbiased(estimator):
    far = START + np.float32(1)
    drawn = estimates(estimator, far, 4000, START)
    standard_error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert drawn.std() > 0.01
    assert np.all(np.abs(drawn.mean(axis=0) - full(far)) < 5 * standard_error)


@pytest.mark.parametrize("estimator", [Svrg(2, refresh=0.01), Saga(2)])
def test_variance_shrinks_near_what_is_remembered(estimator):
    plain = estimates(BatchMean(2), NEAR, 200).var(axis=0).max()
    assert estimates(estimator, NEAR, 200, START).var(axis=0).max() < plain / 1000


@pytest.mark.parametrize(("estimator", "rounds"), [(Svrg(2), 300), (Saga(2), 300)])
def test_descent_converges_to_the_optimum_where_plain_batches_cannot(estimator, rounds):
    def distance(kind):
        memory, point = kind.init(SAMPLES, N), START.copy()
        for round in range(rounds):
            point -= np.float32(0.2) * kind.estimate(oracle, point, SAMPLES, memory, private_root(3, round))[0]
        optimum = (SCALES * CENTRES).sum(axis=0) / SCALES.sum()
        return np.abs(point - optimum).max()

    assert distance(estimator) < 1e-4
    assert distance(BatchMean(2)) > 1e-2


def test_svrg_snapshot_moves_by_its_coin():
    memory = Svrg(2, refresh=1.0).init(SAMPLES, N)
    Svrg(2, refresh=1.0).estimate(oracle, NEAR, SAMPLES, memory, private_root(0, 0))
    assert np.array_equal(memory["snapshot"], NEAR)
    np.testing.assert_allclose(memory["full"], full(NEAR))
    stays = Svrg(2, refresh=1e-12)
    stays.estimate(oracle, NEAR + np.float32(1), SAMPLES, memory, private_root(0, 0))
    assert np.array_equal(memory["snapshot"], NEAR)


def task(**work):
    digits = mnist_sample()
    shares = partition(digits.train.labels, 2, public_root(0), samples=6)
    return TorchTask(model_factory("mlp", hidden=(4,)), digits.train, shares.train, work=LocalWork(**work))


@pytest.mark.parametrize("name", ["sgd", "svrg", "saga"])
def test_gradients_of_a_network(name):
    """With a full batch, what is sent is the gradient: the plain step divided by its learning rate."""
    sending, stepping = task(send="gradient", estimator=name), task(lr=0.5)
    model = sending.initial(public_root(0))
    memory = sending.memory(1)
    gradient = sending.train(1, model, memory, round=0, seed=private_root(0, 1)).update
    step = stepping.train(1, model, {}, round=0, seed=private_root(0, 1)).update
    np.testing.assert_allclose(gradient, step / np.float32(0.5), atol=2e-6)


def test_saga_table_is_remembered_sample_by_sample():
    sending = task(send="gradient", estimator="saga", batch=2)
    model, memory = sending.initial(public_root(0)), sending.memory(0)
    assert {name: vector.size for name, vector in memory.items()} == {"table": 6 * sending.spec.n, "filled": 1}
    sending.train(0, model, memory, round=0, seed=private_root(0, 0))
    before = memory["table"].reshape(6, -1).copy()
    sending.train(0, model + np.float32(0.1), memory, round=1, seed=private_root(0, 0))
    changed = (memory["table"].reshape(6, -1) != before).any(axis=1)
    assert changed.sum() == 2
