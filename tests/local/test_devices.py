"""Devices and precision. There may be no accelerator here: what runs on one is run on the processor in its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from eris.data import ArrayExamples
from eris.errors import ConfigError
from eris.local import devices
from eris.local.devices import device_of, devices_there, place
from eris.local.torch_module import FlatModule
from eris.local.torch_optimizer import DeviceSteps, local_optimizer, round_steps
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.seeds import private_root, public_root

FOUR = ["cuda:0", "cuda:1", "cuda:2", "cuda:3", "cpu"]
X = (np.arange(60 * 4, dtype=np.float32).reshape(60, 4) % 7) / 7
Y = np.arange(60) % 3
SEED = private_root(3, 0)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.bn, self.head = nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(torch.relu(self.bn(self.body(x))))


def task(**work):
    settings = LocalWork(**{"lr": 0.1, "batch": 5, "epochs": 2, **work})
    return TorchTask(Network, ArrayExamples(X, Y), [np.arange(30)], test=ArrayExamples(X, Y), work=settings)


@pytest.mark.parametrize(
    ("wanted", "there", "placed"),
    [
        ("auto", FOUR, ["cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:0", "cuda:1"]),
        ("cuda", FOUR, ["cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:0", "cuda:1"]),
        ("cuda:2", FOUR, ["cuda:2"] * 6),
        ("cpu", FOUR, ["cpu"] * 6),
        ("auto", ["mps", "cpu"], ["mps"] * 6),
        ("mps", ["mps", "cpu"], ["mps"] * 6),
        ("auto", ["cpu"], ["cpu"] * 6),
    ],
)
def test_workers_are_spread_over_what_there_is(wanted, there, placed):
    assert [place(wanted, worker, there) for worker in range(6)] == placed


@pytest.mark.parametrize(("wanted", "there"), [("cuda", ["cpu"]), ("cuda:4", FOUR), ("mps", FOUR)])
def test_what_is_not_there_is_refused_by_its_key(wanted, there):
    with pytest.raises(ConfigError, match=f"local.device is '{wanted}', but this machine only has") as refused:
        place(wanted, 0, there)
    assert refused.value.where["key"] == "local.device"


def test_a_worker_knows_its_number(monkeypatch):
    monkeypatch.setattr(devices, "devices_there", lambda: FOUR)
    assert device_of("auto") == "cuda:0"
    monkeypatch.setenv(devices.WORKER, "6")
    assert device_of("auto") == "cuda:2"
    assert device_of("cpu") == "cpu"


def test_the_processor_is_always_there():
    assert devices_there()[-1] == "cpu"


def test_a_network_is_built_where_it_is_to_be():
    """On torch's device without memory shapes are all there is: everything of a network is on it."""
    flat = FlatModule.__new__(FlatModule)
    module = Network().to("meta")
    with pytest.raises(Exception):  # noqa: B017 - values of a device without memory cannot be read
        flat.__init__(module, device="meta")
    assert {tensor.device.type for tensor in module.state_dict().values()} == {"meta"}
    assert flat.flat.device.type == "meta"
    assert flat.flat.numel() == 4 * 5 + 5 * 2 + 5 * 3 + 3 + 10


def test_a_device_that_could_vary_is_told_not_to(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.allow_tf32
    try:
        devices.make_repeatable("cpu")
        assert torch.are_deterministic_algorithms_enabled() == before[0]
        devices.make_repeatable("cuda:1")
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.allow_tf32
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


class Beside(FlatModule):
    """The processor in the place of an accelerator: its tensors are seen from numpy by way of copies only."""

    def _see(self):
        super()._see()
        n, n_trainable = self.spec.n, self.spec.n_trainable
        self.on_host = False
        self._host, self._host_gradient = torch.zeros(n), torch.zeros(n_trainable)
        self.vector, self.gradient = self._host.numpy(), self._host_gradient.numpy()
        self.trainable = self.vector[:n_trainable]


@pytest.fixture
def beside(monkeypatch):
    """A task whose network lies on something like an accelerator."""

    def make(**work):
        made = task(**work)
        made._flat = Beside(
            made._built(public_root(0)), buffers=made.work.buffers, keep=made.work.keep, precision=made.work.precision
        )
        # the processor has its generator's state under torch itself
        monkeypatch.setattr(torch.cpu, "get_rng_state", torch.get_rng_state, raising=False)
        monkeypatch.setattr(torch.cpu, "set_rng_state", torch.set_rng_state, raising=False)
        monkeypatch.setattr(torch.cpu, "manual_seed", torch.default_generator.manual_seed, raising=False)
        return made

    return make


@pytest.mark.parametrize("keep", [(), ("head.*", "bn.*")])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": 0.9, "weight_decay": 0.01},
        {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.01},
        {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1},
    ],
)
def test_steps_on_a_device_are_those_of_the_processor_up_to_rounding(settings, keep, beside):
    here, there = task(**settings, keep=keep, keep_state=True), beside(**settings, keep=keep, keep_state=True)
    start = here.initial(public_root(1))
    memories = [here.memory(0), there.memory(0)]
    for round in range(2):
        updates = [
            each.train(0, start, memory, round=round, seed=SEED).update
            for each, memory in zip((here, there), memories, strict=True)
        ]
        assert np.abs(updates[0]).max() > 1e-3
        np.testing.assert_allclose(updates[1], updates[0], atol=5e-6)
    assert memories[0].keys() == memories[1].keys()
    for name, kept in memories[0].items():
        np.testing.assert_allclose(memories[1][name], kept, atol=5e-6, err_msg=name)
    assert there.evaluate(start)["loss"] == pytest.approx(here.evaluate(start)["loss"])
    assert there.gradient_norm(start) == pytest.approx(here.gradient_norm(start), rel=1e-5)


