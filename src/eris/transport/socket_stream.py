"""Bytes over a TCP socket, with bounded waits instead of blocking for ever."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable

from eris.transport.kernel_count import KernelCount, kernel_count
from eris.transport.link import LinkClosed, LinkTimeout
from eris.transport.names import is_loopback
from eris.transport.patience import Patience

__all__ = ["Address", "SocketStream", "Way", "connect"]

Address = tuple[str, int]

_SHORT = 0.05  # up to this many seconds a wait is set exactly; of longer ones half at first
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class SocketStream:
    """A connected socket as a stream, in plain text: whatever leaves the machine goes through `TlsStream`."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._wait = 0.0  # seconds the kernel currently lets us wait for bytes
        self._room = select.poll()
        self._room.register(connection, select.POLLOUT)
        self.wire_sent = self.wire_received = 0
        self._late = b""  # what `write_now` could not send
        self._last_count: KernelCount | None = None
        _tune(connection)

    @property
    def remote(self) -> str:
        """The address at the other end, for logs."""
        try:
            host, port = self._socket.getpeername()[:2]
        except OSError:
            return "(gone)"
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def loopback(self) -> bool:
        """Whether both ends are on this machine."""
        return _both_loopback(self._socket)

    @property
    def kernel(self) -> KernelCount | None:
        """The kernel's byte count, still available after the socket is closed."""
        return kernel_count(self._socket) or self._last_count

    def fileno(self) -> int:
        """The descriptor of the socket; -1 if it is closed."""
        return self._socket.fileno()

    def write(self, data: memoryview, patience: Patience) -> None:
        """Send all of `data`."""
        self.flush(patience)
        self._send(data, patience)

    def _send(self, data: memoryview, patience: Patience) -> None:
        while data.nbytes:
            seconds = patience.left()
            try:
                count = self._socket.send(data, socket.MSG_DONTWAIT)
            except OSError as error:
                _require_timeout(error)
                self._room.poll(seconds * 1e3)
                continue
            self.wire_sent += count
            patience.moved(count)
            data = data[count:]

    def write_now(self, data: memoryview) -> bool:
        """Send what the kernel takes at once; False if `flush` must send the rest."""
        if self._late:
            self._late += bytes(data)
            return False
        try:
            count = self._socket.send(data, socket.MSG_DONTWAIT)
        except OSError as error:
            _require_timeout(error)
            count = 0
        self.wire_sent += count
        self._late = bytes(data[count:])
        return not self._late

    def flush(self, patience: Patience) -> None:
        """Send what the kernel did not take at once."""
        if self._late:
            late, self._late = self._late, b""
            self._send(memoryview(late), patience)

    def read_now(self, view: memoryview) -> int | None:
        """Receive what is there; None if there is nothing, 0 if the other side has closed."""
        try:
            count = self._socket.recv_into(view, 0, socket.MSG_DONTWAIT)
        except OSError as error:
            _require_timeout(error)
            return None
        self.wire_received += count
        return count

    def read_into(self, view: memoryview, patience: Patience) -> int:
        """Receive at least one byte; 0 if the other side has closed."""
        while True:
            self._limit(patience.left())
            try:
                count = self._socket.recv_into(view)
            except OSError as error:
                _require_timeout(error)
                continue
            self.wire_received += count
            patience.moved(count)
            return count

    def _limit(self, seconds: float) -> None:
        """Set the kernel's receive timeout, rounded down so that it seldom changes.

        A Python timeout would cost a poll before every call, and another turn of the interpreter's lock.
        """
        if not self._wait <= seconds <= 4 * self._wait:
            self._wait = max(seconds / 2, min(seconds, _SHORT))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(self._wait))

    def finish(self) -> None:
        """Announce that no more bytes will come."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def wake(self) -> None:
        """End the wait of another thread in this stream."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def shut(self) -> None:
        """Close the socket."""
        self._last_count = self.kernel
        self._socket.close()


Way = Callable[[float], SocketStream]  # to one place, within so many seconds: directly or by others (route.py)


def connect(address: Address, seconds: float) -> SocketStream:
    """Connect to the first address of a host that answers, IPv6 or IPv4."""
    deadline = time.monotonic() + seconds
    candidates = _resolve(address)
    for number, (*kind, _, place) in enumerate(candidates):
        try:
            # A host that is dead at its first address must leave time for the second.
            return _connect_within((deadline - time.monotonic()) / (len(candidates) - number), kind, place)
        except OSError as error:  # includes running out of descriptors, and families that this machine lacks
            failure = error
    where = f"{address[0]}:{address[1]}"
    if isinstance(failure, TimeoutError):
        raise LinkTimeout("connect", f"no answer within {seconds:g} s", address=where) from failure
    fix = "check that something listens there and that address, port and firewall are right (`eris doctor`)"
    raise LinkClosed(f"cannot connect: {failure.strerror}", clean=False, fix=fix, address=where) from failure


def _resolve(address: Address) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    try:
        return list(socket.getaddrinfo(*address, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError, OverflowError) as error:  # the last two: not a possible host or port
        fix, why = "check the host in the federation's file", getattr(error, "strerror", None) or error
        raise LinkClosed(f"cannot find host {address[0]!r}: {why}", clean=False, fix=fix) from error


def _connect_within(seconds: float, kind: list[int], place: tuple[object, ...]) -> SocketStream:
    if seconds <= 0:
        raise TimeoutError
    connection = socket.socket(*kind)
    try:
        connection.settimeout(seconds)
        connection.connect(place)
        return SocketStream(connection)
    except OSError:
        connection.close()
        raise


def _require_timeout(error: OSError) -> None:
    # Our own wait ran out: the caller may go on. ETIMEDOUT from the kernel (a dead peer) is final.
    if isinstance(error, BlockingIOError):
        return
    raise LinkClosed(f"the connection broke: {error.strerror or error}", clean=False) from error


def _timeval(seconds: float) -> bytes:
    whole = int(seconds)
    return struct.pack("@ll", whole, max(1, int((seconds - whole) * 1e6)))  # zero would mean for ever


def _tune(connection: socket.socket) -> None:
    connection.settimeout(None)
    # Buffer sizes are left to the kernel: setting them turns off its own tuning, and 1 or 2 MiB gained nothing.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # firewalls forget links that idle between rounds
    for option, seconds in _KEEPALIVE.items():
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
    if _both_loopback(connection):
        _prefer_cubic(connection)


def _prefer_cubic(connection: socket.socket) -> None:
    # bbr paces even traffic that never leaves the machine; cubic was 1.2 to 2.5 times as fast there. Real networks keep
    # their default.
    if hasattr(socket, "TCP_CONGESTION"):
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")


def _both_loopback(connection: socket.socket) -> bool:
    try:
        return is_loopback(connection.getpeername()[0]) and is_loopback(connection.getsockname()[0])
    except OSError:
        return False
