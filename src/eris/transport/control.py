"""The control plane: gRPC calls between a peer and the coordinator, with small documents both ways.

    /eris.Control/Join Report Fetch Status Leave Stop    request and answer are documents (see calls.py and wire/)
    /eris.Control/Next                                   what the coordinator told everybody after …; waits for it
    /grpc.health.v1.Health/Check                         for the tools people have

There is no generated code: a message is a document's bytes. A refusal travels as a gRPC status whose details are a line
of JSON that every version can read, so that both sides raise the same typed error.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

from eris.errors import MissingExtra
from eris.protocol.messages import Wanted
from eris.transport.calls import (
    Done,
    FetchAnswer,
    FetchRequest,
    JoinAnswer,
    JoinRequest,
    LeaveRequest,
    Overview,
    ReportRequest,
    StatusRequest,
    StopRequest,
)
from eris.transport.identity import PeerIdentity
from eris.wire.schema import LONGEST_DOCUMENT

__all__ = ["COORDINATOR", "SERVICE", "ControlService", "load_grpc"]

COORDINATOR = "coordinator"  # the name in its certificate: coordinator.FEDERATION
SERVICE = "eris.Control"
HEALTH = "/grpc.health.v1.Health/Check"
LONGEST_WAIT = 60.0  # seconds a call for news may be held
MESSAGE_LIMIT = LONGEST_DOCUMENT + 4096


class ControlService(Protocol):
    """The coordinator's handlers of calls. Called from many threads at once; they raise `Refused` to refuse."""

    def join(self, caller: PeerIdentity, request: JoinRequest) -> JoinAnswer:
        """Take a peer into the run, or back into it."""
        ...

    def report(self, caller: PeerIdentity, request: ReportRequest) -> Wanted:
        """Take a manifest, a notice or a report; return what else is wanted from the peer."""
        ...

    def fetch(self, caller: PeerIdentity, request: FetchRequest) -> FetchAnswer | bytes:
        """Return addresses, a roster, missed rounds, or whether a peer can be dialled."""
        ...

    def status(self, caller: PeerIdentity, request: StatusRequest) -> Overview:
        """Return who is there and how far the run has got."""
        ...

    def leave(self, caller: PeerIdentity, request: LeaveRequest) -> Done:
        """Note that a peer leaves."""
        ...

    def stop(self, caller: PeerIdentity, request: StopRequest) -> Done:
        """End the run, if the caller is entitled to."""
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


def load_grpc() -> Any:
    """Return the grpc module with its logging silenced: our own errors and logs say what fails."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import grpc
    except ImportError as error:  # pragma: no cover - the extra is installed wherever tests run
        raise MissingExtra("grpcio", "network", "the control plane") from error
    return grpc
