"""Ways to reach a peer: directly, through an HTTP proxy, or by a relay at which it waits.

Whichever way is taken, the result is a `SocketStream` whose other end is the peer; TLS and everything above it run end
to end. `RelayDoor` is the counterpart on the dialled side: it waits at the relay and hands over callers' streams, as a
listening socket would.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from eris.errors import ConfigError, ErisError
from eris.transport.link import LinkClosed
from eris.transport.patience import Patience
from eris.transport.relay import HELLO, MAGIC, NONCE_BYTES, PURPOSE, TICKET_BYTES, VERSION, Answer, Request, Verb
from eris.transport.socket_stream import Address, SocketStream, Way, connect
from eris.transport.tls_link import Plaintext, Security

if TYPE_CHECKING:
    from eris.transport.credentials import Credentials

__all__ = ["Proxy", "RelayDoor", "address_text", "at_relay", "by_relay", "connect_by", "ways_to"]

_LOG = logging.getLogger(__name__)
_LONGEST_ANSWER = 8192  # bytes of a proxy's headers
_SILENCE = 45.0  # seconds without a ping after which the relay counts as gone
_AGAIN = (0.5, 1.0, 2.0, 5.0)  # seconds before a lost relay is dialled again; the last one repeats


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy for outgoing connections (CONNECT), as `http://[user:password@]host:port`."""

    host: str
    port: int
    credentials: str = ""  # user:password
    spared: str = ""  # hosts that are dialled directly, as `no_proxy` spells them

    @classmethod
    def parse(cls, url: str) -> Proxy:
        """Parse a proxy's URL."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        with contextlib.suppress(ValueError):
            if parts.scheme == "http" and parts.hostname and parts.port:
                user = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
                return cls(parts.hostname, parts.port, user)
        raise ConfigError("the proxy is not an http address", fix="write http://[user:password@]host:port")

    @classmethod
    def chosen(cls, url: str | None) -> Proxy | None:
        """Return the proxy given by an option, else by `https_proxy`; "none" means none. `no_proxy` applies to both.

        >>> Proxy.chosen("none") is None
        True
        """
        known = getproxies_environment()
        here = "" if url else "localhost,127.0.0.1,::1,"  # a variable for all programs is not meant for this machine
        url = url or known.get("https")
        return replace(cls.parse(url), spared=here + known.get("no", "")) if url and url != "none" else None

    @property
    def url(self) -> str:
        """The address with user and password, as gRPC takes it."""
        user, _, password = self.credentials.partition(":")
        who = f"{quote(user, safe='')}:{quote(password, safe='')}@" if self.credentials else ""
        return f"http://{who}{address_text((self.host, self.port))}"

    def is_for(self, host: str) -> bool:
        """Whether connections to a host go through this proxy."""
        return not proxy_bypass_environment(host, {"no": self.spared})

    def __str__(self) -> str:
        return address_text((self.host, self.port))

    def __repr__(self) -> str:
        return f"Proxy({self})"


def address_text(address: Address) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connect_by(address: Address, seconds: float, proxy: Proxy | None = None) -> SocketStream:
    """Connect to an address within so many seconds, through a proxy if one is given."""
    if proxy is None or not proxy.is_for(address[0]):
        return connect(address, seconds)
    deadline = time.monotonic() + seconds
    wire = connect((proxy.host, proxy.port), seconds)
    try:
        _ask_proxy(wire, proxy, address, Patience(deadline=deadline, kind="connect", peer=address_text(address)))
    except BaseException:
        wire.shut()
        raise
    return wire


def by_relay(
    relay: Address, name: str, credentials: Credentials, seconds: float, proxy: Proxy | None = None
) -> SocketStream:
    """Return a stream to the peer `name`, which waits at the relay.

    Args:
        relay: the relay's address.
        credentials: whose key proves to the relay who dials.
        seconds: how long to wait for the relay and for the peer.
        proxy: the HTTP proxy to go through, if any.
    """
    return at_relay(relay, Verb.DIAL, name.encode(), credentials, seconds, proxy)


def ways_to(
    address: Address | None, relays: Sequence[Address], name: str, security: Security, proxy: Proxy | None = None
) -> dict[str, Way]:
    """Return every way to a peer by its readable name, in the order in which to try them.

    Args:
        address: where the peer can be dialled directly, if anywhere.
        relays: where it waits.
        name: the peer's name.
        security: our credentials; no relay carries plain text.
        proxy: the HTTP proxy to go through, if any.
    """
    ways: dict[str, Way] = {}
    if address is not None:
        proxied = proxy is not None and proxy.is_for(address[0])
        ways[f"proxy {proxy}" if proxied else "direct"] = partial(connect_by, address, proxy=proxy)
    if not isinstance(security, Plaintext):  # a relay carries nobody who cannot prove a name
        for relay in relays:
            ways[f"relay {address_text(relay)}"] = partial(by_relay, relay, name, security, proxy=proxy)
    return ways


def at_relay(
    relay: Address, verb: Verb, argument: bytes, credentials: Credentials, seconds: float, proxy: Proxy | None = None
) -> SocketStream:
    """Send a relay a request and return the stream once it agrees.

    Args:
        relay: the relay's address.
        verb: what is wanted of it.
        argument: what the verb takes: nothing, a peer's name, or a ticket.
        credentials: whose key proves to the relay who asks.
        seconds: how long all of it may take.
        proxy: the HTTP proxy to go through, if any.
    """
    deadline = time.monotonic() + seconds
    wire = connect_by(relay, seconds, proxy)
    patience = Patience(deadline=deadline, kind="connect", peer=f"relay {address_text(relay)}")
    try:
        magic, version, nonce = HELLO.unpack(_read(wire, HELLO.size, patience))
        if magic != MAGIC or version != VERSION or len(nonce) != NONCE_BYTES:
            raise LinkClosed(
                f"{address_text(relay)} is not a relay of this version", clean=False, fix="see `eris relay --help`"
            )
        identity = credentials.identity
        request = Request(verb, identity.name, argument, identity.certificate)
        signature = credentials.sign(PURPOSE, request.signed_bytes(nonce))
        signed = Request(verb, identity.name, argument, identity.certificate, signature)
        wire.write(memoryview(signed.encode()), patience)
        _require_welcome(_read(wire, 1, patience)[0], relay, verb, argument)
    except BaseException:
        wire.shut()
        raise
    return wire


class RelayDoor:
    """Waits at a relay and hands the stream of every caller to `take`, until `close`.

    Args:
        credentials: whose key proves to the relay who waits.
        take: receives each stream.
        connect: seconds to reach the relay.
        proxy: the HTTP proxy to go through, if any.
    """

    def __init__(
        self,
        relay: Address,
        credentials: Credentials,
        take: Callable[[SocketStream], None],
        *,
        connect: float,
        proxy: Proxy | None = None,
    ) -> None:
        self.relay, self._credentials, self._take = relay, credentials, take
        self._connect, self._proxy = connect, proxy
        self._closed, self.open = threading.Event(), threading.Event()
        self.failure: ErisError | OSError | None = None  # why it is not open
        self._wire: SocketStream | None = None
        self._thread = threading.Thread(target=self._run, name=f"eris-relay-door {address_text(relay)}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop waiting at the relay."""
        self._closed.set()
        if (wire := self._wire) is not None:
            wire.wake()
        self._thread.join()

    def _run(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                self._wait_there()
                failures = 0
            except (ErisError, OSError) as error:
                if self._closed.is_set():
                    return
                self.failure = error
                _LOG.log(
                    logging.WARNING if failures == 0 else logging.INFO, "relay %s: %s", address_text(self.relay), error
                )
            finally:
                self.open.clear()
            self._closed.wait(_AGAIN[min(failures, len(_AGAIN) - 1)])
            failures += 1

    def _wait_there(self) -> None:
        wire = at_relay(self.relay, Verb.WAIT, b"", self._credentials, self._connect, self._proxy)
        self._wire = wire
        try:
            self.open.set()
            while not self._closed.is_set():
                patience = Patience(deadline=time.monotonic() + _SILENCE, kind="idle", peer="relay")
                if _read(wire, 1, patience) == b"\0":
                    wire.write(memoryview(b"\0"), patience)
                    continue
                ticket = _read(wire, TICKET_BYTES, patience)
                threading.Thread(target=self._meet, args=(ticket,), name="eris-relay-meet", daemon=True).start()
        finally:
            self._wire = None
            wire.shut()

    def _meet(self, ticket: bytes) -> None:
        try:
            self._take(at_relay(self.relay, Verb.MEET, ticket, self._credentials, self._connect, self._proxy))
        except (ErisError, OSError) as error:
            _LOG.info("relay %s: no connection: %s", address_text(self.relay), error)


def _require_welcome(answer: int, relay: Address, verb: Verb, argument: bytes) -> None:
    if answer == Answer.WELCOME:
        return
    who = argument.decode("ascii", "replace") if verb is Verb.DIAL else "this peer"
    where, name = address_text(relay), Answer(answer).name.lower().replace("_", "-") if answer < len(Answer) else "?"
    reasons = {
        Answer.NOT_LISTED: ("does not carry this peer", "list it where the relay runs (`eris relay --help`)"),
        Answer.NOT_HERE: (f"says that {who} is not waiting there", f"start {who} with `eris join --relay {where}`"),
        Answer.TOO_LATE: (f"called {who}, but it did not come", "look at that peer's log; the link is tried again"),
        Answer.BUSY: ("is at its limit", "use a second relay"),
        Answer.WRONG_VERSION: ("speaks another version", "use one release of eris everywhere"),
    }
    what, fix = next((text for code, text in reasons.items() if code == answer), (f"refused ({name})", ""))
    raise LinkClosed(f"the relay {where} {what}", clean=False, fix=fix, relay=where)


def _ask_proxy(wire: SocketStream, proxy: Proxy, address: Address, patience: Patience) -> None:
    target = address_text(address)
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.credentials:
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(proxy.credentials.encode()).decode()}")
    wire.write(memoryview("\r\n".join([*lines, "", ""]).encode()), patience)
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):  # byte by byte: what follows belongs to the peer
        if len(answer) >= _LONGEST_ANSWER:
            raise LinkClosed("the proxy's answer has no end", clean=False, fix="is it an HTTP proxy?")
        answer += _read(wire, 1, patience)
    status = answer.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    if len(status) < 2 or status[1] != "200":
        said = "".join(letter for letter in " ".join(status[1:]) if letter.isprintable())[:80]
        fix = "allow CONNECT to that address and port at the proxy, or give user and password"
        raise LinkClosed(f"the proxy refused {target}: {said}", clean=False, fix=fix)


def _read(wire: SocketStream, count: int, patience: Patience) -> bytes:
    room = memoryview(bytearray(count))
    filled = 0
    while filled < count:
        got = wire.read_into(room[filled:], patience)
        if not got:
            raise LinkClosed("the other side closed", clean=False)
        filled += got
    return bytes(room)
