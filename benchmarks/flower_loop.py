"""The case of benchmarks/simulate.py in Flower's simulation, in an environment of its own; prints rounds a second."""

from __future__ import annotations

import os
import statistics
import time
from itertools import pairwise

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn import functional

from eris.data import mnist_sample
from eris.data.partition import partition
from eris.models.registry import model_by_name
from eris.seeds import public_root

MEMBERS, SAMPLES, LEARNING_RATE, ROUNDS = 50, 16, 0.01, 6

client, server = ClientApp(), ServerApp()
_cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def _samples(member: int) -> tuple[torch.Tensor, torch.Tensor]:
    if member not in _cache:
        digits = mnist_sample()
        shares = partition(digits.train.labels, MEMBERS, public_root(1), samples=SAMPLES)
        images, labels = digits.train.take(shares.train[member])
        _cache[member] = torch.from_numpy(images), torch.from_numpy(labels)
    return _cache[member]


@client.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    images, labels = _samples(int(context.node_config["partition-id"]))
    model = model_by_name("lenet5")
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    metrics = MetricRecord({"num-examples": SAMPLES, "train_loss": float(loss.detach())})
    return Message(
        content=RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message
    )


@server.main()
def main(grid: Grid, context: Context) -> None:
    del context
    times: list[float] = []

    def mark(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        del arrays
        times.append(time.perf_counter())
        return MetricRecord({"round": server_round})

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=MEMBERS, min_available_nodes=MEMBERS)
    start = ArrayRecord(model_by_name("lenet5").state_dict())
    strategy.start(grid=grid, initial_arrays=start, num_rounds=ROUNDS, evaluate_fn=mark)
    rounds = [after - before for before, after in pairwise(times[1:])]  # the first one warms up
    print(f"rounds per second: {1 / statistics.median(rounds)}", flush=True)


if __name__ == "__main__":
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    cores = len(os.sched_getaffinity(0))
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=MEMBERS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": cores}},
    )
