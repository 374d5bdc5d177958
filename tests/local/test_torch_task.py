import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from eris.data import ArrayExamples, mnist_sample, partition
from eris.errors import ConfigError, InputError
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.models import model_by_name, model_factory
from eris.seeds import private_root, public_root

PRIVATE = private_root(3, peer=0)


def make(model="mlp", members=3, samples=12, validation=0.0, work=None, **options):
    digits = mnist_sample()
    shares = partition(digits.train.labels, members, public_root(1), samples=samples, validation=validation)
    return TorchTask(
        model_factory(model, **options),
        digits.train,
        shares.train,
        test=digits.test,
        validation=shares.validation,
        work=work,
    )


def by_hand(task, model_name, member, start, optimizer, batches):
    """The same work with a plain module and torch.optim."""
    module = model_by_name(model_name)
    tensors = task.spec.unflatten(start.copy())
    module.load_state_dict({name: torch.tensor(value) for name, value in tensors.items()}, strict=False)
    step = optimizer(module.parameters())
    for inputs, targets in batches:
        step.zero_grad()
        torch.nn.functional.cross_entropy(module(torch.from_numpy(inputs)), torch.from_numpy(targets)).backward()
        step.step()
    end = task.spec.flatten({name: value.detach().numpy() for name, value in module.named_parameters()})
    return start - end


def whole(task, member):
    return mnist_sample().train.take(task._places[member])


@pytest.mark.parametrize("model", ["mlp", "lenet5"])
@pytest.mark.parametrize(
    ("work", "optimizer"),
    [
        (LocalWork(lr=0.1), lambda p: torch.optim.SGD(p, 0.1)),
        (
            LocalWork(lr=0.1, momentum=0.9, weight_decay=0.01, epochs=3),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
        ),
        (
            LocalWork(optimizer="adam", lr=0.01, weight_decay=0.1, epochs=3),
            lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1),
        ),
        (
            LocalWork(optimizer="adamw", lr=0.01, weight_decay=0.1, epochs=3),
            lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
        ),
    ],
)
def test_full_batch_steps_are_those_of_torch(model, work, optimizer):
    task = make(model, work=work)
    start = task.initial(public_root(5))
    result = task.train(1, start, task.memory(1), round=0, seed=PRIVATE)
    expected = by_hand(task, model, 1, start, optimizer, [whole(task, 1)] * work.epochs)
    assert result.update.dtype == np.float32
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(result.update, expected, atol=2e-5 if work.optimizer != "sgd" else 2e-6)
    assert result.samples == 12


def test_mini_batches_cover_every_sample_once_an_epoch():
    seen = []

    def spy(flat, objective, batch, seed, step):
        seen.append(batch[1].tolist())
        flat.gradient[:] = 0
        return 0.0

    digits = mnist_sample()
    task = TorchTask(
        model_factory("logistic"),
        ArrayExamples(digits.train.take(np.arange(10))[0], np.arange(10)),
        [np.arange(10)],
        work=LocalWork(batch=4, epochs=2),
        gradient=spy,
    )
    task.train(0, task.initial(public_root(0)), {}, round=0, seed=PRIVATE)
    assert [len(batch) for batch in seen] == [4, 4, 2, 4, 4, 2]
    first, second = ([label for batch in part for label in batch] for part in (seen[:3], seen[3:]))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    task.train(0, task.initial(public_root(0)), {}, round=1, seed=PRIVATE)
    assert seen[6:] != seen[:6]


def test_steps_override_epochs():
    task = make(work=LocalWork(batch=5, steps=7))
    result = task.train(0, task.initial(public_root(0)), {}, round=0, seed=PRIVATE)
    assert result.steps == 7


def test_momentum_is_kept_or_reset():
    start = make().initial(public_root(0))

    def second_update(keep):
        task = make(work=LocalWork(lr=0.1, momentum=0.9, keep_state=keep))
        memory = task.memory(0)
        updates = [task.train(0, start, memory, round=t, seed=PRIVATE).update for t in range(2)]
        return updates, memory

    (fresh, again), memory = second_update(False)
    assert np.array_equal(fresh, again)
    assert memory == {}
    (first, second), memory = second_update(True)
    np.testing.assert_allclose(second, 1.9 * first, atol=1e-6)
    assert np.abs(memory["momentum"]).max() > 0


def test_effective_steps_of_momentum():
    task = make(work=LocalWork(momentum=0.5, epochs=3))
    result = task.train(0, task.initial(public_root(0)), task.memory(0), round=0, seed=PRIVATE)
    assert result.steps == pytest.approx(1 + 1.5 + 1.75)


