"""Prometheus metrics of a coordinator, served on request (--metrics)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from eris.coordinate.service import CoordinatorService
from eris.events import RunState
from eris.peer.gauges import EXPIRY, EXPIRY_ABOUT, LOOPBACK, ServedGauges
from eris.protocol.take_over import term_of
from eris.transport.calls import Overview

__all__ = ["CoordinatorGauges"]


class CoordinatorGauges(ServedGauges):
    """Reads a coordinator's state whenever it is scraped, at `port` of this machine's address `host`."""

    def __init__(self, node: CoordinatorService, port: int, host: str = LOOPBACK) -> None:
        super().__init__(port, host, {"federation": node.federation.name})
        self._node = node
        self._make("Gauge", EXPIRY, EXPIRY_ABOUT).set_function(lambda: float(node.overview().expires))
        self._ask("rounds", "Rounds concluded.", lambda status: status.round)
        self._ask("peers", "Peers that are present.", lambda status: sum(peer.here for peer in status.peers))
        self._ask("lost_shards", "Shards lost so far.", lambda status: sum(status.lost.values()))
        self._ask("epoch", "Epoch of the next plan.", lambda status: status.epoch)
        self._ask("term", "How often another coordinator took over.", lambda status: term_of(status.epoch))
        self._ask("received_bytes", "Documents received.", lambda status: status.control.received)
        self._ask("sent_bytes", "Documents sent.", lambda status: status.control.sent)
        labels = (*self._labels, "state")
        states = self._prometheus.Gauge(
            "eris_coordinator_run_state", "How the run goes.", labelnames=labels, registry=self._registry
        )
        for state in RunState:
            of = partial(self._is_in, state)
            states.labels(**self._labels, state=state.value).set_function(of)

    def _is_in(self, state: RunState) -> float:
        return float(self._node.overview().state == state)

    def _ask(self, name: str, about: str, read: Callable[[Overview], float]) -> None:
        gauge = self._make("Gauge", f"eris_coordinator_{name}", about)
        gauge.set_function(lambda: float(read(self._node.overview())))
