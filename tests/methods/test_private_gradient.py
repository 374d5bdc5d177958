"""DP-SGD: clipping of every sample, noise of the stated size, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from eris.compose import compose
from eris.config import load_config
from eris.errors import ConfigError, InputError
from eris.local.torch_losses import Classification
from eris.local.torch_module import FlatModule
from eris.privacy.torch_private import PrivateGradient
from eris.seeds import private_root, public_root
from eris.tasks import build_task

SEED = private_root(3, 0)


@pytest.fixture
def scene():
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(3 * 36, 4)
    )
    return FlatModule(module), (torch.randn(9, 1, 8, 8), torch.randint(0, 4, (9,)))


def one_by_one(flat, batch):
    gradients = []
    for number in range(len(batch[1])):
        flat.differentiate(Classification(), batch[0][number : number + 1], batch[1][number : number + 1])
        gradients.append(flat.gradient.copy())
    return np.array(gradients)


def test_every_sample_is_clipped(scene):
    flat, batch = scene
    single = one_by_one(flat, batch)
    norms = np.linalg.norm(single, axis=1)
    bound = float(np.median(norms))  # some are longer, some are not
    clipped = single * np.minimum(1, bound / norms)[:, None]
    loss = PrivateGradient(bound, 0.0)(flat, Classification(), batch, SEED, 0)
    np.testing.assert_allclose(flat.gradient, clipped.mean(axis=0), atol=1e-6)
    assert loss == pytest.approx(flat.differentiate(Classification(), *batch), rel=1e-5)


def test_without_clipping_and_noise_it_is_the_gradient(scene, monkeypatch):
    flat, batch = scene
    values = {"vmap": 4 * flat.spec.n_trainable}  # in three parts
    monkeypatch.setattr("eris.privacy.torch_sample_gradients._VALUES_AT_ONCE", values)
    PrivateGradient(1e9, 0.0)(flat, Classification(), batch, SEED, 0)
    private = flat.gradient.copy()
    flat.differentiate(Classification(), *batch)
    np.testing.assert_allclose(private, flat.gradient, atol=1e-6)


def test_noise_has_the_stated_deviation(scene):
    flat, batch = scene
    PrivateGradient(0.5, 0.0)(flat, Classification(), batch, SEED, 0)
    mean = flat.gradient.copy()
    draws = []
    for step in range(200):
        PrivateGradient(0.5, 3.0)(flat, Classification(), batch, SEED, step)
        draws.append(flat.gradient - mean)
    noise = np.concatenate(draws)
    deviation = 3.0 * 0.5 / 9
    assert abs(noise.std() / deviation - 1) < 4 / np.sqrt(2 * noise.size)
    assert abs(noise.mean()) < 4 * deviation / np.sqrt(noise.size)
    assert not np.array_equal(draws[0], draws[1])


def test_noise_is_private(scene):
    flat, batch = scene
    with pytest.raises(InputError, match="private"):
        PrivateGradient(1.0, 1.0)(flat, Classification(), batch, public_root(1), 0)


def settings(*changes, method="fedavg-dpsgd"):
    small = ["members=4", "data.samples=8", "local.batch=full", "rounds=5", "server.min_contributors=1"]
    return load_config(changes=[*small, f"method={method}", *changes])


def plain(config):
    return config.model_dump(mode="json", exclude_none=True)


def update_of(config):
    task = build_task(plain(config))
    start = task.initial(public_root(1))
    return task.train(0, start, task.memory(0), round=0, seed=private_root(1, 0)).update


def test_the_task_of_the_method_adds_the_noise():
    """The parts must meet: the noise that the summary accounts for is in the update that leaves."""
    noisy, still = update_of(settings()), update_of(settings("privacy.epsilon=none"))
    config = settings()
    noise = compose(config, build_task(plain(config)).spec, [8] * 4).sample_noise
    deviation = config.local.lr * noise.multiplier * 1.0 / 8
    assert (noisy - still).std() == pytest.approx(deviation, rel=0.05)
    np.testing.assert_array_equal(update_of(settings(method="fedavg")), still)


def test_the_budget_is_for_all_rounds_unless_said():
    spec = build_task(plain(settings(method="fedavg"))).spec

    def made(*changes):
        return compose(settings("rounds=140", *changes), spec, [8] * 4).sample_noise

    assert made().multiplier == pytest.approx(6.267, abs=0.01)
    assert made().spent(140, 1e-5).value == pytest.approx(10, abs=0.011)
    single = made("privacy.accounting=per-round")
    assert single.multiplier == pytest.approx(0.5298, abs=1e-4)
    assert single.spent(1, 1e-5).value == pytest.approx(10, abs=0.011)
    assert single.spent(140, 1e-5).value == pytest.approx(354, abs=1)
    assert str(single.spent(140, 1e-5)).endswith("for one sample (zero-out), 140 rounds, accountant rdp")
    assert made("local.epochs=3", "local.steps=0").spent(140, 1e-5).value <= 10  # every step counts


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["data.name=synthetic-clouds"], "no gradients of single samples"),
        (["local.estimator=saga", "local.send=gradient"], "more than once"),
    ],
)
def test_refused(changes, says):
    with pytest.raises(ConfigError, match=says):
        build_task(plain(settings(*changes)))
