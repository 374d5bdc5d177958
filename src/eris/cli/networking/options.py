"""Options that several verbs have, and what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eris.errors import ConfigError

if TYPE_CHECKING:
    from eris.peer.federation_file import FederationFile
    from eris.transport.control_client import ControlClient
    from eris.transport.credentials import Credentials

__all__ = [
    "DEFAULT_FILE",
    "CredentialsOption",
    "FederationArgument",
    "JsonLogs",
    "MetricsPort",
    "ProxyOption",
    "RelayOption",
    "WebOption",
    "WebPlace",
    "YesOption",
    "address_option",
    "advertised",
    "caller",
    "find_coordinator",
    "find_credentials",
    "known_caller",
    "metrics_place",
    "relays_option",
    "web_place",
]

DEFAULT_FILE = Path("FEDERATION.toml")
_STANDING = 3.0  # seconds that a possible coordinator has to answer

FederationArgument = Annotated[Path, typer.Argument(metavar="FEDERATION.toml", help="What all peers of the run share.")]
CredentialsOption = Annotated[
    Path | None,
    typer.Option(
        "--credentials",
        metavar="DIR",
        envvar="ERIS_CREDENTIALS",
        help="Folder made by `eris certs` (default: NAME/, or peers/NAME/ of a CA, beside the file).",
    ),
]
JsonLogs = Annotated[bool, typer.Option("--log-json", help="Write logs as JSON lines with run, round, shard and peer.")]
MetricsPort = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="[HOST:]PORT",
        help="Serve Prometheus metrics here: on this machine only, unless a host is named (`:PORT` is every address).",
    ),
]
WebOption = Annotated[
    bool, typer.Option("--web", help="Serve a live page on this machine; the address, with its token, is printed.")
]
WebPlace = Annotated[
    str | None,
    typer.Option(
        "--web-at", metavar="[HOST:]PORT", help="Serve the live page here (`:PORT` is every address: no encryption)."
    ),
]
RelayOption = Annotated[
    list[str] | None,
    typer.Option(
        "--relay",
        metavar="HOST:PORT",
        help="Open no port; be reached through this `eris relay`. Repeatable, for spares.",
    ),
]
ProxyOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Dial out through this HTTP proxy: http://[user:password@]host:port, or none (default: https_proxy).",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def relays_option(texts: list[str] | None) -> tuple[tuple[str, int], ...]:
    """Return hosts and ports of the relays, in their order and each once."""
    from eris.peer.federation_file import parse_address
    from eris.transport.calls import MOST_RELAYS

    relays = tuple(dict.fromkeys(parse_address(text, key="--relay") for text in texts or ()))
    if len(relays) > MOST_RELAYS:
        raise ConfigError(f"{len(relays)} relays are more than {MOST_RELAYS}", fix="name the best ones")
    return relays


def address_option(text: str | None, option: str) -> tuple[str, int] | None:
    """Return host and port of an option HOST:PORT; `:7443` is that port of every address."""
    from eris.peer.federation_file import parse_address

    if text is None:
        return None
    return ("", int(text[1:])) if text.startswith(":") and text[1:].isdigit() else parse_address(text, key=option)


def metrics_place(text: str) -> tuple[int, str]:
    """Return port and host of --metrics; a port alone is one of this machine only.

    >>> metrics_place("9464"), metrics_place(":9464"), metrics_place("10.0.0.5:9464")
    ((9464, '127.0.0.1'), (9464, ''), (9464, '10.0.0.5'))
    """
    host, port = address_option(f"127.0.0.1:{text}" if text.isdigit() else text, "--metrics") or ("127.0.0.1", 0)
    return port, host


def web_place(web: bool, at: str | None) -> tuple[int, str] | None:
    """Return port and host of the live page; None if nobody asked for one.

    >>> web_place(False, None), web_place(True, None), web_place(False, "8080"), web_place(True, ":8080")
    (None, (0, '127.0.0.1'), (8080, '127.0.0.1'), (8080, ''))
    """
    if at is None:
        return (0, "127.0.0.1") if web else None
    host, port = address_option(f"127.0.0.1:{at}" if at.isdigit() else at, "--web-at") or ("127.0.0.1", 0)
    return port, host


def advertised(place: tuple[str, int] | None) -> str:
    """Return the host we listen on, if others can dial it."""
    host = place[0] if place else ""
    return "" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - compared, not bound


@contextmanager
def caller(file: Path, given: Path | None) -> Iterator[ControlClient]:
    """Call the coordinator with whatever credentials are found: enough to ask how things are."""
    from eris.peer.federation_file import load_federation
    from eris.transport.control_client import ControlClient
    from eris.transport.route import Proxy

    federation = load_federation(file)
    names = (*federation.peers, *federation.settings.operators, *federation.coordinators)
    credentials = find_credentials(file, federation, given, *names)
    with ControlClient(credentials, federation.coordinator, proxy=Proxy.chosen(None)) as client:
        find_coordinator(federation, client)
        yield client


@contextmanager
def known_caller(
    file: Path, given: Path | None, name: str | None, *, coordinator: bool = False
) -> Iterator[tuple[str, ControlClient]]:
    """Call the coordinator for something that goes on record: under the one name that fits, or not at all.

    With `coordinator`, the coordinator's own credentials count too, and come first: whoever has them runs the
    federation. `given` is the folder that was named, `name` the peer.
    """
    from eris.peer.federation_file import load_federation
    from eris.transport.control_client import ControlClient
    from eris.transport.route import Proxy

    federation = load_federation(file)
    running = (*federation.coordinators, *federation.settings.operators) if coordinator else ()
    names = (name,) if name else (*running, *federation.peers)
    found = [] if given else list(_beside(file, names))
    if len(found) > 1 and found[0] not in federation.coordinators:
        raise ConfigError(
            f"{file}'s folder has credentials of {', '.join(found)}; the request must be made in one name",
            fix="say who you are with --peer NAME",
        )
    credentials = find_credentials(file, federation, given, *names)
    with ControlClient(credentials, federation.coordinator, proxy=Proxy.chosen(None)) as client:
        find_coordinator(federation, client)
        yield credentials.name, client


def find_coordinator(federation: FederationFile, client: ControlClient) -> None:
    """Turn to whoever coordinates now, in case somebody took over: the one that answers from the latest epoch."""
    from eris.transport.link import LinkError

    places = federation.coordinators if federation.settings.standbys else {}
    epochs: dict[str, int] = {}
    for name, place in places.items():
        client.turn_to(name, place)
        with suppress(LinkError):
            epochs[name] = client.status(seconds=_STANDING).epoch
    if places:
        found = max(epochs, key=lambda name: epochs[name], default=next(iter(places)))
        client.turn_to(found, places[found])


def _beside(file: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return the folders with credentials beside a federation's file, by name and in the order of the names."""
    from eris.transport.credentials import CERTIFICATE

    here, found = file.parent, {}
    for name in names:
        places = (here / name, here / "peers" / name, *here.glob(f"*/peers/{name}"))
        if place := next((place for place in places if (place / CERTIFICATE).exists()), None):
            found[name] = place
    return found


def find_credentials(file: Path, federation: FederationFile, given: Path | None, *names: str) -> Credentials:
    """Open the given folder, or the first one beside the federation's file that belongs to one of the names."""
    from eris.transport.credentials import Credentials

    found = given or next(iter(_beside(file, names).values()), None)
    if found is None:
        raise ConfigError(
            f"no credentials of {' or '.join(names)} beside {file}",
            fix="make them with `eris certs issue DIR NAME`, or name their folder with --credentials",
        )
    credentials = Credentials(found)
    if credentials.federation != federation.name:
        raise ConfigError(
            f"the certificate belongs to federation {credentials.federation!r}, the file to {federation.name!r}",
            fix="use the credentials and the file of the same federation",
            folder=found,
        )
    if credentials.name not in names:
        raise ConfigError(
            f"the certificate is {credentials.name}'s, not {' or '.join(names)}'s",
            fix="give the folder of that name with --credentials",
            folder=found,
        )
    return credentials
