"""A relay: a small process on a machine that everybody can reach, for peers that nobody can dial.

Most sites open no port. Their peers dial out to the relay and wait there; a peer that wants to talk to one dials the
relay too, and the relay joins the two streams. TLS runs end to end between the peers *inside* the joined stream, so the
relay carries ciphertext: it sees who talks to whom, when and how much, and can refuse to carry. It cannot read, change
or invent anything.

    relay → caller   "ERLY" | version u8 | nonce, 32 bytes
    caller → relay   length u16 | verb u8 | name | argument | certificate | signature      (each after its length, u16)
    relay → caller   answer u8: 0 welcome, else why not (`Answer`)

    verb 1  wait     argument empty: stay and be called. Then relay → waiter: 0 (still there?), answered by 0, or
                     1 | ticket, 16 bytes: somebody wants you
    verb 2  dial     argument a peer's name: be joined with it
    verb 3  meet     argument a ticket: the other half of a dial

The signature is made with the certificate's key over nonce, verb and argument, so it works only once. Only peers listed
by the relay's owner are carried. (A false relay gains nothing but the power to refuse, which every relay has.)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Self

from eris.errors import ConfigError

if TYPE_CHECKING:
    from eris.transport.credentials import Credentials

__all__ = [
    "HELLO",
    "MAGIC",
    "NONCE_BYTES",
    "PURPOSE",
    "TICKET_BYTES",
    "VERSION",
    "Answer",
    "RelayLimits",
    "RelayNews",
    "RelayServer",
    "Request",
    "Verb",
]

MAGIC, VERSION = b"ERLY", 1
NONCE_BYTES, TICKET_BYTES = 32, 16
HELLO = struct.Struct(f"<4sB{NONCE_BYTES}s")
PURPOSE = "relay"  # named inside the signed bytes
PING, CALL = b"\0", b"\1"
_LENGTH = struct.Struct("<H")
_LONGEST_REQUEST = 8192
_AT_ONCE = 1 << 18  # bytes carried at a time

_LOG = logging.getLogger(__name__)


class Verb(IntEnum):
    """What a caller wants of the relay."""

    WAIT = 1
    DIAL = 2
    MEET = 3


class Answer(IntEnum):
    """The relay's answer to a request."""

    WELCOME = 0
    MALFORMED = 1
    WRONG_VERSION = 2
    NOT_LISTED = 3  # no certificate of this federation, or not on the relay's list
    NOT_HERE = 4  # the requested peer does not wait at this relay
    TOO_LATE = 5  # the requested peer was called and did not come
    BUSY = 6


@dataclass(frozen=True, slots=True)
class Request:
    """A caller's reply to the relay's hello."""

    verb: Verb
    name: str  # of the caller
    argument: bytes  # what the verb takes: nothing, a peer's name, or a ticket
    certificate: bytes = field(repr=False)  # DER
    signature: bytes = field(default=b"", repr=False)  # of `signed_bytes`

    def signed_bytes(self, nonce: bytes) -> bytes:
        """Return the bytes that are signed."""
        return nonce + bytes([self.verb]) + self.argument

    def encode(self) -> bytes:
        """Return the request as it travels."""
        parts = (self.name.encode(), self.argument, self.certificate, self.signature)
        body = bytes([self.verb]) + b"".join(_LENGTH.pack(len(part)) + part for part in parts)
        return _LENGTH.pack(len(body)) + body

    @classmethod
    def decode(cls, body: bytes) -> Request:
        """Decode a request; ValueError if it is malformed."""
        verb, rest, parts = Verb(body[0]), body[1:], []
        for _ in range(4):
            if len(rest) < _LENGTH.size:
                raise ValueError("cut short")
            (length,) = _LENGTH.unpack_from(rest)
            part, rest = rest[_LENGTH.size : _LENGTH.size + length], rest[_LENGTH.size + length :]
            if len(part) != length:
                raise ValueError("cut short")
            parts.append(part)
        if rest:
            raise ValueError("too long")
        return cls(verb, parts[0].decode("ascii"), *parts[1:])


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """How patient a relay is, and how much it carries at once."""

    request: float = 10.0  # seconds for the first words of a caller
    meet: float = 10.0  # seconds for a called peer to come
    ping: float = 15.0  # seconds between checks that a waiter is still there
    callers: int = 512  # callers whose request or whose counterpart is awaited
    streams_of_a_peer: int = 4096  # joined at a time


