"""The control plane's language: gRPC calls between a peer and the coordinator, small documents both ways.

    /eris.Control/Join Report Fetch Status Leave Stop    request and answer are documents (canonical JSON, see wire/)
    /eris.Control/Next                                   what the coordinator told everybody after …; waits for it
    /grpc.health.v1.Health/Check                         for the tools people have

What a document says is the protocol's matter. There is no generated code: a message is its bytes. A refusal travels as
a gRPC status whose details are a document again, so that both sides raise the same typed error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Protocol

from eris.errors import MissingExtra
from eris.transport.identity import PeerIdentity
from eris.wire.document import LONGEST_DOCUMENT

__all__ = ["COORDINATOR", "METHODS", "SERVICE", "ControlService", "ControlTraffic", "Document", "load_grpc"]

COORDINATOR = "coordinator"  # the name its certificate carries: coordinator.FEDERATION
SERVICE = "eris.Control"
HEALTH = "/grpc.health.v1.Health/Check"
METHODS = ("Join", "Report", "Fetch", "Status", "Leave", "Stop")
LONGEST_WAIT = 60.0  # seconds a call for news may be held
MESSAGE_LIMIT = LONGEST_DOCUMENT + 4096

Document = dict[str, Any]


class ControlService(Protocol):
    """What the coordinator does with a call. Called from many threads at once; raises `Refused` to refuse."""

    def join(self, caller: PeerIdentity, request: Document) -> Document:
        """Take a peer into the run, or back into it."""
        ...

    def report(self, caller: PeerIdentity, request: Document) -> Document:
        """Take a manifest, a notice or the list of what a member holds."""
        ...

    def fetch(self, caller: PeerIdentity, request: Document) -> Document:
        """Return a plan, a verdict or another record by its name."""
        ...

    def status(self, caller: PeerIdentity, request: Document) -> Document:
        """Return who is there and how far the run is."""
        ...

    def leave(self, caller: PeerIdentity, request: Document) -> Document:
        """Let a peer go."""
        ...

    def stop(self, caller: PeerIdentity, request: Document) -> Document:
        """End the run, if the caller may."""
        ...

    def heard(self, caller: PeerIdentity, *, waits: bool) -> None:
        """Note that a peer asks for news, or was given some: it is there, and should ask again."""
        ...

    def lost(self, caller: PeerIdentity) -> None:
        """Note that a peer's connection broke while it waited for news."""
        ...

    def healthy(self) -> bool:
        """Return whether the coordinator can serve."""
        ...


@dataclass
class ControlTraffic:
    """Bytes of documents and number of calls; none of them depends on the size of the model."""

    calls: int = 0
    sent: int = 0
    received: int = 0


def load_grpc() -> Any:
    """Return the grpc module, quiet: what fails is told by our own errors and logs."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import grpc
    except ImportError as error:  # pragma: no cover - the extra is installed wherever tests run
        raise MissingExtra("grpcio", "network", "the control plane") from error
    return grpc
