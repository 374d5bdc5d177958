"""What each caller of the coordinator is entitled to: which calls, which roster entry, and being dialled where."""

from __future__ import annotations

import ipaddress
import logging
import socket
from dataclasses import replace

from eris.coordinate.attendance import can_be_reached
from eris.errors import ErisError, Reason, Refused
from eris.peer.federation_file import FederationFile
from eris.protocol.journal import STOP_PURPOSE, Stopped
from eris.protocol.roster import ROSTER_PURPOSE, RosterEntry
from eris.transport.calls import PLACE_PURPOSE, DialAnswer, DialRequest, JoinRequest, StopRequest
from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity
from eris.transport.route import address_text
from eris.transport.signatures import verify_message
from eris.wire.schema import encode

__all__ = ["Callers"]

_LOG = logging.getLogger(__name__)
_OPERATORS_CALLS = frozenset({"Status", "Stop"})
_OWN_CALLS = frozenset({"Fetch", "Status", "Stop"})  # of whoever runs the coordinator: `eris doctor`, `stop`, `status`


class Callers:
    """Holds every caller to what the federation agreed on and to what it signed itself."""

    def __init__(self, federation: FederationFile, credentials: Credentials) -> None:
        self._federation, self._credentials = federation, credentials

    def require_allowed(self, caller: PeerIdentity, call: str) -> None:
        """Refuse a caller that may not make this call, however good its certificate is."""
        listed, operators = caller.name in self._federation.peers, self._federation.settings.operators
        if call == "Stop" and operators:  # a file that names operators leaves ending the run to them
            listed = False
        if listed or (caller.name in operators and call in _OPERATORS_CALLS):
            return
        if caller.name in self._federation.coordinators and call in _OWN_CALLS:
            return
        who = "an operator of this federation" if call == "Stop" and operators else "listed in FEDERATION.toml"
        raise Refused(
            Reason.NOT_A_MEMBER,
            f"{caller.name} may not call {call}: it is not {who}",
            fix="add it to federation.peers or federation.operators, in every peer's file",
        )

    def number(self, caller: PeerIdentity) -> int:
        """Return the number of a listed peer; refuse anybody else."""
        try:
            return self._federation.number(caller.name)
        except ErisError:
            raise Refused(
                Reason.NOT_A_MEMBER, f"{caller.name} is not listed", fix="add it to FEDERATION.toml"
            ) from None

    def entry(self, number: int, caller: PeerIdentity, request: JoinRequest) -> RosterEntry:
        """Return the entry that peer `number` asks for; refuse anything not agreed, or not signed by that peer."""
        uniform, most = self._federation.config.server.weights == "uniform", self._federation.settings.max_weight
        if request.weight > most or (uniform and request.weight != 1):
            raise Refused(
                Reason.MALFORMED,
                f"{caller.name} asks for weight {request.weight:g}, but at most {1 if uniform else most:g} was agreed",
                fix="raise federation.max_weight, in every peer's file, or count fewer samples",
            )
        agreed = self._federation.organisations
        if agreed and request.organisation != agreed.get(number, ""):
            raise Refused(
                Reason.MALFORMED,
                f"{caller.name} claims {request.organisation or 'none'}, but federation.organisations says otherwise",
                fix="leave --organisation out, or change every peer's file",
            )
        entry = RosterEntry(
            peer=number,
            name=caller.name,
            weight=request.weight,
            fingerprint=caller.fingerprint,
            organisation=request.organisation,
            counter=request.counter,
            signature=request.signature,
        )
        claim, signature = encode(entry.claim(self._federation.digest)), bytes.fromhex(request.signature)
        if not verify_message(caller.certificate, ROSTER_PURPOSE, claim, signature):
            raise Refused(Reason.BAD_SIGNATURE, f"{caller.name} did not sign its own entry", peer=caller.name)
        place, signature = encode(request.place(caller.name)), bytes.fromhex(request.place_signature)
        somewhere = request.address is not None or bool(request.relays)
        if somewhere and not verify_message(caller.certificate, PLACE_PURPOSE, place, signature):
            raise Refused(
                Reason.BAD_SIGNATURE, f"{caller.name}'s address is not signed by {caller.name}", peer=caller.name
            )
        return replace(entry, can_aggregate=self._may_aggregate(caller.name, request))

    def dial(self, caller: PeerIdentity, request: DialRequest) -> DialAnswer:
        """Return whether a peer can be dialled where it says it listens; nobody else's address is dialled."""
        address = request.address
        if address is not None and not _is_at(address[0], caller.address):
            raise Refused(
                Reason.NOT_A_MEMBER,
                f"{caller.name} calls from {caller.address}: the coordinator dials no other address for it",
                fix="name this machine's own address with --advertise",
            )
        return DialAnswer(can_be_reached(caller.name, address, request.relays, self._credentials))

    def stopped(self, caller: PeerIdentity, request: StopRequest) -> Stopped:
        """Return the record of a request to end the run; refuse one that its caller did not sign."""
        claim, signature = request.claim, bytes.fromhex(request.signature)
        if not verify_message(caller.certificate, STOP_PURPOSE, encode(claim), signature):
            raise Refused(Reason.BAD_SIGNATURE, f"{caller.name} did not sign the request to end the run")
        return Stopped(claim, caller.name, request.signature, caller.certificate)

    def _may_aggregate(self, name: str, request: JoinRequest) -> bool:
        """Whether a peer may be given shards: it is meant to have some, and others can reach it."""
        chosen = self._federation.settings.aggregators
        places = [place for place in (request.address, *request.relays) if place is not None]
        if not places or (chosen and name not in chosen):
            return False
        if not can_be_reached(name, request.address, request.relays, self._credentials):
            where = " or by relay ".join(map(address_text, places))
            _LOG.warning("%s cannot be dialled at %s: it is given no shard", name, where)
            return False
        return True


def _is_at(host: str, address: str) -> bool:
    """Whether a host name or address resolves to this address."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    return _plain(address) in {_plain(one) for one in found}


def _plain(address: str) -> str:
    """Return an address in its own family's form; an IPv4 one may come mapped into IPv6."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    return str(getattr(known, "ipv4_mapped", None) or known)