@dataclass(frozen=True, slots=True)
class RelayNews:
    """An event that the relay's owner may want to hear of."""

    event: str  # waits, gone, joined, parted, refused
    peer: str  # who dialled the relay, as far as proven
    other: str = ""  # whom it was joined with
    carried: int | None = None  # bytes, both ways
    why: str = ""  # it was refused


@dataclass(eq=False)
class _Caller:
    """One connection to the relay."""

    connection: socket.socket
    name: str = ""  # once it is proven
    over: asyncio.Event = field(default_factory=asyncio.Event)  # set when the stream it was joined to has ended

    async def read(self, count: int) -> bytes:
        data, loop = b"", asyncio.get_running_loop()
        while len(data) < count:
            if not (more := await loop.sock_recv(self.connection, count - len(data))):
                raise ConnectionError("the caller went away")
            data += more
        return data

    async def write(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.connection, data)

    def hang_up(self) -> None:
        """Make the task that serves this caller notice the end; only that task closes the socket."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class RelayServer:
    """Joins streams of listed peers; a context manager that ends its thread and sockets.

    Args:
        credentials: the relay's own, whose CA vouches for callers.
        listen: host and port.
        listed: names of the peers that may use this relay.
        tell: called with every event.
    """

    def __init__(
        self,
        credentials: Credentials,
        listen: tuple[str, int],
        *,
        listed: Collection[str],
        limits: RelayLimits | None = None,
        tell: Callable[[RelayNews], None] = lambda _: None,
    ) -> None:
        self._tell = tell
        self._credentials, self._listed, self._limits = credentials, frozenset(listed), limits or RelayLimits()
        host, everywhere = listen[0], listen[0] in ("", "::") and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server(listen, family=family, backlog=256, dualstack_ipv6=everywhere)
        except OSError as error:
            fix = "choose another port, or an address of this machine"
            raise ConfigError(f"cannot listen on {listen[0]}:{listen[1]}: {error.strerror}", fix=fix) from error
        self._socket.setblocking(False)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._waiting: dict[str, _Caller] = {}
        self._tickets: dict[bytes, tuple[str, asyncio.Future[_Caller]]] = {}
        self._joined: Counter[str] = Counter()
        self._half_open = 0
        self.carried = 0  # bytes, both ways
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="eris-relay", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> list[str]:
        """Names of the peers that wait here."""
        return sorted(self._waiting)

    @property
    def streams(self) -> int:
        """How many pairs of streams are joined now."""
        return sum(self._joined.values()) // 2

    def close(self) -> None:
        """End every stream and the thread."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ── the thread ───────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._end = asyncio.Event()
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        tasks: set[asyncio.Task[None]] = set()

        def begin(work: Coroutine[Any, Any, None]) -> None:
            task = asyncio.get_running_loop().create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        begin(self._accept(begin))
        await self._end.wait()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, begin: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:  # e.g. out of file descriptors: others may close some
                _LOG.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(0.1)
                continue
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            begin(self._attend(_Caller(connection)))

    async def _attend(self, caller: _Caller) -> None:
        """Serve one connection from its request to its end."""
        try:
            request = await self._admitted(caller)
            if request is not None:
                serve = {Verb.WAIT: self._wait, Verb.DIAL: self._dial, Verb.MEET: self._meet}[request.verb]
                await serve(caller, request.argument)
        except (OSError, ConnectionError, TimeoutError, ValueError) as error:
            _LOG.debug("%s: %s", caller.name or "a caller", error)
        finally:
            caller.hang_up()
            caller.connection.close()

    async def _admitted(self, caller: _Caller) -> Request | None:
        """Read a caller's request; None if it was refused and told why."""
        if self._half_open >= self._limits.callers:
            return None
        self._half_open += 1
        try:
            async with asyncio.timeout(self._limits.request):
                nonce = secrets.token_bytes(NONCE_BYTES)
                await caller.write(HELLO.pack(MAGIC, VERSION, nonce))
                (length,) = _LENGTH.unpack(await caller.read(_LENGTH.size))
                if not 0 < length <= _LONGEST_REQUEST:
                    await self._refuse(caller, Answer.MALFORMED)
                    return None
                try:
                    request = Request.decode(await caller.read(length))
                except (ValueError, IndexError):
                    await self._refuse(caller, Answer.MALFORMED)
                    return None
                self._credentials.refresh()
                if not self._vouched(request, nonce):
                    await self._refuse(caller, Answer.NOT_LISTED)
                    return None
                caller.name = request.name
                return request
        finally:
            self._half_open -= 1

    def _vouched(self, request: Request, nonce: bytes) -> bool:
        from eris.transport.signatures import verify_message  # peers that only dial need no cryptography here

        if request.name not in self._listed or not self._credentials.vouches_for(request.certificate, request.name):
            return False
        message = request.signed_bytes(nonce)
        return verify_message(request.certificate, PURPOSE, message, request.signature)

    async def _refuse(self, caller: _Caller, answer: Answer) -> None:
        self._tell(RelayNews("refused", caller.name or "somebody", why=answer.name.lower().replace("_", " ")))
        with contextlib.suppress(OSError):
            await caller.write(bytes([answer]))

    # ── the three verbs ──────────────────────────────────────────────────────────────────────────────────────────

    async def _wait(self, caller: _Caller, argument: bytes) -> None:
        del argument
        if (before := self._waiting.get(caller.name)) is not None:
            before.hang_up()  # the same peer, started again or cut off without our noticing
        self._waiting[caller.name] = caller
        self._tell(RelayNews("waits", caller.name))
        try:
            await caller.write(bytes([Answer.WELCOME]))
            while True:
                await asyncio.sleep(self._limits.ping)
                await caller.write(PING)
                async with asyncio.timeout(self._limits.ping):
                    await caller.read(len(PING))
        finally:
            if self._waiting.get(caller.name) is caller:
                del self._waiting[caller.name]
                self._tell(RelayNews("gone", caller.name))

    async def _dial(self, caller: _Caller, argument: bytes) -> None:
        wanted = argument.decode("ascii", "replace")
        waiter = self._waiting.get(wanted)
        if waiter is None:
            await self._refuse(caller, Answer.NOT_HERE)
            return
        most = self._limits.streams_of_a_peer
        if len(self._tickets) >= self._limits.callers or max(self._joined[caller.name], self._joined[wanted]) >= most:
            await self._refuse(caller, Answer.BUSY)
            return
        ticket = secrets.token_bytes(TICKET_BYTES)
        comes: asyncio.Future[_Caller] = asyncio.get_running_loop().create_future()
        self._tickets[ticket] = wanted, comes
        try:
            await waiter.write(CALL + ticket)
            async with asyncio.timeout(self._limits.meet):
                other = await comes
        except (TimeoutError, OSError):
            await self._refuse(caller, Answer.TOO_LATE)
            return
        finally:
            self._tickets.pop(ticket, None)
        await self._join(caller, other)

    async def _meet(self, caller: _Caller, ticket: bytes) -> None:
        wanted, comes = self._tickets.pop(ticket, ("", None))
        if comes is None or wanted != caller.name or comes.done():
            await self._refuse(caller, Answer.TOO_LATE)
            return
        comes.set_result(caller)
        await caller.over.wait()  # the dialler's task carries both ways

    async def _join(self, dialler: _Caller, waiter: _Caller) -> None:
        both, carried = (dialler, waiter), Counter[str]()
        self._joined.update(caller.name for caller in both)
        self._tell(RelayNews("joined", dialler.name, waiter.name))
        try:
            for caller in both:
                await caller.write(bytes([Answer.WELCOME]))
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._carry(dialler, waiter, carried))
                ways.create_task(self._carry(waiter, dialler, carried))
        except* OSError as broken:
            _LOG.debug("%s and %s: %s", dialler.name, waiter.name, broken.exceptions[0])
        finally:
            self._joined.subtract(caller.name for caller in both)
            self._tell(RelayNews("parted", dialler.name, waiter.name, carried=carried.total()))
            waiter.over.set()

    async def _carry(self, source: _Caller, target: _Caller, carried: Counter[str]) -> None:
        """Move bytes one way until the source ends; then tell the target that nothing more comes.

        `carried` counts them by the name of whoever sent them.
        """
        loop, room = asyncio.get_running_loop(), memoryview(bytearray(_AT_ONCE))
        while count := await loop.sock_recv_into(source.connection, room):
            await loop.sock_sendall(target.connection, room[:count])
            self.carried += count
            carried[source.name] += count
        with contextlib.suppress(OSError):
            target.connection.shutdown(socket.SHUT_WR)
