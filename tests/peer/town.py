"""A federation in one process: real certificates, real sockets, a thread for each peer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eris.config import Config, load_config
from eris.coordinate.service import CoordinatorService
from eris.events import Event, Listener, VerdictWritten, hears
from eris.local.task import Task
from eris.peer.federation_file import FederationFile
from eris.peer.node import Node
from eris.peer.node_settings import SPILL_ABOVE, NodeSettings
from eris.peer.peer_folder import PeerFolder
from eris.peer.session import Session
from eris.protocol.floor import Floor
from eris.seeds import private_root
from eris.simulate.run import run
from eris.tasks import build_task
from eris.transport.authority import Authority
from eris.transport.credentials import Credentials

QUADRATIC = ["data.name=synthetic-quadratic", "rounds=4", "workers=1", "server.min_contributors=1"]
NAMES = ("amber", "birch", "cedar", "dogwood", "elder", "fir", "gorse", "hazel", "ivy", "juniper")


def settings(*changes: str, method: str = "eris") -> Config:
    return load_config(changes=[*QUADRATIC, f"method={method}", *changes])


def simulated(config: Config, out: Path) -> str:
    """Return the digest that the simulator comes to."""
    return str(run(config, out).summaries[0]["model_digest"])


class Town:
    """Certificates of a federation, its coordinator, and peers that can be started and waited for."""

    def __init__(self, folder: Path, config: Config, *, begin_with: int = 0, **federation: Any) -> None:
        self.folder, self.config, self._settings, self._begin_with = folder, config, federation, begin_with
        self.names = NAMES[: config.members]
        self.authority = Authority.create(folder / "ca", "town")
        self.credentials = {name: self.authority.issue(name) for name in ("coordinator", *self.names)}
        self.coordinator = self.open_coordinator()
        self.failures: dict[str, BaseException] = {}
        self._threads: dict[str, threading.Thread] = {}

    def open_coordinator(self) -> CoordinatorService:
        """Start the coordinator; again in the same folder: let it come back."""
        port = self.coordinator.address[1] if hasattr(self, "coordinator") else 0
        place = ("127.0.0.1", port)
        return CoordinatorService(
            self.federation(place),
            Credentials(self.credentials["coordinator"]),
            self.folder / "state",
            listen=place,
            begin_with=self._begin_with,
            linger=2.0,  # many of these lose somebody for good
        )

    def federation(self, place: tuple[str, int] | None = None, config: Config | None = None) -> FederationFile:
        """Return what the peers share."""
        host, port = place or self.coordinator.address
        table = {"name": "town", "coordinator": f"{host}:{port}", "peers": self.names, **self._settings}
        return FederationFile(table, config or self.config)

    def node(self, name: str, *, task: Task | None = None, config: Config | None = None, **options: Any) -> Node:
        """Return a peer that has not joined yet."""
        given = {key: options.pop(key) for key in ("listeners", "evaluate") if key in options}
        return Node(
            self.federation(config=config),
            Credentials(options.pop("credentials", self.credentials.get(name))),
            task or self.task(),
            private_root(self.config.seed, self.names.index(name)),
            self._own(name, options),
            **given,
        )

    def session(self, name: str, *, out: Path | None = None, **options: Any) -> Session:
        """Return a peer with a folder."""
        federation, listeners = self.federation(), options.pop("listeners", ())
        return Session(
            federation,
            Credentials(self.credentials[name]),
            options.pop("task", None) or self.task(),
            private_root(self.config.seed, self.names.index(name)),
            self._own(name, options),
            PeerFolder(
                out or self.folder / "peers" / name,
                federation,
                name,
                spill_above=options.get("spill_above", SPILL_ABOVE),
            ),
            reproducible=True,
            listeners=listeners,
        )

    @staticmethod
    def _own(name: str, options: dict[str, Any]) -> NodeSettings:
        given = {"listen": ("127.0.0.1", 0), "floor": Floor(min_contributors=1), "wait": 5.0, **options}
        return NodeSettings(name, **given)

    def task(self) -> Task:
        return build_task(self.config.model_dump(mode="json"))

    def start(self, name: str, run: Callable[[], object]) -> None:
        """Let a peer play in a thread of its own."""

        def play() -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001 - shown by `wait`
                self.failures[name] = error

        self._threads[name] = threading.Thread(target=play, name=name, daemon=True)
        self._threads[name].start()

    def wait(self, *names: str, seconds: float = 60.0) -> None:
        """Wait for peers (all of them, if none is named) and raise what one of them raised."""
        for name in names or tuple(self._threads):
            self._threads[name].join(seconds)
            assert not self._threads[name].is_alive(), f"{name} is still playing"
            if name in self.failures:
                raise self.failures[name]

    def close(self) -> None:
        self.coordinator.close()


@contextmanager
def town(folder: Path, config: Config, **federation: Any) -> Iterator[Town]:
    place = Town(folder, config, **federation)
    try:
        yield place
    finally:
        place.close()


def noting(found: list[Any], *kinds: type[Event]) -> list[Listener]:
    """Return listeners that keep the events of these kinds."""

    @hears(*kinds)
    def note(event: Event) -> None:
        found.append(event)

    return [note]


def after_rounds(call: Callable[[VerdictWritten], object]) -> list[Listener]:
    """Return listeners that call on every verdict this peer followed."""

    @hears(VerdictWritten)
    def note(event: Event) -> None:
        assert isinstance(event, VerdictWritten)
        call(event)

    return [note]
