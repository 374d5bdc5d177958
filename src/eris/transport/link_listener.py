"""Accepts members' links, from a listening socket or from a relay, with a bounded number of handshakes under way.

Connections that stall in their handshake can neither pile up nor keep others out: when all places are taken, the oldest
one that has had its fair time is dropped for the next. Finished links wait for `accept` until the user's thread takes
them.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Self

from eris.errors import ConfigError
from eris.transport.identity import Refusal
from eris.transport.link import LinkClosed, LinkError, LinkLimits, LinkRefused, LinkTimeout
from eris.transport.names import is_loopback
from eris.transport.socket_stream import Address, SocketStream
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import Plaintext, Roster, Security, accept

__all__ = ["LinkListener"]

_LOG = logging.getLogger(__name__)
_BACKLOG = 256
_LOOK = 1.0  # seconds between two checks whether the listener was closed
_FAIR_SHARE = 0.1  # of the time for a handshake: an honest one takes milliseconds, on a loaded machine some hundreds


class LinkListener:
    """Accepts links; a context manager that ends its threads and sockets."""

    def __init__(
        self, security: Security, address: Address | None = ("", 0), *, limits: LinkLimits,
        roster: Callable[[], Roster | None] = lambda: None, half_open: int = 64, waiting: int = 1024,
        begun: threading.Event | None = None,
    ) -> None:  # fmt: skip
        """Listen on `address` ("" is every address, IPv6 and IPv4; port 0 is any free one).

        Args:
            security: our credentials, or `Plaintext`, which is for loopback only.
            address: None opens no port: a relay brings every stream, and `take` receives it.
            limits: sizes and times of the links.
            roster: returns the current name → fingerprint, or None if anybody of the federation is welcome.
            half_open: handshakes that may be under way at once.
            waiting: finished links that may wait for `accept`.
            begun: until it is set nobody would be welcome: diallers wait in the kernel's queue, and neither side spends
                a handshake on them.
        """
        if isinstance(security, Plaintext) and address is not None and not is_loopback(address[0]):
            raise ConfigError(
                "plain text is not allowed over a network", fix="listen on 127.0.0.1, or use certificates"
            )
        self._security, self._limits, self._roster = security, limits, roster
        self._links: queue.Queue[StreamLink | None] = queue.Queue(waiting)
        self._begun = begun
        self._half_open = _HalfOpen(half_open, _FAIR_SHARE * limits.handshake)
        self._closed = threading.Event()
        self._socket = None if address is None else _listen(address)
        if self._socket is not None:
            self._thread = threading.Thread(target=self._run, args=(self._socket,), name="eris-listener", daemon=True)
            self._thread.start()

    @property
    def address(self) -> Address:
        """Where it listens, with the actual port."""
        if self._socket is None:
            raise ConfigError("this listener has no port of its own", fix="reach it by its relay")
        host, port = self._socket.getsockname()[:2]
        return host, port

    def accept(self, seconds: float) -> StreamLink:
        """Return the next link of a welcome peer; `LinkTimeout` if none comes in time."""
        try:
            link = self._links.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            raise LinkTimeout("connect", f"no peer connected within {seconds:g} s") from None
        if link is None:
            self._links.put(None)  # for the next thread that waits here
            raise LinkClosed("this side closed the listener", clean=True)
        return link

    def take(self, wire: SocketStream) -> None:
        """Welcome a peer whose stream did not come through this socket but by a relay."""
        if self._closed.is_set():
            wire.shut()
            return
        self._begin(wire)

    def close(self) -> None:
        """Close the listening socket, handshakes under way, and links that nobody has taken."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._socket.close()
        self._half_open.clear()
        with contextlib.suppress(queue.Empty):
            while link := self._links.get_nowait():
                link.close()
        self._links.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, listening: socket.socket) -> None:
        while not self._closed.is_set():
            if self._begun is not None and not self._begun.wait(_LOOK):
                continue
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if not self._closed.wait(0.1):  # e.g. out of file descriptors: others may close some
                    _LOG.warning("cannot accept a connection: %s", error)
                continue
            try:
                self._begin(SocketStream(connection))
            except (OSError, RuntimeError) as error:  # reset already, or no more threads: not the end of the listener
                connection.close()
                _LOG.warning("cannot take a connection: %s", error)

    def _begin(self, wire: SocketStream) -> None:
        thread = threading.Thread(target=self._welcome, args=(wire,), name=f"eris-handshake {wire.remote}", daemon=True)
        self._half_open.enter(wire, thread)
        try:
            thread.start()
        except RuntimeError:
            self._half_open.leave(wire)
            raise

    def _welcome(self, wire: SocketStream) -> None:
        remote = wire.remote
        try:
            link = accept(wire, self._security, limits=self._limits, roster=self._roster(), busy=self._links.full())
            self._offer(link)
        except LinkRefused as refused:
            _LOG.warning("link from %s: %s", remote, refused)
        except LinkError as error:
            _LOG.info("connection from %s failed: %s", remote, error)
        except Exception:  # noqa: BLE001 - one link that fails must not end the others
            wire.shut()
            _LOG.exception("connection from %s failed", remote)
        finally:
            self._half_open.leave(wire)

    def _offer(self, link: StreamLink) -> None:
        try:
            self._links.put_nowait(link)
        except queue.Full:
            link.close()
            raise LinkRefused(Refusal.BUSY, by_us=True, peer=link.peer) from None
        if self._closed.is_set():
            link.close()


class _HalfOpen:
    """The handshakes under way, oldest first, at most `places` of them."""

    def __init__(self, places: int, fair: float) -> None:
        self._places, self._fair = places, fair
        self._under_way: dict[SocketStream, tuple[float, threading.Thread]] = {}
        self._changed = threading.Condition()

    def enter(self, wire: SocketStream, thread: threading.Thread) -> None:
        """Take a place, waiting for one no longer than the oldest handshake's fair time."""
        with self._changed:
            while len(self._under_way) >= self._places:
                oldest, (since, _) = next(iter(self._under_way.items()))
                left = since + self._fair - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                else:
                    del self._under_way[oldest]
                    oldest.wake()
            self._under_way[wire] = (time.monotonic(), thread)

    def leave(self, wire: SocketStream) -> None:
        """Give the place back."""
        with self._changed:
            self._under_way.pop(wire, None)
            self._changed.notify_all()

    def clear(self) -> None:
        """End all handshakes and their threads."""
        with self._changed:
            under_way = list(self._under_way.items())
        for wire, (_, thread) in under_way:
            wire.wake()
            if thread.ident is not None:  # otherwise it is about to start, and ends at once
                thread.join()


def _listen(address: Address) -> socket.socket:
    host, port = address
    everywhere = host in ("", "::") and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=everywhere)
    except OSError as error:
        fix = "choose another port, or an address of this machine"
        raise ConfigError(f"cannot listen on {host or '*'}:{port}: {error.strerror}", fix=fix) from error
    listening.settimeout(_LOOK)
    return listening
