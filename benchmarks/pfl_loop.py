"""The case of benchmarks/simulate.py in pfl-research, in an environment of its own; prints rounds a second.

python pfl_loop.py ROUNDS                                                            one process
python -m torch.distributed.run --standalone --nproc-per-node 2 pfl_loop.py ROUNDS   two, which share the members
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional

from eris.data import mnist_sample
from eris.data.partition import partition
from eris.models.lenet import LeNet5
from eris.seeds import public_root

MEMBERS, SAMPLES, LEARNING_RATE = 50, 16, 0.01
WARM_UP = 2  # rounds


class Digits(LeNet5):
    """LeNet-5 with the two methods that pfl asks for."""

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of a batch."""
        return functional.cross_entropy(self(images), labels)

    def metrics(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        """Return nothing: only training is timed."""
        del images, labels
        return {}


class Clock(TrainingProcessCallback[Any]):
    """Notes when each round ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Note the time."""
        del aggregate_metrics, model, central_iteration
        self.times.append(time.perf_counter())
        return False, Metrics()


def members() -> FederatedDataset:
    """Return the members' samples: everybody takes part once a round."""
    digits = mnist_sample()
    shares = partition(digits.train.labels, MEMBERS, public_root(1), samples=SAMPLES)
    pairs = [digits.train.take(part) for part in shares.train]
    tensors = [(torch.from_numpy(images), torch.from_numpy(labels)) for images, labels in pairs]
    return FederatedDataset(
        lambda member: PyTorchTensorDataset(tensors[member], user_id=str(member)),
        MinimizeReuseUserSampler(range(MEMBERS)),
    )


def train(rounds: int) -> tuple[Digits, float]:
    """Train so many rounds after a warm-up; return the network and the rounds a second."""
    torch.set_num_threads(1)
    torch.manual_seed(1)  # the same start in both processes
    network, clock, everybody = Digits(), Clock(), members()
    step = torch.optim.SGD(network.parameters(), lr=1.0)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds + WARM_UP,
            evaluation_frequency=rounds + WARM_UP + 1,
            train_cohort_size=MEMBERS,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=everybody, val_data=everybody),
        PyTorchModel(network, torch.optim.SGD, step),
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=None),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    return network, rounds / (clock.times[-1] - clock.times[WARM_UP - 1])


if __name__ == "__main__":
    _, speed = train(int(sys.argv[1]))
    print(f"rounds per second: {speed}", flush=True)
    if torch.distributed.is_initialized():  # who ends first closes the other's connection, which aborts it
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
