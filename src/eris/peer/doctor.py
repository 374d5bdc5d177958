"""What stands between a peer and its federation, found step by step: name, address, port, CA, clock, version, disk.

Each step says what it found; a step that fails also says what to do, and steps that depend on it are left out.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from eris.errors import ErisError
from eris.peer.federation import Federation
from eris.peer.own_address import own_address
from eris.transport.control import COORDINATOR
from eris.transport.control_client import ControlClient
from eris.transport.credentials import Credentials
from eris.transport.link import LinkError, LinkLimits
from eris.transport.listener import Listener
from eris.transport.probe import probe
from eris.transport.socket_stream import connect

__all__ = ["Finding", "examine_coordinator", "examine_disk", "examine_listening", "examine_name"]

_CLOCK_SECONDS = 30.0
_LEAST_DISK = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    well: bool
    text: str

    @classmethod
    def of(cls, what: str, error: ErisError) -> Finding:
        """Turn an error into a finding."""
        return cls(what, False, str(error))


def examine_name(federation: Federation, credentials: Credentials, peer: str) -> Iterator[Finding]:
    """Look at who this peer is: its name in the file, its certificate and how long that holds."""
    listed = peer in federation.peers or peer == COORDINATOR
    yield Finding(
        "name", listed, f"{peer} is {'' if listed else 'not '}listed in the file ({len(federation.peers)} peers)"
    )
    warning = credentials.expiry_warning()
    good = credentials.refusal(credentials.identity, expected=peer)
    if good is not None:
        yield Finding("certificate", False, f"{credentials.identity}: {good.value}; renew it with `eris certs issue`")
    else:
        yield Finding("certificate", True, warning or f"{credentials.identity}, {credentials.days_left:.0f} days left")


def examine_coordinator(federation: Federation, credentials: Credentials) -> Iterator[Finding]:
    """Look at the way to the coordinator, up to whether it has the same clock, version and run as we."""
    host, port = federation.coordinator
    try:
        places = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})
        yield Finding("address", True, f"{host} is {', '.join(places)}")
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        yield Finding("address", False, f"{host} cannot be found: {why}; check federation.coordinator")
        return
    try:
        connect((host, port), 5.0).shut()
        yield Finding("port", True, f"something listens at {host}:{port}")
    except LinkError as error:
        fix = "check that the coordinator runs there, and that port and firewall are open"
        yield Finding("port", False, f"{error.what} at {host}:{port}: {fix}")
        return
    try:
        yield Finding("CA", True, f"{probe((host, port), credentials, expected=COORDINATOR)} answers")
    except LinkError as error:
        yield Finding.of("CA", error)
        return
    yield from _examine_agreement(federation, credentials)


def examine_listening(
    federation: Federation, credentials: Credentials, place: tuple[str, int] | None, advertise: str
) -> Iterator[Finding]:
    """Look at whether this peer can be dialled: listen for a moment, and ask the coordinator to try."""
    if place is None:
        yield Finding("listening", True, "this peer only dials out and is given no shard")
        return
    host = advertise or own_address(federation.coordinator)
    try:
        with (
            Listener(credentials, place, limits=LinkLimits(header_size=1, max_payload=0)) as listener,
            ControlClient(credentials, federation.coordinator) as client,
        ):
            port = listener.address[1]
            reached = bool(client.fetch({"dial": [host, port]})["dialled"])
    except ErisError as error:
        yield Finding.of("listening", error)
        return
    fix = "" if reached else "; open the port, name the right host with --advertise, or use --no-listen"
    yield Finding(
        "listening", reached, f"the coordinator {'reaches' if reached else 'cannot reach'} {host}:{port}{fix}"
    )


def examine_disk(folder: Path, needed: int = 0) -> Iterator[Finding]:
    """Look at whether what this peer will write has room."""
    existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    free, least = shutil.disk_usage(existing).free, max(needed, _LEAST_DISK)
    text = f"{free / 1e9:.1f} GB free at {existing}, {least / 1e9:.1f} GB are needed"
    yield Finding("disk", free >= least, text)


def _examine_agreement(federation: Federation, credentials: Credentials) -> Iterator[Finding]:
    with ControlClient(credentials, federation.coordinator) as client:
        before = time.time()
        try:
            status = client.status()
        except ErisError as error:
            yield Finding.of("coordinator", error)
            return
        between = (before + time.time()) / 2
    yield _clock(float(status["time"]) - between)
    yield _version(str(status["version"]))
    same = status["digest"] == federation.digest
    fix = "" if same else f", here it is {federation.digest[:16]}…: use the same FEDERATION.toml"
    yield Finding("run", same, f"the coordinator runs {status['digest'][:16]}…{fix}")
    yield Finding("coordinator", True, _progress(status))


def _clock(ahead: float) -> Finding:
    well = abs(ahead) <= _CLOCK_SECONDS
    text = f"the coordinator's clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} ours"
    return Finding("clock", well, text if well else f"{text}; set both by NTP: certificates depend on it")


def _version(theirs: str) -> Finding:
    ours = metadata.version("eris-fl")
    well = ours.split(".")[:2] == theirs.split(".")[:2]
    return Finding("version", well, f"eris {ours} here, {theirs} there" + ("" if well else "; bits may differ: update"))


def _progress(status: dict[str, Any]) -> str:
    here = sum(peer["here"] for peer in status["peers"])
    state = status["ended"] or (f"round {status['round']} of {status['rounds']}" if status["started"] else "not begun")
    return f"{here} of {len(status['peers'])} peers are there, {state}"
