"""Prometheus metrics of a peer or a coordinator, for who asks for them with --metrics."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from eris.errors import ConfigError, MissingExtra
from eris.events import Event, RoundEnded, RunCourseChanged, RunEnded, RunState
from eris.protocol.take_over import term_of

if TYPE_CHECKING:
    from eris.peer.coordinator_service import CoordinatorService
    from eris.transport.calls import Overview

__all__ = ["CoordinatorGauges", "PeerGauges"]

EXPIRY, EXPIRY_ABOUT = "eris_certificate_expiry_timestamp_seconds", "When this process's certificate expires."
LOOPBACK = "127.0.0.1"  # numbers of a run are nobody else's business, unless somebody says so


class _Served:
    """A registry behind a port."""

    def __init__(self, port: int, host: str, labels: dict[str, str]) -> None:
        self._prometheus, self._labels = _prometheus(), labels
        self._registry = self._prometheus.CollectorRegistry()
        try:
            self._server, _ = self._prometheus.start_http_server(port, addr=host or "0.0.0.0", registry=self._registry)  # noqa: S104 - asked for
        except OSError as error:
            fix = "choose another port for --metrics"
            raise ConfigError(f"cannot listen on port {port}: {error.strerror}", fix=fix) from None

    @property
    def port(self) -> int:
        """Where it is served."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Serve no longer."""
        self._server.shutdown()
        self._server.server_close()

    def _make_states(self, name: str) -> Callable[[str], None]:
        """Make a gauge for each state of a run: 1 for the one it is in, 0 for the others."""
        labels = (*self._labels, "state")
        gauge = self._prometheus.Gauge(name, "How the run goes.", labelnames=labels, registry=self._registry)

        def set_state(state: str) -> None:
            for each in RunState:
                gauge.labels(**self._labels, state=each.value).set(float(each == state))

        return set_state

    def _make(self, kind: str, name: str, about: str) -> Any:
        made = getattr(self._prometheus, kind)(name, about, labelnames=tuple(self._labels), registry=self._registry)
        return made.labels(**self._labels)


class PeerGauges(_Served):
    """Listens to a peer, and serves what it hears at http://HOST:port/metrics."""

    hears = (RoundEnded, RunCourseChanged, RunEnded)

    def __init__(
        self, federation: str, peer: str, port: int, host: str = LOOPBACK, expiry: Callable[[], float] = lambda: 0.0
    ) -> None:
        super().__init__(port, host, {"federation": federation, "peer": peer})
        self._make("Gauge", EXPIRY, EXPIRY_ABOUT).set_function(expiry)
        self._round = self._make("Gauge", "eris_rounds", "Rounds concluded.")
        self._sent = self._make("Counter", "eris_sent_bytes", "Bytes sent to peers, headers included.")
        self._received = self._make("Counter", "eris_received_bytes", "Bytes received from peers, headers included.")
        self._lost = self._make("Counter", "eris_lost_shards", "Shards that were lost.")
        self._loss = self._make("Gauge", "eris_training_loss", "Mean loss of the last local training.")
        self._share = self._make("Gauge", "eris_largest_share", "Largest part of this peer's update another one saw.")
        self._seconds = self._make("Histogram", "eris_round_seconds", "Seconds from plan to verdict.")
        self._states = self._make_states("eris_run_state")
        self._states(RunState.WAITING)

    def __call__(self, event: Event) -> None:
        """Count what happened."""
        if isinstance(event, RunCourseChanged | RunEnded):
            self._states(event.state)
        if not isinstance(event, RoundEnded):
            return
        traffic, loss = event.traffic, event.metrics["train_loss"]
        self._round.set(event.round + 1)
        self._sent.inc(traffic.member.up + traffic.aggregator.up)
        self._received.inc(traffic.member.down + traffic.aggregator.down)
        self._lost.inc(event.lost_shards)
        self._share.set(event.metrics["largest_share"])
        self._seconds.observe(event.seconds["round"])
        if math.isfinite(loss):
            self._loss.set(loss)


class CoordinatorGauges(_Served):
    """Reads a coordinator whenever somebody asks."""

    def __init__(self, node: CoordinatorService, port: int, host: str = LOOPBACK) -> None:
        super().__init__(port, host, {"federation": node.federation.name})
        self._node = node
        self._make("Gauge", EXPIRY, EXPIRY_ABOUT).set_function(lambda: float(node.overview().expires))
        self._ask("rounds", "Rounds concluded.", lambda status: status.round)
        self._ask("peers", "Peers that are here.", lambda status: sum(peer.here for peer in status.peers))
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


def _prometheus() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise MissingExtra("prometheus-client", "network", "--metrics") from error
    return prometheus_client
