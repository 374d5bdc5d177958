"""Prometheus metrics of a peer or a coordinator, for who asks for them with --metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eris.errors import MissingExtra

if TYPE_CHECKING:
    from eris.peer.coordinate import CoordinatorNode

__all__ = ["PeerGauges", "serve_coordinator"]


class PeerGauges:
    """Hears what a session tells, and serves it at http://HOST:port/metrics."""

    def __init__(self, federation: str, peer: str, port: int) -> None:
        prometheus = _prometheus()
        registry = prometheus.CollectorRegistry()
        labels = {"labelnames": ("federation", "peer"), "registry": registry}

        def of_this_peer(kind: Any, name: str, about: str, **options: Any) -> Any:
            return kind(name, about, **labels, **options).labels(federation, peer)

        counter, gauge = prometheus.Counter, prometheus.Gauge
        self._round = of_this_peer(gauge, "eris_rounds", "Rounds concluded.")
        self._sent = of_this_peer(counter, "eris_sent_bytes", "Bytes sent to peers, headers included.")
        self._received = of_this_peer(counter, "eris_received_bytes", "Bytes received from peers, headers included.")
        self._lost = of_this_peer(counter, "eris_lost_shards", "Shards that were lost.")
        self._loss = of_this_peer(gauge, "eris_training_loss", "Mean loss of the last local training.")
        self._share = of_this_peer(gauge, "eris_largest_share", "Largest part of this peer's update another one saw.")
        self._seconds = of_this_peer(prometheus.Histogram, "eris_round_seconds", "Seconds from plan to verdict.")
        self.port = _serve(prometheus, registry, port)

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


def serve_coordinator(node: CoordinatorNode, port: int) -> int:
    """Serve a coordinator's metrics, read from it whenever somebody asks; return the port."""
    prometheus = _prometheus()
    registry = prometheus.CollectorRegistry()
    labels = {"labelnames": ("federation",), "registry": registry}

    def ask(name: str, about: str, read: Any) -> None:
        gauge = prometheus.Gauge(name, about, **labels).labels(node.federation.name)
        gauge.set_function(lambda: float(read(node.overview())))

    ask("eris_coordinator_rounds", "Rounds concluded.", lambda status: status["round"])
    ask("eris_coordinator_peers", "Peers that are here.", lambda status: sum(p["here"] for p in status["peers"]))
    ask("eris_coordinator_lost_shards", "Shards lost so far.", lambda status: sum(status["lost"].values()))
    ask("eris_coordinator_received_bytes", "Documents received.", lambda status: status["control"]["received"])
    ask("eris_coordinator_sent_bytes", "Documents sent.", lambda status: status["control"]["sent"])
    return _serve(prometheus, registry, port)


def _prometheus() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise MissingExtra("prometheus-client", "network", "--metrics") from error
    return prometheus_client


def _serve(prometheus: Any, registry: Any, port: int) -> int:
    server, _ = prometheus.start_http_server(port, registry=registry)
    return int(server.server_port)
