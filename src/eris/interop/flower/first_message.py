"""Get the ServerApp's first message: the initial model, and the config of every message."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import ConfigError, TaskError
from eris.interop.flower.app import FlowerApp
from eris.interop.flower.records import Arrays, no_float64, only_arrays
from eris.interop.foreign_call import foreign_call
from eris.seeds import Seed

__all__ = ["FirstMessage"]


class FirstMessage:
    """The ServerApp's first message, and the config of every later one.

    `options` are the settings the app runs with; `members` is how many nodes its strategy is told of.
    """

    arrays_key, config_key = "arrays", "config"

    def __init__(self, app: FlowerApp, options: Mapping[str, Any], members: int) -> None:
        self._app, self._options, self._members = app, dict(options), members
        self._config: dict[str, Any] = {}
        self._strategy: Any = None

    def arrays(self, seed: Seed) -> Arrays:
        """Start the ServerApp with this seed and return the arrays of its first message."""
        with foreign_call(seed.child("server-app")):
            return self._of_strategy() if self._app.classic else self._of_main()

    def config(self, round: int | None) -> dict[str, Any]:
        """Return the config of a round's message."""
        number = (round or 0) + 1
        if self._strategy is not None:
            return self._asked(number)
        return {**self._config, "server-round": number} if not self._app.classic else dict(self._config)

    def _context(self) -> Any:
        from flwr.app import Context, RecordDict

        return Context(1, 0, {}, RecordDict(), dict(self._options))

    def _of_main(self) -> Arrays:
        """Run the ServerApp up to its first message; from then on, the run's method takes over."""
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 0
        try:
            self._app.server(_grid(self._members), self._context())
        except _FirstSent as sent:
            return self._opened(sent.message)
        except Exception as error:
            raise TaskError(
                f"the ServerApp failed before its first message, with {type(error).__name__}: {error}",
                fix="correct the ServerApp: eris starts it once to get the initial arrays",
            ) from error
        raise TaskError("the ServerApp ended without a message", fix="make it send a model to train: strategy.start(…)")

    def _opened(self, message: Any) -> Arrays:
        kind = message.metadata.message_type
        if kind != "train":
            raise ConfigError(
                f"the ServerApp's first message is a {kind!r}, but eris sends only 'train' and 'evaluate'",
                fix="make the strategy begin with training; eris cannot send clients anything else",
            )
        arrays = only_arrays(message.content, "the ServerApp's first message")
        (self.arrays_key,) = message.content.array_records
        for key, record in message.content.config_records.items():
            self.config_key, self._config = key, dict(record)
        return arrays

    def _of_strategy(self) -> Arrays:
        """Ask a classic strategy, or a client, for the initial parameters."""
        from flwr.common import parameters_to_ndarrays

        manager = _clients(self._members)
        self._strategy = self._made_strategy()
        given = None
        if self._strategy is not None:
            given = self._strategy.initialize_parameters(client_manager=manager)
        values = parameters_to_ndarrays(given) if given is not None else self._of_a_client()
        return no_float64({str(place): np.asarray(value) for place, value in enumerate(values)}, "the first model")

    def _made_strategy(self) -> Any:
        server = self._app.server
        if getattr(server, "_main", None) is not None:
            raise ConfigError(
                "the ClientApp is a classic client, but the ServerApp has a main function",
                fix="use ServerApp(server_fn=…) with a classic client, or @app.train() with a main function",
            )
        if (make := getattr(server, "_server_fn", None)) is None:
            return getattr(server, "_strategy", None)
        try:
            components = make(self._context())
        except Exception as error:
            raise TaskError(
                f"the ServerApp's server_fn failed with {type(error).__name__}: {error}",
                fix="correct server_fn: eris calls it once to get the initial parameters",
            ) from error
        return components.strategy

    def _of_a_client(self) -> list[NDArray[Any]]:
        from flwr.app import ConfigRecord, Context, Message, Metadata, RecordDict
        from flwr.app.constants import DEFAULT_TTL

        content = RecordDict({"getparametersins.config": ConfigRecord()})
        node = {"partition-id": 0, "num-partitions": self._members}
        metadata = Metadata(1, "", 0, 1, "", "", time.time(), DEFAULT_TTL, "get_parameters")
        context = Context(1, 1, node, RecordDict(), dict(self._options))
        reply = self._app.client(Message(metadata=metadata, content=content), context)
        record = reply.content.array_records["getparametersres.parameters"]
        if not (found := [each.numpy() for each in record.values() if each.data]):
            raise ConfigError(
                "there is no initial model: the strategy has no initial_parameters, and the client has no "
                "get_parameters",
                fix="give the strategy initial_parameters=ndarrays_to_parameters(…)",
            )
        return found

    def _asked(self, number: int) -> dict[str, Any]:
        """Ask a classic strategy for a round's config: a function of the round, the same at every peer."""
        from flwr.common import Parameters

        empty = Parameters(tensors=[], tensor_type="")
        pairs = self._strategy.configure_fit(number, empty, _clients(self._members))
        return dict(pairs[0][1].config) if pairs else {}


class _FirstSent(BaseException):  # not an Exception: a main function that catches those must not continue
    def __init__(self, message: Any) -> None:
        self.message = message


def _grid(members: int) -> Any:
    """Return a grid whose first message ends the ServerApp; it has as many nodes as a strategy waits for."""
    from flwr.serverapp import Grid

    class FirstMessageGrid(Grid):  # type: ignore[misc]
        nodes = members

        def set_run(self, run: Any) -> None:
            del run

        @property
        def run(self) -> Any:
            raise ConfigError("the ServerApp reads grid.run, which eris does not support", fix="remove that")

        def create_message(self, content: Any, message_type: str, dst_node_id: int, group_id: str, ttl: Any) -> Any:
            from flwr.app import Message

            del ttl
            return Message(content, dst_node_id, message_type, group_id=group_id)

        def get_node_ids(self) -> list[int]:
            found = list(range(1, self.nodes + 1))
            self.nodes *= 2  # a strategy that asks again wants more
            return found

        def push_messages(self, messages: Any) -> Any:
            for message in messages:
                raise _FirstSent(message)
            return []

        def pull_messages(self, message_ids: Any) -> Any:
            del message_ids
            return []

        def send_and_receive(self, messages: Any, *, timeout: Any = None) -> Any:
            del timeout
            return self.push_messages(messages)

    return FirstMessageGrid()


def _clients(members: int) -> Any:
    """Return a client manager that has whatever clients a classic strategy wants to sample."""
    from flwr.server.client_manager import SimpleClientManager

    class AnyClients(SimpleClientManager):  # type: ignore[misc]
        def num_available(self) -> int:
            return members

        def sample(self, num_clients: int, min_num_clients: Any = None, criterion: Any = None) -> list[Any]:
            del min_num_clients, criterion
            return [object()] * max(1, num_clients)

    return AnyClients()
