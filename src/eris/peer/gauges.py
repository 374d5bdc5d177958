"""Prometheus metrics of a peer or a coordinator, for who asks for them with --metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eris.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from eris.peer.coordinate import CoordinatorNode

__all__ = ["CoordinatorGauges", "PeerGauges"]


class _Served:
    """A registry behind a port."""

    def __init__(self, port: int, labels: dict[str, str]) -> None:
        self._prometheus, self._labels = _prometheus(), labels
        self._registry = self._prometheus.CollectorRegistry()
        try:
            self._server, _ = self._prometheus.start_http_server(port, registry=self._registry)
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

    def _make(self, kind: str, name: str, about: str) -> Any:
        made = getattr(self._prometheus, kind)(name, about, labelnames=tuple(self._labels), registry=self._registry)
        return made.labels(**self._labels)


class PeerGauges(_Served):
    """Hears what a session tells, and serves it at http://HOST:port/metrics."""

    def __init__(self, federation: str, peer: str, port: int) -> None:
        super().__init__(port, {"federation": federation, "peer": peer})
        self._round = self._make("Gauge", "eris_rounds", "Rounds concluded.")
        self._sent = self._make("Counter", "eris_sent_bytes", "Bytes sent to peers, headers included.")
        self._received = self._make("Counter", "eris_received_bytes", "Bytes received from peers, headers included.")
        self._lost = self._make("Counter", "eris_lost_shards", "Shards that were lost.")
        self._loss = self._make("Gauge", "eris_training_loss", "Mean loss of the last local training.")
        self._share = self._make("Gauge", "eris_largest_share", "Largest part of this peer's update another one saw.")
        self._seconds = self._make("Histogram", "eris_round_seconds", "Seconds from plan to verdict.")

    def __call__(self, notice: dict[str, Any]) -> None:
        """Count what happened."""
        if notice["event"] != "round":
            return
        self._round.set(notice["round"] + 1)
        self._sent.inc(sum(notice["bytes_up"].values()))
        self._received.inc(sum(notice["bytes_down"].values()))
        self._lost.inc(notice["lost_shards"])
        self._share.set(notice["largest_share"])
        self._seconds.observe(notice["seconds"]["round"])
        if notice["train_loss"] is not None:
            self._loss.set(notice["train_loss"])


class CoordinatorGauges(_Served):
    """Reads a coordinator whenever somebody asks."""

    def __init__(self, node: CoordinatorNode, port: int) -> None:
        super().__init__(port, {"federation": node.federation.name})
        self._node = node
        self._ask("rounds", "Rounds concluded.", lambda status: status["round"])
        self._ask("peers", "Peers that are here.", lambda status: sum(peer["here"] for peer in status["peers"]))
        self._ask("lost_shards", "Shards lost so far.", lambda status: sum(status["lost"].values()))
        self._ask("received_bytes", "Documents received.", lambda status: status["control"]["received"])
        self._ask("sent_bytes", "Documents sent.", lambda status: status["control"]["sent"])

    def _ask(self, name: str, about: str, read: Callable[[dict[str, Any]], float]) -> None:
        gauge = self._make("Gauge", f"eris_coordinator_{name}", about)
        gauge.set_function(lambda: float(read(self._node.overview())))


def _prometheus() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise MissingExtra("prometheus-client", "network", "--metrics") from error
    return prometheus_client
