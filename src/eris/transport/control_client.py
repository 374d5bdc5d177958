"""A peer's end of the control plane: calls with deadlines, and errors that say what is wrong."""

from __future__ import annotations

import json
import secrets
import threading
import time
from dataclasses import replace
from typing import Any, Self, TypeVar

from eris.errors import ErisError, Reason, Refused
from eris.protocol.journal import STOP_PURPOSE, StopClaim
from eris.protocol.messages import Wanted
from eris.transport.calls import (
    CALLS,
    ControlTraffic,
    FetchRequest,
    JoinAnswer,
    JoinRequest,
    LeaveRequest,
    NewsAnswer,
    NewsRequest,
    Overview,
    Posted,
    ReportRequest,
    StatusRequest,
    StopRequest,
)
from eris.transport.control import (
    COORDINATOR,
    HEALTH,
    LONGEST_WAIT,
    MESSAGE_LIMIT,
    SERVICE,
    load_grpc,
)
from eris.transport.credentials import CERTIFICATE, KEY, ROOT, Credentials
from eris.transport.departures import sign_leave
from eris.transport.identity import Refusal
from eris.transport.link import LinkClosed, LinkError, LinkRefused, LinkTimeout
from eris.transport.names import full_name
from eris.transport.probe import probe
from eris.transport.route import Proxy, address_text
from eris.transport.socket_stream import Address
from eris.wire.schema import decode, encode
from eris.wire.version import require_version

__all__ = ["ControlClient"]

T = TypeVar("T")
_CALL = 10.0  # seconds
_SLACK = 5.0  # seconds an answer may be late after the server stopped waiting


