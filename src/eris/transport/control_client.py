"""A peer's end of the control plane: calls with deadlines, and errors that say what is wrong."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any, Self

from eris.errors import ErisError, Reason, Refused
from eris.transport.board import Bulletin
from eris.transport.control import (
    COORDINATOR,
    HEALTH,
    LONGEST_WAIT,
    MESSAGE_LIMIT,
    SERVICE,
    ControlTraffic,
    Document,
    load_grpc,
)
from eris.transport.credentials import CERTIFICATE, KEY, ROOT, Credentials
from eris.transport.identity import Refusal
from eris.transport.link import LinkClosed, LinkError, LinkRefused, LinkTimeout
from eris.transport.names import full_name
from eris.transport.probe import probe
from eris.transport.socket_stream import Address
from eris.wire.document import decode_document, encode_document

__all__ = ["ControlClient"]

_CALL = 10.0  # seconds
_SLACK = 5.0  # seconds an answer may be late after the server stopped waiting


class ControlClient:
    """Calls a coordinator. One for each thread, or shared: calls may run at once."""

    def __init__(self, credentials: Credentials, address: Address, *, name: str = COORDINATOR) -> None:
        self._credentials, self._address, self._name = credentials, address, name
        self._grpc = load_grpc()
        self._lock = threading.Lock()
        self._channel: Any = None
        self._retired: list[tuple[float, Any]] = []
        self._board, self._heard = "", -1
        self._traffic = ControlTraffic()

    @property
    def traffic(self) -> ControlTraffic:
        """Documents in and out up to now."""
        with self._lock:
            return replace(self._traffic)

    @property
    def board(self) -> str:
        """Which board news were last read from; another one means that the coordinator was started anew."""
        return self._board

    def join(self, request: Document, *, seconds: float = _CALL) -> Document:
        """Ask to be taken into the run; the answer names the board that news of it are on."""
        answer = self._call("Join", request, seconds)
        self._board = self._board or str(answer.get("board", ""))  # later ones are noticed by who asks for news
        return answer

    def report(self, request: Document, *, seconds: float = _CALL) -> Document:
        """Tell the coordinator what this peer signed or holds."""
        return self._call("Report", request, seconds)

    def fetch(self, request: Document, *, seconds: float = _CALL) -> Document:
        """Ask for a plan, a verdict or another record by its name."""
        return self._call("Fetch", request, seconds)

    def status(self, request: Document | None = None, *, seconds: float = _CALL) -> Document:
        """Ask who is there and how far the run is."""
        return self._call("Status", request or {}, seconds)

    def leave(self, request: Document, *, seconds: float = _CALL) -> Document:
        """Say goodbye to the run."""
        return self._call("Leave", request, seconds)

    def stop(self, request: Document | None = None, *, seconds: float = _CALL) -> Document:
        """Ask the coordinator to end the run."""
        return self._call("Stop", request or {}, seconds)

    def news(self, seconds: float) -> list[Bulletin]:
        """Return what the coordinator told everybody since the last call; waits up to `seconds` for it."""
        board, heard, bulletins, more = self._board, self._heard, list[Bulletin](), True
        while more:  # what was read counts once all of it is here: a plan of the first page may be over by the last one
            request = {"board": board, "after": heard, "wait": 0.0 if bulletins else seconds}
            answer = self._call("Next", request, seconds + _SLACK)
            page = [Bulletin(**entry) for entry in answer["bulletins"]]
            if answer["board"] != board:
                board, heard = answer["board"], -1  # sequences begin anew
            heard = page[-1].sequence if page else heard
            bulletins += page
            more = bool(page) and answer.get("more", False)
        self._board, self._heard = board, heard
        return bulletins

    def healthy(self, *, seconds: float = _CALL) -> bool:
        """Return whether the coordinator says it can serve."""
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

    def _call(self, method: str, request: Document, seconds: float) -> Document:
        return decode_document(self._send(f"/{SERVICE}/{method}", encode_document(request), seconds))

    def _send(self, path: str, data: bytes, seconds: float) -> bytes:
        try:
            answer = bytes(self._open().unary_unary(path)(data, timeout=seconds))
        except self._grpc.RpcError as error:
            raise self._explained(error, path) from error
        with self._lock:
            self._traffic.calls += 1
            self._traffic.sent += len(data)
            self._traffic.received += len(answer)
        return answer

    def _open(self) -> Any:
        with self._lock:
            if self._credentials.refresh() and self._channel is not None:
                self._retire(time.monotonic())
            if self._channel is None:
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
            # The coordinator is its name under the federation's CA, wherever it runs.
            ("grpc.ssl_target_name_override", full_name(self._name, self._credentials.federation)),
            ("grpc.max_receive_message_length", MESSAGE_LIMIT),
            ("grpc.max_send_message_length", MESSAGE_LIMIT),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            ("grpc.enable_http_proxy", 0),
        ]
        host, port = self._address
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
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
        if error.code() is code.FAILED_PRECONDITION and reason in Reason._value2member_map_:
            return Refused(Reason(reason), what.partition(": ")[2], fix=fix, **where)
        if error.code() is code.INVALID_ARGUMENT:
            return Refused(Reason.MALFORMED, what, **where)
        return LinkClosed(f"the coordinator failed ({error.code().name})", clean=False, fix="see its log", **where)

    def _unreachable(self, seconds: float) -> LinkError | None:
        # gRPC says "unavailable" to everything below it; the same steps by hand tell which of them fails.
        try:
            probe(self._address, self._credentials, expected=self._name, seconds=seconds)
        except LinkError as error:
            return error
        return None


def _details(text: str) -> tuple[str, str, str]:
    try:
        document = decode_document(text.encode())
        return str(document["reason"]), str(document["what"]), str(document["fix"])
    except (ErisError, KeyError):
        return "", text, ""
