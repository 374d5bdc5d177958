"""The coordinator's end of the control plane: a gRPC server with mutual TLS that identifies callers by certificate."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import Any, Self, TypeVar
from urllib.parse import unquote

from eris.errors import ConfigError, ErisError, Reason, Refused
from eris.transport.board import Board
from eris.transport.calls import CALLS, ControlTraffic, NewsAnswer, NewsRequest, Posted
from eris.transport.control import (
    HEALTH,
    LONGEST_WAIT,
    MESSAGE_LIMIT,
    SERVICE,
    ControlService,
    load_grpc,
)
from eris.transport.credentials import CERTIFICATE, KEY, ROOT, Credentials
from eris.transport.identity import PeerIdentity
from eris.transport.socket_stream import Address
from eris.wire.schema import LONGEST_DOCUMENT, decode, encode

__all__ = ["ControlServer", "a_page"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"  # HealthCheckResponse{status} as protobuf writes it
_WAITING = 4  # concurrent calls for news per caller: one, and some that it hung up on
_PAGE = LONGEST_DOCUMENT // 2  # bytes of news in one answer
_AROUND = 16  # bytes around an entry: headers and numbers
_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    ("grpc.so_reuseport", 0),  # two coordinators on one port would each hear half of the calls
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # At the start of a run everybody calls at once. A call that nobody has taken up for 30 s would be cancelled,
    # although its caller still waits.
    ("grpc.server_max_unrequested_time_in_server", 600),
)

Handler = Callable[[bytes, Any], bytes]
Call = Callable[[PeerIdentity, Any], Any]


class ControlServer:
    """Serves a `ControlService` and its `board`; a context manager that ends its threads."""

    def __init__(
        self,
        credentials: Credentials,
        address: Address,
        service: ControlService,
        *,
        board: Board | None = None,
        capacity: int = 512,
        require_allowed: Callable[[PeerIdentity, str], None] | None = None,
    ) -> None:
        """Listen for calls.

        Args:
            address: an empty host is every address of this machine, port 0 any free one.
            service: answers the calls, except those for news.
            board: where calls for news are answered from; None: a new one.
            capacity: how many calls may be under way at a time.
            require_allowed: refuses callers whose certificate is good but who may not make the call of this name.
        """
        self._credentials, self._service, self._require_allowed = credentials, service, require_allowed
        self._grpc = load_grpc()
        self.board = board or Board()
        self._last_news: tuple[tuple[str, list[int]], bytes] = ("", []), b""
        self._traffic, self._counting = ControlTraffic(), threading.Lock()
        # A call for news holds its thread while it waits, so there must be one for every peer and some to spare.
        self._waiting, self._calling = _Places(_WAITING), _Places(max(_WAITING, capacity // 8))
        self._threads = ThreadPoolExecutor(capacity, thread_name_prefix="eris-control")
        pending = 4 * capacity  # beyond 1,000, calls would be cancelled at random before anybody looks at them
        limits = (
            ("grpc.server.max_pending_requests", pending),
            ("grpc.server.max_pending_requests_hard_limit", pending),
        )
        options = (*_OPTIONS, *limits)
        self._server = self._grpc.server(self._threads, options=options, maximum_concurrent_rpcs=capacity)
        self._server.add_generic_rpc_handlers((_Routes(self._grpc, self._routes()),))
        self._address = address[0], self._listen(address)
        self._server.start()

    @property
    def address(self) -> Address:
        """Where it listens, with the actual port."""
        return self._address

    @property
    def traffic(self) -> ControlTraffic:
        """Documents in and out up to now."""
        with self._counting:
            return replace(self._traffic)

    def close(self, grace: float = 1.0) -> None:
        """Answer the callers that wait, then end."""
        self.board.close()
        self._server.stop(grace).wait()
        self._threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _listen(self, address: Address) -> int:
        host = address[0] or "[::]"
        place = f"[{host}]:{address[1]}" if ":" in host and not host.startswith("[") else f"{host}:{address[1]}"
        try:
            return int(self._server.add_secure_port(place, self._server_credentials()))
        except RuntimeError as error:
            self._threads.shutdown()
            fix = "choose another port, or an address of this machine"
            raise ConfigError(f"cannot listen on {place}", fix=fix) from error

    def _server_credentials(self) -> Any:
        # Called at every connection, so that renewed files are used without a restart.
        self._edition = self._credentials.edition
        first = self._certificates()
        return self._grpc.dynamic_ssl_server_credentials(first, self._renewed, require_client_authentication=True)

    def _renewed(self) -> Any:
        self._credentials.refresh()  # unless somebody else has, since
        if self._edition == self._credentials.edition:
            return None
        self._edition = self._credentials.edition
        return self._certificates()

    def _certificates(self) -> Any:
        key, certificate, root = (self._credentials.read(file) for file in (KEY, CERTIFICATE, ROOT))
        return self._grpc.ssl_server_certificate_configuration([(key, certificate)], root)

    def _routes(self) -> dict[str, Handler]:
        routes: dict[str, Handler] = {HEALTH: self._health}
        for method, (request, _) in CALLS.items():
            watched = method == "Next"
            call: Call = self._next if watched else getattr(self._service, method.lower())
            routes[f"/{SERVICE}/{method}"] = self._handler(method, request, call, watched=watched)
        return routes

    def _next(self, caller: PeerIdentity, request: NewsRequest) -> bytes:
        del caller
        wait = min(request.wait, LONGEST_WAIT)
        return self._spelled(*self.board.read(request.board, request.after, seconds=wait))

    def _spelled(self, board: str, news: list[Posted]) -> bytes:
        """Encode an answer to a call for news; most callers get the same bytes as the one before."""
        key, (known, answer) = (board, [posted.sequence for posted in news]), self._last_news
        if key != known:
            page = a_page(news, lambda posted: len(posted.bulletin))
            answer = encode(NewsAnswer(board, page, more=len(page) < len(news)))
            self._last_news = key, answer
        return answer

    def _health(self, data: bytes, context: Any) -> bytes:
        del data
        self._caller(context)
        return _SERVING if self._service.healthy() else _NOT_SERVING

    def _handler(self, method: str, kind: Any, call: Call, *, watched: bool = False) -> Handler:
        places = self._waiting if watched else self._calling

        def handle(data: bytes, context: Any) -> bytes:
            caller = self._caller(context)
            with places.taken_by(caller.name) as free:
                if not free:  # no caller may occupy all threads
                    context.abort(self._grpc.StatusCode.RESOURCE_EXHAUSTED, _details("busy"))
                try:
                    if self._require_allowed is not None:
                        self._require_allowed(caller, method)
                except Refused as refusal:
                    self._abort(context, caller, refusal)
                return self._answer(kind, call, caller, data, context, watched=watched)

        return handle

    def _answer(
        self, kind: Any, call: Call, caller: PeerIdentity, data: bytes, context: Any, *, watched: bool
    ) -> bytes:
        answered = threading.Event()
        if watched:
            self._watch(caller, context, answered)
        try:
            said = call(caller, decode(kind, data))
            answer = said if isinstance(said, bytes) else encode(said)
        except Exception as error:  # noqa: BLE001 - a caller hears what it may hear, the log the rest
            self._abort(context, caller, error)
        answered.set()
        self._count(len(data), len(answer))
        return answer

    def _watch(self, caller: PeerIdentity, context: Any, answered: threading.Event) -> None:
        """Tell the service that a caller waits for news, and whether it was `answered` when its call ended."""

        def ended() -> None:
            if answered.is_set():
                self._service.heard(caller, waits=False)
            else:  # its connection broke
                self._service.lost(caller)

        self._service.heard(caller, waits=True)
        if not context.add_callback(ended):  # it hung up before we looked, so the callback would never run
            self._service.lost(caller)

    def _caller(self, context: Any) -> PeerIdentity:
        certificate = context.auth_context()["x509_pem_cert"][0]
        caller = self._credentials.identify(certificate)
        self._credentials.refresh()
        if refusal := self._credentials.refusal(caller):
            _LOG.warning("call from %s (%s): refused (%s)", caller, context.peer(), refusal.value)
            context.abort(self._grpc.StatusCode.UNAUTHENTICATED, _details(refusal.value))
        return replace(caller, address=_host(context.peer()))

    def _abort(self, context: Any, caller: PeerIdentity, error: Exception) -> None:
        code = self._grpc.StatusCode
        if isinstance(error, Refused):
            _LOG.warning("call from %s: %s", caller, error)
            # Version 1 knows no reason for a wrong version, but shows the text of an invalid argument.
            versions = error.reason is Reason.WRONG_VERSION
            status = code.INVALID_ARGUMENT if versions else code.FAILED_PRECONDITION
            context.abort(status, _details(error.reason.value, error.what, error.fix))
        if isinstance(error, ErisError):
            _LOG.warning("call from %s cannot be answered: %s", caller, error)
            context.abort(code.INVALID_ARGUMENT, _details("malformed", str(error)))
        _LOG.error("a call from %s failed", caller, exc_info=error)
        context.abort(code.INTERNAL, _details("internal"))

    def _count(self, received: int, sent: int) -> None:
        with self._counting:
            self._traffic.calls += 1
            self._traffic.received += received
            self._traffic.sent += sent


class _Places:
    """Counts each caller's calls under way; at most `most` of them may run at once."""

    def __init__(self, most: int) -> None:
        self._most, self._taken, self._lock = most, Counter[str](), threading.Lock()

    @contextmanager
    def taken_by(self, caller: str) -> Iterator[bool]:
        """Take a place for as long as the call lasts; False if this caller has none left."""
        with self._lock:
            self._taken[caller] += 1
            free = self._taken[caller] <= self._most
        try:
            yield free
        finally:
            with self._lock:
                self._taken[caller] -= 1


