"""Options that several verbs have, and what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eris.errors import ConfigError

if TYPE_CHECKING:
    from eris.peer.federation import Federation
    from eris.transport.control_client import ControlClient
    from eris.transport.credentials import Credentials

__all__ = [
    "DEFAULT_FILE",
    "CredentialsOption",
    "FederationFile",
    "JsonLogs",
    "MetricsPort",
    "address_option",
    "advertised",
    "caller",
    "find_credentials",
    "known_caller",
]

DEFAULT_FILE = Path("FEDERATION.toml")

FederationFile = Annotated[Path, typer.Argument(metavar="FEDERATION.toml", help="What all peers of the run share.")]
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
    int | None, typer.Option("--metrics", metavar="PORT", min=0, max=65535, help="Serve Prometheus metrics here.")
]


def address_option(text: str | None, option: str) -> tuple[str, int] | None:
    """Return host and port of an option HOST:PORT; `:7443` is that port of every address."""
    from eris.peer.federation import parse_address

    if text is None:
        return None
    return ("", int(text[1:])) if text.startswith(":") and text[1:].isdigit() else parse_address(text, key=option)


def advertised(place: tuple[str, int] | None) -> str:
    """Return the host that is listened on, if it is one that others can dial."""
    host = place[0] if place else ""
    return "" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - compared, not bound


@contextmanager
def caller(file: Path, given: Path | None) -> Iterator[ControlClient]:
    """Open a line to the coordinator as anybody whose credentials are found: enough to ask how things are."""
    from eris.peer.federation import load_federation
    from eris.transport.control import COORDINATOR
    from eris.transport.control_client import ControlClient

    federation = load_federation(file)
    credentials = find_credentials(file, federation, given, *federation.peers, COORDINATOR)
    with ControlClient(credentials, federation.coordinator) as client:
        yield client


@contextmanager
def known_caller(
    file: Path, given: Path | None, name: str | None, *, coordinator: bool = False
) -> Iterator[tuple[str, ControlClient]]:
    """Open a line to the coordinator for what goes on record: as the one peer it can be, or not at all.

    With `coordinator` its own credentials do, and come first: who has them runs the federation.
    """
    from eris.peer.federation import load_federation
    from eris.transport.control import COORDINATOR
    from eris.transport.control_client import ControlClient

    federation = load_federation(file)
    names = (name,) if name else (COORDINATOR, *federation.peers) if coordinator else federation.peers
    found = [] if given else list(_beside(file, names))
    if len(found) > 1 and found[0] != COORDINATOR:
        raise ConfigError(
            f"there are credentials of {', '.join(found)} beside {file}, and who asks goes on record",
            fix="say who you are with --peer NAME",
        )
    credentials = find_credentials(file, federation, given, *names)
    with ControlClient(credentials, federation.coordinator) as client:
        yield credentials.name, client


def _beside(file: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return the folders with credentials beside a federation's file, by name and in the order of the names."""
    from eris.transport.credentials import CERTIFICATE

    here, found = file.parent, {}
    for name in names:
        places = (here / name, here / "peers" / name, *here.glob(f"*/peers/{name}"))
        if place := next((place for place in places if (place / CERTIFICATE).exists()), None):
            found[name] = place
    return found


def find_credentials(file: Path, federation: Federation, given: Path | None, *names: str) -> Credentials:
    """Open the folder that was given, or the first one beside the federation's file that is of one of the names."""
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
            f"the certificate is of federation {credentials.federation!r}, the file of {federation.name!r}",
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
