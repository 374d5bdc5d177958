"""Checks what may stand between a peer and its federation: name, address, port, CA, clock, version, disk.

Each check says what it found; one that fails also says what to do, and checks that depend on it are skipped. The last
one is a round before there is any: does the first plan of this configuration respect a member's floor?
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from eris.checkpoint import GENERATIONS
from eris.compose import compose
from eris.errors import ErisError, Refused
from eris.local.task import BlockTask
from eris.peer.federation_file import FederationFile
from eris.peer.footprint import disk_need, state_bytes
from eris.peer.node_settings import SPILL_ABOVE, NodeSettings, own_address
from eris.peer.own_task import MakeTask, task_for
from eris.peer.round_events import largest_share
from eris.protocol.coordinator import Coordinator
from eris.protocol.floor import Floor
from eris.protocol.journal import Entry
from eris.protocol.recipe import Recipe
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.transport.calls import DialAnswer, DialRequest, Overview
from eris.transport.control import COORDINATOR
from eris.transport.control_client import ControlClient
from eris.transport.credentials import Credentials
from eris.transport.link import LinkError, LinkLimits
from eris.transport.link_listener import LinkListener
from eris.transport.probe import probe
from eris.transport.route import Proxy, RelayDoor, address_text, by_relay, connect_by
from eris.transport.socket_stream import Address

__all__ = [
    "CheckResult",
    "examine_coordinator",
    "examine_disk",
    "examine_listening",
    "examine_name",
    "examine_task",
    "first_plan",
]

_CLOCK_SECONDS = 30.0
_LEAST_DISK = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    what: str  # was checked, in a word
    well: bool
    text: str  # what was found and, if that is not well, what to do

    @classmethod
    def of(cls, what: str, error: ErisError) -> CheckResult:
        """Turn an error into a finding."""
        return cls(what, False, str(error))


def examine_name(federation: FederationFile, credentials: Credentials, peer: str) -> Iterator[CheckResult]:
    """Check who this peer is: its name in the file, its certificate and how long that is valid."""
    listed = peer in federation.peers or peer == COORDINATOR
    yield CheckResult(
        "name", listed, f"{peer} is {'' if listed else 'not '}listed in the file ({len(federation.peers)} peers)"
    )
    warning = credentials.expiry_warning()
    good = credentials.refusal(credentials.identity, expected=peer)
    if good is not None:
        yield CheckResult(
            "certificate", False, f"{credentials.identity}: {good.value}; renew it with `eris certs renew`"
        )
    else:
        yield CheckResult(
            "certificate", True, warning or f"{credentials.identity}, {credentials.days_left:.0f} days left"
        )


def examine_coordinator(
    federation: FederationFile, credentials: Credentials, proxy: Proxy | None = None
) -> Iterator[CheckResult]:
    """Check the way to the coordinator, including whether it has our clock, version and run."""
    host, port = federation.coordinator
    through = f" through the proxy {proxy}" if proxy is not None and proxy.is_for(host) else ""
    found = _address(host, port, proxied=bool(through))
    yield found
    if not found.well:
        return
    try:
        connect_by((host, port), 5.0, proxy).shut()
        yield CheckResult("port", True, f"something listens at {host}:{port}{through}")
    except LinkError as error:
        fix = "check that the coordinator runs there, and that port and firewall are open"
        yield CheckResult("port", False, f"{error.what} at {host}:{port}{through}: {fix}")
        return
    try:
        yield CheckResult("CA", True, f"{probe((host, port), credentials, expected=COORDINATOR, proxy=proxy)} answers")
    except LinkError as error:
        yield CheckResult.of("CA", error)
        return
    yield from _examine_agreement(federation, credentials, proxy)


def _address(host: str, port: int, *, proxied: bool) -> CheckResult:
    if proxied:
        return CheckResult("address", True, f"{host} is looked up by the proxy")  # often nobody else can
    try:
        places = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        return CheckResult("address", False, f"{host} cannot be found: {why}; check federation.coordinator")
    return CheckResult("address", True, f"{host} is {', '.join(places)}")


def examine_listening(
    federation: FederationFile, credentials: Credentials, settings: NodeSettings
) -> Iterator[CheckResult]:
    """Check whether others can reach this peer: listen or wait at its relays, and have the coordinator try."""
    if not settings.reachable:
        yield CheckResult("listening", True, "this peer only dials out and is given no shard")
        return
    limits = LinkLimits(header_size=1, max_payload=0)
    try:
        with (
            LinkListener(credentials, settings.listen, limits=limits) as listener,
            ControlClient(credentials, federation.coordinator, proxy=settings.proxy) as client,
        ):
            if settings.listen is not None:
                yield _listening(client, settings.advertise or own_address(federation.coordinator), listener.address[1])
            for relay in settings.relays:
                yield _relayed(client, credentials, relay, listener, settings.proxy)
    except ErisError as error:
        yield CheckResult.of("listening", error)


def _listening(client: ControlClient, host: str, port: int) -> CheckResult:
    fix = "; open the port, name the right host with --advertise, or use --relay"
    try:
        reached = client.fetch(DialRequest((host, port)), DialAnswer).dialled
    except Refused as refusal:  # it only dials addresses that its callers call from
        return CheckResult(
            "listening", False, f"the coordinator cannot reach {host}:{port} directly: {refusal.what}{fix}"
        )
    said = f"the coordinator {'reaches' if reached else 'cannot reach'} {host}:{port} directly"
    return CheckResult("listening", reached, said if reached else said + fix)


def _relayed(
    client: ControlClient, credentials: Credentials, relay: Address, listener: LinkListener, proxy: Proxy | None
) -> CheckResult:
    """Wait at a relay for a moment; if this peer is already running, do not displace it."""
    where = f"relay {address_text(relay)}"
    if proxy is not None and proxy.is_for(relay[0]):
        where += f", through the proxy {proxy}"
    try:
        by_relay(relay, credentials.name, credentials, 5.0, proxy).shut()
        return CheckResult("relay", True, f"this peer waits at the {where}")
    except LinkError:
        pass  # it is not running: we wait there in its place
    door = RelayDoor(relay, credentials, listener.take, connect=5.0, proxy=proxy)
    try:
        if not door.open.wait(6.0):
            return CheckResult("relay", False, f"{where}: {door.failure or 'no answer'}")
        reached = client.fetch(DialRequest(None, (relay,)), DialAnswer).dialled
    finally:
        door.close()
    fix = "" if reached else "; the coordinator must be able to dial the relay, and the relay must list it"
    return CheckResult(
        "relay", reached, f"the coordinator {'reaches' if reached else 'cannot reach'} us by {where}{fix}"
    )


def examine_disk(folder: Path, needed: int = 0) -> Iterator[CheckResult]:
    """Check whether the disk has room for what this peer will write."""
    existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    free, least = shutil.disk_usage(existing).free, max(needed, _LEAST_DISK)
    text = f"{free / 1e9:.1f} GB free at {existing}, {least / 1e9:.1f} GB are needed"
    yield CheckResult("disk", free >= least, text)


def _examine_agreement(
    federation: FederationFile, credentials: Credentials, proxy: Proxy | None
) -> Iterator[CheckResult]:
    with ControlClient(credentials, federation.coordinator, proxy=proxy) as client:
        before = time.time()
        try:
            status = client.status()
        except ErisError as error:
            yield CheckResult.of("coordinator", error)
            return
        between = (before + time.time()) / 2
    yield _clock(status.time - between)
    yield _version(status.version)
    same = status.digest == federation.digest
    fix = "" if same else f", here it is {federation.digest[:16]}…: use the same FEDERATION.toml"
    yield CheckResult("run", same, f"the coordinator runs {status.digest[:16]}…{fix}")
    yield CheckResult("coordinator", True, _progress(status))


def _clock(ahead: float) -> CheckResult:
    well = abs(ahead) <= _CLOCK_SECONDS
    text = f"the coordinator's clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} ours"
    return CheckResult("clock", well, text if well else f"{text}; set both by NTP: certificates depend on it")


def _version(theirs: str) -> CheckResult:
    ours = metadata.version("eris-fl")
    well = ours.split(".")[:2] == theirs.split(".")[:2]
    return CheckResult(
        "version", well, f"eris {ours} here, {theirs} there" + ("" if well else "; bits may differ: update")
    )


def _progress(status: Overview) -> str:
    here = sum(peer.here for peer in status.peers)
    state = status.ended or (f"round {status.round} of {status.rounds}" if status.started else "not begun")
    return f"{here} of {len(status.peers)} peers are present, {state}"


class _NoJournal:
    def append(self, entry: Entry, /) -> None:
        del entry

    def __iter__(self) -> Iterator[Entry]:
        return iter(())


def examine_task(
    federation: FederationFile,
    own: str | MakeTask | None,
    floor: Floor,
    peer: int,
    folder: Path,
    *,
    spill_above: int = SPILL_ABOVE,
) -> Iterator[CheckResult]:
    """Check this peer's learning problem, the disk space it needs, and the first plan against the floor.

    Args:
        own: import path or factory of its task; None: the one that the configuration describes.
        floor: what this peer insists on.
        peer: its number.
        folder: where it would write.
        spill_above: bytes; longer vectors lie in files.
    """
    try:
        task = task_for(own, federation.config, peer)
        yield CheckResult("task", True, f"{task.spec.n:,} parameters, {task.samples(peer):,} samples of this peer")
        recipe = compose(federation.config, task.spec, [task.samples(peer)] * federation.config.members).recipe
    except ErisError as error:
        yield CheckResult.of("task", error)
        return
    in_files = disk_need(
        recipe, above=spill_above, members=federation.config.members, in_blocks=isinstance(task, BlockTask)
    )
    remembered = sum(vector.nbytes for vector in task.memory(peer).values())
    kept = (GENERATIONS + 1) * (state_bytes(recipe) + remembered) + 4 * recipe.spec.n
    yield from examine_disk(folder, needed=sum(in_files.values()) + kept)
    try:
        plan = first_plan(federation, recipe)
        floor.check(plan, recipe, peer)
        share = largest_share(plan, recipe, peer)
        yield CheckResult("floor", True, f"{plan.shards} shards, the largest share another sees is {share:.1%}")
    except ErisError as error:
        yield CheckResult.of("floor", error)


def first_plan(federation: FederationFile, recipe: Recipe) -> RoundPlan:
    """Return the plan of round 0 with every peer present; others' weights and organisations are not known yet."""
    chosen = federation.settings.aggregators
    roster = [RosterEntry(number, name, 1.0) for number, name in enumerate(federation.peers)]
    able = tuple(entry.peer for entry in roster if not chosen or entry.name in chosen)
    run = f"{federation.config.methods[0]}-{federation.config.digest[:16]}"
    rules = federation.rules(run, able[: recipe.policy.shards])
    return Coordinator(recipe, rules, roster, _NoJournal()).plan(now=0.0)
