"""Prometheus metrics of a peer, served on request (--metrics)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from eris.errors import ConfigError, MissingExtra
from eris.events import Event, RoundEnded, RunCourseChanged, RunEnded, RunState

__all__ = ["EXPIRY", "EXPIRY_ABOUT", "LOOPBACK", "PeerGauges", "ServedGauges"]

EXPIRY, EXPIRY_ABOUT = "eris_certificate_expiry_timestamp_seconds", "When this process's certificate expires."
LOOPBACK = "127.0.0.1"  # a run's numbers stay on this machine unless somebody asks otherwise


class ServedGauges:
    """A metrics registry behind a port, for a peer or for a coordinator (`eris.coordinate.gauges`)."""

    def __init__(self, port: int, host: str, labels: dict[str, str]) -> None:
        """Serve an empty registry.

        Args:
            port: 0: any free one.
            host: the address to listen on; empty: all addresses of this machine.
            labels: carried by every metric.
        """
        self._prometheus, self._labels = _prometheus(), labels
        self._registry = self._prometheus.CollectorRegistry()
        try:
            self._server, _ = self._prometheus.start_http_server(port, addr=host or "0.0.0.0", registry=self._registry)  # noqa: S104 - asked for
        except OSError as error:
            fix = "choose another port for --metrics"
            raise ConfigError(f"cannot listen on port {port}: {error.strerror}", fix=fix) from None

    @property
    def port(self) -> int:
        """The port it is served on."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop serving."""
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


class PeerGauges(ServedGauges):
    """Listens to a peer's events and serves metrics at http://HOST:port/metrics."""

    hears = (RoundEnded, RunCourseChanged, RunEnded)

    def __init__(
        self, federation: str, peer: str, port: int, host: str = LOOPBACK, expiry: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Serve the metrics of `peer`; `expiry` returns when its certificate expires, in seconds since 1970."""
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
        """Update the metrics for an event."""
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


def _prometheus() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise MissingExtra("prometheus-client", "network", "--metrics") from error
    return prometheus_client