def test_gradients_that_are_sent_come_from_the_device_too(beside):
    settings = {"send": "gradient", "epochs": 1, "estimator": "svrg"}
    here, there = task(**settings), beside(**settings)
    start = here.initial(public_root(1))
    updates = [each.train(0, start, each.memory(0), round=0, seed=SEED).update for each in (here, there)]
    np.testing.assert_allclose(updates[1], updates[0], atol=1e-6)


def test_which_steps_are_taken_is_a_matter_of_where_the_network_is(beside):
    made = beside()
    flat = made._module()
    assert isinstance(
        round_steps(flat, made.work, local_optimizer(made.work).init(flat.spec.n_trainable), {}), DeviceSteps
    )


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_to_nearly_the_same(precision):
    full, half = task(), task(precision=precision)
    start = full.initial(public_root(1))
    updates = [each.train(0, start, each.memory(0), round=0, seed=SEED).update for each in (full, half)]
    assert updates[1].dtype == np.float32
    assert not np.array_equal(*updates)
    assert np.linalg.norm(updates[0] - updates[1]) < 0.05 * np.linalg.norm(updates[0])


def test_gradients_that_overflow_in_fp16_are_scaled_down():
    flat = FlatModule(nn.Linear(1, 1, bias=False), precision="fp16")

    class Steep:
        def loss(self, module, inputs, targets):
            return (module(inputs) * 100.0).sum()  # times 2¹⁶ this is more than fp16 holds

    flat.differentiate(Steep(), torch.ones(1, 1), torch.ones(1))
    assert flat.gradient.tolist() == [100.0]
    assert flat._scale < 2.0**16


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


@needs_cuda
@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_training_on_cuda(precision):
    here, there = task(), task(device="cuda", precision=precision)
    start = here.initial(public_root(1))
    updates = [each.train(0, start, each.memory(0), round=0, seed=SEED).update for each in (here, there)]
    again = there.train(0, start, there.memory(0), round=0, seed=SEED).update
    assert np.array_equal(updates[1], again)
    assert np.linalg.norm(updates[0] - updates[1]) < 0.05 * np.linalg.norm(updates[0])
    there.rehearse()


@needs_cuda
def test_memory_on_cuda_is_one_model_and_one_batch():
    trained = task(device="cuda")
    start = trained.initial(public_root(1))
    trained.train(0, start, trained.memory(0), round=0, seed=SEED)
    before = torch.cuda.memory_allocated()
    for round in range(5):
        trained.train(0, start, trained.memory(0), round=round, seed=SEED)
    assert torch.cuda.memory_allocated() <= before


@pytest.mark.skipif(not torch.backends.mps.is_available(), reason="there is no MPS device here")
def test_training_on_mps():
    here, there = task(), task(device="mps")
    start = here.initial(public_root(1))
    updates = [each.train(0, start, each.memory(0), round=0, seed=SEED).update for each in (here, there)]
    np.testing.assert_allclose(updates[1], updates[0], atol=1e-4)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="a process's environment is not shown here")
def test_peers_of_a_local_federation_take_devices_in_turn(tmp_path):
    from eris.cli.networking.children import Children

    numbers = []
    with Children() as children:
        for name in ("coordinator", "peer-0", "peer-1", "peer-2"):
            child = children.start(name, ["version"], tmp_path / name)
            given = Path(f"/proc/{child.pid}/environ").read_bytes().decode().split("\0")
            numbers.append(dict(entry.partition("=")[::2] for entry in given)[devices.WORKER])
    assert numbers == ["0", "0", "1", "2"]
