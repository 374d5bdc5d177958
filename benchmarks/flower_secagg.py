"""The work of a masked round in benchmarks/network.py with Flower's SecAgg+, in an environment of its own.

    python flower_secagg.py PEERS N ROUNDS

Every client is a process of its own with Flower's `secaggplus_mod`, and returns the same vector in every round; the
server runs Flower's `SecAggPlusWorkflow` with as many shares as clients (at most 10 and odd, as it wants them) and half
of them to reconstruct. Messages are Flower's own, serialised as it does, but go over pipes: without TLS, gRPC and a
SuperLink between them, so what is measured is the protocol and less than a deployment would take. Prints the seconds of
every round after the first.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from collections.abc import Iterable
from itertools import pairwise
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import ndarrays_to_parameters
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.server import Grid, LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.supercore.task_identity import TaskIdentity

RUN = 1


class Timed(FedAvg):
    """FedAvg that notes when a round begins."""

    def __init__(self, peers: int, n: int) -> None:
        everybody: dict[str, Any] = {"fraction_fit": 1.0, "min_fit_clients": peers, "min_available_clients": peers}
        start = ndarrays_to_parameters([np.zeros(n, np.float32)])
        super().__init__(fraction_evaluate=0.0, initial_parameters=start, **everybody)
        self.times: list[float] = []

    def configure_fit(self, *arguments: Any, **named: Any) -> Any:
        """Begin a round."""
        self.times.append(time.monotonic())
        return super().configure_fit(*arguments, **named)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """Average what came; a round that lost somebody is not the round that is measured."""
        if failures or not results:
            raise RuntimeError(f"clients failed in round {server_round}: {failures[:1]!r}")
        return super().aggregate_fit(server_round, results, failures)


class Fixed(NumPyClient):
    """A client without training."""

    def __init__(self, member: int, n: int) -> None:
        self._update = np.random.default_rng(member).standard_normal(n, np.float32)

    def fit(self, parameters: Any, config: Any) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Return the vector."""
        del parameters, config
        return [self._update], 1, {}


class Pipes(Grid):
    """Flower's view of the clients: one pipe to each."""

    def __init__(self, pipes: dict[int, Connection]) -> None:
        self._pipes = pipes
        self._run = SimpleNamespace(run_id=RUN)

    @property
    def run(self) -> Any:
        """Return the only run."""
        return self._run

    def set_run(self, run_id: int) -> None:
        """Take note of nothing: there is one run."""

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        """Return a message as Flower makes it."""
        return Message(*arguments, **named)

    def get_node_ids(self) -> Iterable[int]:
        """Return all clients."""
        return list(self._pipes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Not used by the workflow."""
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Not used by the workflow."""
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send to all, then hear all."""
        del timeout
        asked = []
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = str(number)  # a SuperLink would do it
            asked.append(message.metadata.dst_node_id)
            self._pipes[asked[-1]].send_bytes(message_to_proto(message).SerializeToString())
        return [heard(self._pipes[node]) for node in asked]


def identify(node: int) -> None:
    """Say which process this is, as Flower's own ones do."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = node, RUN, node


def heard(pipe: Connection) -> Message:
    proto = ProtoMessage()
    proto.ParseFromString(pipe.recv_bytes())
    return message_from_proto(proto)


def run_client(pipe: Connection, member: int, n: int) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    identify(100 + member)
    client = Fixed(member, n).to_client()
    app = ClientApp(client_fn=lambda _: client, mods=[secaggplus_mod])
    context = Context(run_id=RUN, node_id=100 + member, node_config={}, state=RecordDict(), run_config={})
    while True:
        try:
            message = heard(pipe)
        except EOFError:
            return
        pipe.send_bytes(message_to_proto(app(message, context)).SerializeToString())


def main() -> None:
    peers, n, rounds = map(int, sys.argv[1:4])
    logging.getLogger("flwr").setLevel(logging.ERROR)
    identify(1)
    processes, pipes = multiprocessing.get_context("spawn"), {}
    for member in range(peers):
        pipes[100 + member], theirs = processes.Pipe()
        processes.Process(target=run_client, args=(theirs, member, n), daemon=True).start()
        theirs.close()
    strategy = Timed(peers, n)
    own = Context(run_id=RUN, node_id=1, node_config={}, state=RecordDict(), run_config={})
    context = LegacyContext(context=own, config=ServerConfig(num_rounds=rounds + 1), strategy=strategy)
    shares = min(peers if peers % 2 else peers - 1, 9)
    workflow = SecAggPlusWorkflow(num_shares=shares, reconstruction_threshold=shares // 2 + 1)
    DefaultWorkflow(fit_workflow=workflow)(Pipes(pipes), context)
    print("seconds:", *(later - earlier for earlier, later in pairwise([*strategy.times[1:], time.monotonic()])))


if __name__ == "__main__":
    main()