def test_training_leaves_model_and_global_generator_alone():
    task = make()
    start = task.initial(public_root(0))
    before, state = start.copy(), torch.get_rng_state()
    task.train(0, start, {}, round=0, seed=PRIVATE)
    task.evaluate(start)
    task.initial(public_root(9))
    assert np.array_equal(start, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_calls_do_not_disturb_each_other():
    task = make("tiny-batchnorm", work=LocalWork(batch=4, momentum=0.9, epochs=2))
    start = task.initial(public_root(0))
    alone = task.train(0, start, task.memory(0), round=2, seed=PRIVATE).update
    task.train(1, start + np.float32(1), task.memory(1), round=2, seed=private_root(3, peer=1))
    task.evaluate(start)
    again = task.train(0, start, task.memory(0), round=2, seed=PRIVATE).update
    assert np.array_equal(alone, again)


def test_initial_weights_follow_the_seed():
    task = make()
    assert np.array_equal(task.initial(public_root(1)), make().initial(public_root(1)))
    assert not np.array_equal(task.initial(public_root(1)), task.initial(public_root(2)))


def test_a_public_seed_is_refused():
    task = make()
    with pytest.raises(InputError, match="private"):
        task.train(0, task.initial(public_root(0)), {}, round=0, seed=public_root(0))


def test_evaluation_against_a_plain_loop():
    task = make("lenet5", validation=0.5)
    model = task.initial(public_root(1))
    metrics = task.evaluate(model)
    module = model_by_name("lenet5")
    module.load_state_dict({name: torch.tensor(value) for name, value in task.spec.unflatten(model).items()})
    inputs, targets = (torch.from_numpy(part) for part in mnist_sample().test.take(np.arange(1000)))
    with torch.no_grad():
        logits = module(inputs)
    assert metrics["loss"] == pytest.approx(torch.nn.functional.cross_entropy(logits, targets).item(), abs=1e-5)
    assert metrics["accuracy"] == (logits.argmax(1) == targets).double().mean().item()
    assert np.mean([metrics[f"accuracy/{digit}"] for digit in range(10)]) == pytest.approx(metrics["accuracy"])
    assert 2 < metrics["validation_loss"] < 3


def test_training_learns_real_digits():
    task = make("lenet5", members=1, samples=1000, work=LocalWork(lr=0.05, momentum=0.9, batch=32, epochs=3))
    model = task.initial(public_root(1))
    model -= task.train(0, model, {}, round=0, seed=PRIVATE).update
    assert task.evaluate(model)["accuracy"] > 0.85


def test_gradient_norm_is_of_the_pooled_gradient():
    task = make("mlp", members=4)
    model = task.initial(public_root(1))
    pooled = TorchTask(model_factory("mlp"), mnist_sample().train, [np.concatenate(task._places)])
    assert task.gradient_norm(model) == pytest.approx(pooled.gradient_norm(model), rel=1e-4)
    assert task.gradient_norm(model, weights=[1, 0, 0, 0]) != pytest.approx(task.gradient_norm(model), rel=1e-2)


SAME_BITS = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(int(sys.argv[2]))
from test_torch_task import digest_of_training
print(digest_of_training())
"""


def digest_of_training():
    import hashlib

    task = make("lenet5", work=LocalWork(batch=5, epochs=2, momentum=0.9))
    result = task.train(2, task.initial(public_root(4)), {}, round=6, seed=PRIVATE)
    return hashlib.sha256(result.update.tobytes()).hexdigest()


@pytest.mark.parametrize("threads", ["1", "2"])
def test_same_bits_in_another_process(threads, request):
    from pathlib import Path

    folder = str(Path(__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", SAME_BITS, folder, threads], capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout.strip() == digest_of_training()


def test_a_task_travels_to_a_worker_without_its_network():
    task = make()
    start = task.initial(public_root(0))
    expected = task.train(0, start, {}, round=0, seed=PRIVATE).update
    travelled = pickle.dumps(task)
    assert len(travelled) < 12_000_000
    assert np.array_equal(pickle.loads(travelled).train(0, start, {}, round=0, seed=PRIVATE).update, expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "lion"},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"batch": 0},
        {"estimator": "svrg"},
        {"send": "gradient", "epochs": 2},
        {"momentum": 0.9, "optimizer": "adam"},
        {"buffers": "lost"},
    ],
)
def test_impossible_work_is_refused(settings):
    with pytest.raises(ConfigError):
        LocalWork(**settings)
