"""The work of a masked round in benchmarks/network.py with Flower's SecAgg+, in an environment of its own.

    python flower_secagg.py PEERS N ROUNDS

Every client is a process of its own with Flower's `secaggplus_mod`, and returns the same vector in every round; the
server runs Flower's `SecAggPlusWorkflow` with as many shares as clients (odd, as it wants it, at most 9), of which more
than half reconstruct. Messages are Flower's own, serialised as it does, but go over pipes: without TLS, gRPC and a
SuperLink between them, so what is measured is the protocol, and less than a deployment would take. Prints the seconds
and processor seconds of every round after the first.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterable
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

from flower_work import Fixed, Timed, be_quiet
from flwr.app import Context, Message, RecordDict
from flwr.client import ClientApp
from flwr.client.mod import secaggplus_mod
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.server import Grid, LegacyContext, ServerConfig
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.supercore.task_identity import TaskIdentity

RUN = 1


class Pipes(Grid):
    """Flower's view of the clients: one pipe to each."""

    def __init__(self, pipes: dict[int, Connection]) -> None:
        self._pipes = pipes
        self._run = SimpleNamespace(run_id=RUN)

    @property
    def run(self) -> Any:
        """Return the only run."""
        return self._run

    def set_run(self, run_id: int) -> None:
        """Take note of nothing: there is one run."""

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        """Return a message as Flower makes it."""
        return Message(*arguments, **named)

    def get_node_ids(self) -> Iterable[int]:
        """Return all clients."""
        return list(self._pipes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Not used by the workflow."""
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Not used by the workflow."""
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send to all, then hear all."""
        del timeout
        asked = []
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = str(number)  # a SuperLink would do it
            asked.append(message.metadata.dst_node_id)
            self._pipes[asked[-1]].send_bytes(message_to_proto(message).SerializeToString())
        return [heard(self._pipes[node]) for node in asked]


def identify(node: int) -> None:
    """Say which process this is, as Flower's own ones do."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = node, RUN, node


def heard(pipe: Connection) -> Message:
    proto = ProtoMessage()
    proto.ParseFromString(pipe.recv_bytes())
    return message_from_proto(proto)


def run_client(pipe: Connection, member: int, n: int) -> None:
    be_quiet()
    identify(100 + member)
    client = Fixed(member, n).to_client()
    app = ClientApp(client_fn=lambda _: client, mods=[secaggplus_mod])
    context = Context(run_id=RUN, node_id=100 + member, node_config={}, state=RecordDict(), run_config={})
    while True:
        try:
            message = heard(pipe)
        except EOFError:
            return
        pipe.send_bytes(message_to_proto(app(message, context)).SerializeToString())


def main() -> None:
    peers, n, rounds = map(int, sys.argv[1:4])
    be_quiet()
    identify(1)
    processes, pipes = multiprocessing.get_context("spawn"), {}
    for member in range(peers):
        pipes[100 + member], theirs = processes.Pipe()
        processes.Process(target=run_client, args=(theirs, member, n), daemon=True).start()
        theirs.close()
    strategy = Timed(peers, n)
    own = Context(run_id=RUN, node_id=1, node_config={}, state=RecordDict(), run_config={})
    context = LegacyContext(context=own, config=ServerConfig(num_rounds=rounds + 1), strategy=strategy)
    shares = min(peers if peers % 2 else peers - 1, 9)
    workflow = SecAggPlusWorkflow(num_shares=shares, reconstruction_threshold=shares // 2 + 1)
    DefaultWorkflow(fit_workflow=workflow)(Pipes(pipes), context)
    strategy.mark()  # the last round has ended too
    strategy.print_rounds()


if __name__ == "__main__":
    main()
