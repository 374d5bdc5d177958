"""The work that Flower does beside benchmarks/network.py, whoever carries its messages: vectors, and a mean of them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import socket
import struct
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from flwr.client import NumPyClient
from flwr.common import ndarrays_to_parameters
from flwr.server.strategy import FedAvg

__all__ = ["Fixed", "Timed", "be_quiet"]


class Timed(FedAvg):
    """FedAvg over all clients that notes when a round begins."""

    def __init__(self, peers: int, n: int) -> None:
        everybody: dict[str, Any] = {"fraction_fit": 1.0, "min_fit_clients": peers, "min_available_clients": peers}
        start = ndarrays_to_parameters([np.zeros(n, np.float32)])
        super().__init__(fraction_evaluate=0.0, initial_parameters=start, **everybody)
        self._marks: list[tuple[float, float, int]] = []  # when a round begins: clock, processor, bytes so far

    def configure_fit(self, *arguments: Any, **named: Any) -> Any:
        """Begin a round."""
        self.mark()
        return super().configure_fit(*arguments, **named)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """Average what came; a round that lost somebody is not the round that is measured."""
        if failures or not results:
            raise RuntimeError(f"clients failed in round {server_round}: {failures[:1]!r}")
        return super().aggregate_fit(server_round, results, failures)

    def mark(self) -> None:
        """Note the time, and what server and clients have spent and sent each other so far."""
        self._marks.append((time.monotonic(), processor_seconds(), carried()))

    def print_rounds(self) -> None:
        """Print what every round took after the first, which also warms up."""
        spent = [[after - before for before, after in zip(*pair, strict=True)] for pair in pairwise(self._marks[1:])]
        for what, values in zip(("seconds", "processor", "bytes"), zip(*spent, strict=True), strict=True):
            print(f"{what}:", *values)


class Fixed(NumPyClient):
    """A client without training."""

    def __init__(self, member: int, n: int) -> None:
        self._update = np.random.default_rng(member).standard_normal(n, np.float32)

    def fit(self, parameters: Any, config: Any) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Return the vector."""
        del parameters, config
        return [self._update], 1, {}


def processor_seconds() -> float:
    """Return the processor seconds of this process and its living children, by the kernel's count."""
    ticks = 0
    for process in (os.getpid(), *(child.pid for child in multiprocessing.active_children())):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # user and system
    return ticks / os.sysconf("SC_CLK_TCK")


def carried() -> int:
    """Return what has arrived over this process's open TCP sockets, both ways, by the kernel's count."""
    return sum(_carried(int(entry.name)) for entry in Path("/proc/self/fd").iterdir())


def _carried(descriptor: int) -> int:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return sum(struct.unpack_from("<QQ", info, 120))  # acknowledged by the other side, received
    except (OSError, struct.error):  # no TCP socket
        return 0


def be_quiet() -> None:
    """Let Flower log errors only."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
