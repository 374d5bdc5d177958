"""The cases of benchmarks/network.py with Flower's gRPC server, TLS on, in an environment of its own.

    python flower_server.py CERTIFICATES PEERS N ROUNDS

CERTIFICATES holds ca.pem, certificate.pem and key.pem of `localhost`. Every client is a process of its own and returns
the same vector in every round. Prints the seconds of every round after the first.
"""

from __future__ import annotations

import logging
import multiprocessing
import socket
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from flwr.client import NumPyClient, start_client
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerConfig, start_server
from flwr.server.strategy import FedAvg

LONGEST = 512 * 1024 * 1024  # the longest message that Flower lets pass


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
        if failures:
            raise RuntimeError(f"{len(failures)} clients failed: {failures[0]!r}")
        return super().aggregate_fit(server_round, results, failures)


class Fixed(NumPyClient):
    """A client without training."""

    def __init__(self, member: int, n: int) -> None:
        self._update = np.random.default_rng(member).standard_normal(n, np.float32)

    def fit(self, parameters: Any, config: Any) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Return the vector."""
        del parameters, config
        return [self._update], 1, {}


def run_client(member: int, n: int, port: int, root: bytes) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    start_client(
        server_address=f"localhost:{port}",
        client=Fixed(member, n).to_client(),
        root_certificates=root,
        grpc_max_message_length=LONGEST,
        max_wait_time=60.0,
    )


def main() -> None:
    folder, (peers, n, rounds) = Path(sys.argv[1]), map(int, sys.argv[2:5])
    logging.getLogger("flwr").setLevel(logging.ERROR)
    root, certificate, key = ((folder / f"{name}.pem").read_bytes() for name in ("ca", "certificate", "key"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    clients = [context.Process(target=run_client, args=(k, n, port, root), daemon=True) for k in range(peers)]
    for client in clients:
        client.start()
    strategy = Timed(peers, n)
    start_server(
        server_address=f"127.0.0.1:{port}",
        config=ServerConfig(num_rounds=rounds + 1),
        strategy=strategy,
        grpc_max_message_length=LONGEST,
        certificates=(root, certificate, key),
    )
    print("seconds:", *(later - earlier for earlier, later in pairwise(strategy.times[1:])))
    for client in clients:
        client.join(20)


if __name__ == "__main__":
    main()
