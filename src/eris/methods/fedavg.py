"""FedAvg: one server receives every update whole and averages them."""

from __future__ import annotations

from eris.methods.method import Method

__all__ = ["FEDAVG"]

FEDAVG = Method("fedavg", "one server sees every update", server=True)