class _Routes:
    """Finds the handler of a call by its method name."""

    def __init__(self, grpc: Any, routes: dict[str, Handler]) -> None:
        self._handlers = {path: grpc.unary_unary_rpc_method_handler(call) for path, call in routes.items()}

    def service(self, details: Any) -> Any:
        return self._handlers.get(details.method)


def a_page(entries: Sequence[T], length: Callable[[T], int]) -> tuple[T, ...]:
    """Return the first entries, as many as fit into a document; asking again returns the next ones."""
    lengths = accumulate(length(entry) + _AROUND for entry in entries)
    return tuple([entry for entry, so_far in zip(entries, lengths, strict=True) if so_far <= _PAGE] or entries[:1])


def _host(peer: str) -> str:
    """Return the address in gRPC's name for the other end of a connection; empty if there is none.

    >>> _host("ipv4:10.0.0.7:51234"), _host("ipv6:%5B::ffff:10.0.0.7%5D:51234"), _host("unix:/a")
    ('10.0.0.7', '::ffff:10.0.0.7', '')
    """
    family, _, place = unquote(peer).partition(":")
    return place.rpartition(":")[0].strip("[]") if family in ("ipv4", "ipv6") else ""


def _details(word: str, what: str = "", fix: str = "") -> str:
    return json.dumps({"fix": fix, "reason": word, "what": what}, separators=(",", ":"))  # as version 1 reads it