class ControlClient:
    """Calls a coordinator. Threads may share one client, as calls can run at once.

    An answer may take the `seconds` given with a call; 0: the client's own patience.
    """

    def __init__(
        self,
        credentials: Credentials,
        address: Address,
        *,
        name: str = COORDINATOR,
        proxy: Proxy | None = None,
        patience: float = 0.0,
    ) -> None:
        """Connect on the first call.

        Args:
            address: where the coordinator listens.
            name: the name that the coordinator's certificate must carry.
            proxy: the HTTP proxy to go through, if any.
            patience: seconds that an answer may take, if that is more than the usual ten.
        """
        self._patience = max(_CALL, patience)
        self._credentials, self._address, self._name = credentials, address, name
        self._chosen = proxy
        self._proxy = proxy if proxy is not None and proxy.is_for(address[0]) else None
        self._grpc = load_grpc()
        self._lock = threading.Lock()
        self._channel: Any = None
        self._edition = 0  # of the credentials the channel was made with
        self._retired: list[tuple[float, Any]] = []
        self._board, self._heard = "", -1
        self._traffic = ControlTraffic()

    @property
    def name(self) -> str:
        """The name that the called coordinator's certificate must carry."""
        return self._name

    @property
    def address(self) -> Address:
        """Where the called coordinator is."""
        return self._address

    def turn_to(self, name: str, address: Address) -> None:
        """Call another coordinator from now on; calls under way to the last one may still be answered."""
        with self._lock:
            self._name, self._address = name, address
            self._proxy = self._chosen if self._chosen is not None and self._chosen.is_for(address[0]) else None
            if self._channel is not None:
                self._retire(time.monotonic())
            self._board, self._heard = "", -1

    @property
    def traffic(self) -> ControlTraffic:
        """Documents in and out up to now."""
        with self._lock:
            return replace(self._traffic)

    @property
    def board(self) -> str:
        """The board that news was last read from; a different one means that the coordinator was restarted."""
        return self._board

    def join(self, request: JoinRequest, *, seconds: float = 0.0) -> JoinAnswer:
        """Ask to be taken into the run; the answer names the board that carries its news."""
        answer: JoinAnswer = self._call("Join", request, seconds)
        self._board = self._board or answer.board  # a later change is noticed when asking for news
        return answer

    def report(self, request: ReportRequest, *, seconds: float = 0.0) -> Wanted:
        """Send what this peer signed or holds; return what else the coordinator wants."""
        wanted: Wanted = self._call("Report", request, seconds)
        return wanted

    def fetch(self, request: FetchRequest, answer: type[T], *, seconds: float = 0.0) -> T:
        """Ask for addresses, a roster, missed rounds or the like; `answer` is the kind of answer that must come."""
        found = self._call("Fetch", request, seconds)
        if not isinstance(found, answer):
            raise Refused(Reason.MALFORMED, f"the coordinator answered with a {type(found).__name__}")
        return found

    def status(self, *, seconds: float = 0.0) -> Overview:
        """Ask who is there and how far the run has got."""
        overview: Overview = self._call("Status", StatusRequest(), seconds)
        return overview

    def leave(self, *, for_good: bool = False, seconds: float = 0.0) -> None:
        """Leave the run; a leave for good is signed."""
        self._call("Leave", LeaveRequest(sign_leave(self._credentials) if for_good else None), seconds)

    def stop(self, *, seconds: float = 0.0) -> None:
        """Ask the coordinator to end the run, signed for this run and its current epoch."""
        now = self.status(seconds=seconds)
        claim = StopClaim(now.run, now.epoch, secrets.token_hex(32))
        signature = self._credentials.sign(STOP_PURPOSE, encode(claim)).hex()
        self._call("Stop", StopRequest(claim, signature), seconds)

    def news(self, seconds: float) -> list[Posted]:
        """Return the bulletins since the last call, waiting up to `seconds` for them."""
        board, heard, news, more = self._board, self._heard, list[Posted](), True
        while more:  # pages count only once all are here: a plan on the first may be over by the last
            request = NewsRequest(board, heard, 0.0 if news else seconds)
            answer: NewsAnswer = self._call("Next", request, seconds + max(_SLACK, self._patience - _SLACK))
            if answer.board != board:
                board, heard = answer.board, -1  # sequence numbers restart
            heard = answer.posted[-1].sequence if answer.posted else heard
            news += answer.posted
            more = bool(answer.posted) and answer.more
        self._board, self._heard = board, heard
        return news

    def healthy(self, *, seconds: float = 0.0) -> bool:
        """Return whether the coordinator says that it can serve."""
        return self._send(HEALTH, b"", seconds) == b"\x08\x01"

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            for channel in (self._channel, *(old for _, old in self._retired)):
                if channel is not None:
                    channel.close()
            self._channel, self._retired = None, []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _call(self, method: str, request: Any, seconds: float) -> Any:
        return decode(CALLS[method][1], self._send(f"/{SERVICE}/{method}", encode(request), seconds))

    def _send(self, path: str, data: bytes, seconds: float) -> bytes:
        try:
            answer = bytes(self._open().unary_unary(path)(data, timeout=seconds or self._patience))
        except self._grpc.RpcError as error:
            raise self._explained(error, path) from error
        with self._lock:
            self._traffic.calls += 1
            self._traffic.sent += len(data)
            self._traffic.received += len(answer)
        return answer

    def _open(self) -> Any:
        with self._lock:
            self._credentials.refresh()  # unless somebody else has, since this channel was made
            if self._edition != self._credentials.edition and self._channel is not None:
                self._retire(time.monotonic())
            if self._channel is None:
                self._edition = self._credentials.edition
                self._channel = self._new_channel()
            return self._channel

    def _retire(self, now: float) -> None:
        """Make room for a channel with new certificates; the old one stays until calls under way must have ended."""
        self._retired.append((now, self._channel))
        self._channel = None
        for since, channel in list(self._retired):
            if since < now - LONGEST_WAIT - _SLACK:
                channel.close()
                self._retired.remove((since, channel))

    def _new_channel(self) -> Any:
        key, certificate, root = (self._credentials.read(file) for file in (KEY, CERTIFICATE, ROOT))
        options = [
            # The coordinator is identified by its name under the federation's CA, wherever it runs.
            ("grpc.ssl_target_name_override", full_name(self._name, self._credentials.federation)),
            ("grpc.max_receive_message_length", MESSAGE_LIMIT),
            ("grpc.max_send_message_length", MESSAGE_LIMIT),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            ("grpc.enable_http_proxy", int(self._proxy is not None)),
        ]
        if self._proxy is not None:
            options.append(("grpc.http_proxy", self._proxy.url))
        place = address_text(self._address)
        return self._grpc.secure_channel(place, self._grpc.ssl_channel_credentials(root, key, certificate), options)

    def _explained(self, error: Any, path: str) -> ErisError:
        code, where = self._grpc.StatusCode, {"call": path.rpartition("/")[2], "coordinator": self._name}
        if error.code() is code.DEADLINE_EXCEEDED:
            return self._unreachable(1.0) or LinkTimeout("deadline", "the coordinator did not answer in time", **where)
        if error.code() is code.UNAVAILABLE:
            return self._unreachable(3.0) or LinkClosed("the coordinator is not available", clean=False, **where)
        reason, what, fix = _details(error.details())
        if error.code() is code.UNAUTHENTICATED and reason in Refusal._value2member_map_:
            return LinkRefused(Refusal(reason), by_us=False, **where)
        if error.code() in (code.FAILED_PRECONDITION, code.INVALID_ARGUMENT):
            if reason == Reason.MALFORMED and "canonical JSON" in what:  # all that version 1 could say about our bytes
                require_version(1, "coordinator")
            named = Reason(reason) if reason in Reason._value2member_map_ else Reason.MALFORMED
            return Refused(named, what.removeprefix(f"refused ({reason}): "), fix=fix, **where)
        return LinkClosed(f"the coordinator failed ({error.code().name})", clean=False, fix="see its log", **where)

    def _unreachable(self, seconds: float) -> LinkError | None:
        # gRPC reports every failure below it as "unavailable"; taking the same steps by hand tells which one fails.
        try:
            probe(self._address, self._credentials, expected=self._name, seconds=seconds, proxy=self._proxy)
        except LinkError as error:
            return error
        return None


def _details(text: str) -> tuple[str, str, str]:
    try:
        said = json.loads(text)
        return str(said["reason"]), str(said["what"]), str(said["fix"])
    except (ValueError, KeyError, TypeError):
        return "", text, ""
