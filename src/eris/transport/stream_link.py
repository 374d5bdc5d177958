"""Frames over any stream of bytes: the common part of TLS, plain and in-memory links.

A `Stream` moves bytes and knows nothing of frames; `StreamLink` knows nothing of sockets.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Protocol, Self, cast

from eris.errors import InputError, Reason, Refused
from eris.transport.identity import PeerIdentity
from eris.transport.kernel_count import KernelCount
from eris.transport.link import Bytes, LinkClosed, LinkError, LinkLimits, LinkTimeout, LinkTraffic
from eris.transport.patience import Patience

__all__ = ["Stream", "StreamLink"]

_SCRATCH = 64 * 1024
# AES-GCM keys are good for 2^24.5 full records (RFC 8446, 5.5), and Python's ssl cannot renew them in a connection.
_WORN = 2**24 * 16 * 1024


class Stream(Protocol):
    """Bytes in order, both ways."""

    @property
    def wire_sent(self) -> int:
        """Bytes that went out, everything the stream adds included."""
        ...

    @property
    def wire_received(self) -> int:
        """Bytes that came in."""
        ...

    @property
    def kernel(self) -> KernelCount | None:
        """The kernel's count of both; None where it is not involved."""
        ...

    def write(self, data: memoryview, patience: Patience) -> None:
        """Take all of `data`; some may be held back until `flush`."""
        ...

    def flush(self, patience: Patience) -> None:
        """Send what was held back."""
        ...

    def read_into(self, view: memoryview, patience: Patience) -> int:
        """Read at least one byte into `view`; 0 means that the other side said goodbye."""
        ...

    def fileno(self) -> int:
        """The descriptor to wait on for bytes."""
        ...

    def read_now(self, view: memoryview) -> int | None:
        """Read into `view` what is there, without waiting; None if there is nothing, 0 for a goodbye."""
        ...

    def write_now(self, data: memoryview) -> bool:
        """Take all of `data` and send what goes without waiting; False if `flush` must send the rest."""
        ...

    def finish(self) -> None:
        """Say goodbye if that is possible without waiting."""
        ...

    def wake(self) -> None:
        """End the wait of another thread in this stream."""
        ...

    def shut(self) -> None:
        """Release what the stream holds."""
        ...


class StreamLink:
    """A link over any stream, whose other end is known to be `peer`."""

    def __init__(self, stream: Stream, peer: PeerIdentity, limits: LinkLimits) -> None:
        self._stream, self._peer, self._limits, self._label = stream, peer, limits, str(peer)
        self._turn = threading.Lock()
        self._closed = self._broken = False
        self._frames_sent = self._frames_received = self._sent = self._received = 0
        self._ahead = bytearray()  # arrived but not asked for yet
        self._corked: bytearray | None = None  # held back until `uncork`

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._peer}{', closed' if self._closed else ''})"

    @property
    def peer(self) -> PeerIdentity:
        """Who is at the other end."""
        return self._peer

    @property
    def closed(self) -> bool:
        """Whether this side has closed it."""
        return self._closed

    @property
    def limits(self) -> LinkLimits:
        """The sizes and times that this end enforces."""
        return self._limits

    @property
    def traffic(self) -> LinkTraffic:
        """Byte and frame counts up to now."""
        stream = self._stream
        return LinkTraffic(
            self._frames_sent, self._frames_received, self._sent, self._received, stream.wire_sent, stream.wire_received
        )

    @property
    def kernel(self) -> KernelCount | None:
        """Bytes sent and received by the kernel's own count; None in memory."""
        return self._stream.kernel

    @property
    def worn(self) -> bool:
        """Whether its keys have encrypted so much that a new link should replace it between two rounds."""
        return max(self._stream.wire_sent, self._stream.wire_received) > _WORN

    def send(self, header: bytes, *buffers: Bytes, deadline: float | None = None, more: bool = False) -> None:
        """Send one frame, its buffers one after another; waits while the other side does not read.

        With `more`, another frame follows at once, and the end of this one may be held back until then.
        """
        views = [_flat(buffer) for buffer in buffers]
        length = sum(view.nbytes for view in views)
        self._check_frame(header, length)
        if self._corked is not None:
            self._require_open()
            for view in (memoryview(header), *views):
                self._corked += view
        else:
            with _Step(self):
                patience = self._patience(deadline)
                for view in (memoryview(header), *views):
                    self._stream.write(view, patience)
                if not more:
                    self._stream.flush(patience)
        self._sent += len(header) + length
        self._frames_sent += 1

    def fileno(self) -> int:
        """The descriptor to wait on; -1 once there is none."""
        return self._stream.fileno()

    def pull(self, most: int) -> int:
        """Read what has arrived, without waiting, until about `most` bytes are buffered; return how many are.

        The next receives take from them.
        """
        ahead, before = self._ahead, len(self._ahead)
        if before >= most:
            return before
        scratch = _SCRATCHES.view
        with _Step(self):
            while len(ahead) < most:
                count = self._stream.read_now(scratch)
                if not count:
                    if count == 0 and len(ahead) == before:
                        raise LinkClosed("the other side closed the link", clean=not before, peer=self._peer)
                    break
                ahead += scratch[:count]
        return len(ahead)

    @property
    def buffered(self) -> int:
        """Bytes that `pull` has read and nobody has received yet."""
        return len(self._ahead)

    def peek(self, start: int, stop: int) -> bytes:
        """Return a stretch of the buffered bytes without consuming it."""
        return bytes(self._ahead[start:stop])

    def cork(self) -> None:
        """Hold back everything sent from now on, together with what is held back already."""
        if self._corked is None:
            self._corked = bytearray()

    def uncork(self) -> bool:
        """Send what was held back as far as possible without waiting; False if `flush` must send the rest."""
        kept, self._corked = self._corked, None
        if not kept:
            return True
        with _Step(self):
            return self._stream.write_now(memoryview(kept))

    def flush(self, *, deadline: float | None = None) -> None:
        """Send the rest of what was held back."""
        with _Step(self):
            self._stream.flush(self._patience(deadline))

    def receive_header(self, *, deadline: float | None = None) -> bytes:
        """Return the next frame's header; its first byte may take until the deadline (by default, the idle time)."""
        if len(self._ahead) >= self._limits.header_size:  # buffered already
            self._received += self._limits.header_size
            self._frames_received += 1
            return self._take_ahead(self._limits.header_size)
        header = bytearray(self._limits.header_size)
        view = memoryview(header)
        with _Step(self):
            first = self._await_frame(view, deadline)
            if first < len(header):
                self._fill(view[first:], self._patience(deadline))
            self._received += len(header)
            self._frames_received += 1
        return bytes(header)

    def receive_into(self, view: memoryview, *, deadline: float | None = None) -> None:
        """Fill `view` with the next bytes of the payload, which may be read in several parts."""
        view = _flat(view)
        self._check_payload(view.nbytes)
        if view.nbytes and view.readonly:
            raise InputError("cannot receive into a read-only buffer", fix="give a writable array or bytearray")
        if 0 < view.nbytes <= len(self._ahead):  # buffered already
            self._received += view.nbytes
            view[:] = self._take_ahead(view.nbytes)
            return
        with _Step(self):
            self._fill(view, self._patience(deadline))
            self._received += view.nbytes

    def discard(self, length: int, *, deadline: float | None = None) -> None:
        """Skip the next `length` bytes of an unwanted payload, so that the link can go on."""
        self._check_payload(length)
        scratch = memoryview(bytearray(min(length, _SCRATCH)))
        with _Step(self):
            patience = self._patience(deadline)
            for start in range(0, length, _SCRATCH):
                self._fill(scratch[: length - start], patience)
            self._received += length

    def close(self) -> None:
        """Say goodbye and end; if another thread is using the link, its wait ends too."""
        already, self._closed = self._closed, True
        if already:
            return
        if not self._turn.acquire(blocking=False):
            self._stream.wake()  # the thread inside a step releases the stream on its way out
            return
        try:
            if not self._broken:
                self._stream.finish()
            self._stream.shut()
        finally:
            self._turn.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _begin_step(self) -> None:
        if not self._turn.acquire(blocking=False):
            self._require_open()  # another thread may be closing it
            raise InputError("two threads use one link at once", fix="give each link to one thread", peer=self._peer)
        try:
            self._require_open()
        except LinkClosed:
            self._end_step(None)
            raise

    def _end_step(self, error: BaseException | None) -> None:
        closed = self._closed
        if error is not None:
            self._broken |= not (isinstance(error, LinkTimeout) and error.between_frames)
        self._turn.release()
        if self._closed:
            self._stream.shut()
        if closed and isinstance(error, LinkError):
            raise LinkClosed("this side closed the link", clean=False, peer=self._peer) from error

    def _require_open(self) -> None:
        if self._closed or self._broken:
            what = "this side closed the link" if self._closed else "the link broke earlier"
            raise LinkClosed(what, clean=False, fix="make a new link", peer=self._peer)

    def _await_frame(self, view: memoryview, deadline: float | None) -> int:
        idle = self._limits.idle if deadline is None else math.inf
        try:
            count = self._read_into(view, Patience(idle, deadline, peer=self._label))
        except LinkTimeout as timeout:
            timeout.between_frames = True
            raise
        if not count:
            raise LinkClosed("the other side closed the link", clean=True, peer=self._peer)
        return count

    def _fill(self, view: memoryview, patience: Patience) -> None:
        while view.nbytes:
            count = self._read_into(view, patience)
            if not count:
                raise LinkClosed("the other side closed the link within a frame", clean=False, peer=self._peer)
            view = view[count:]

    def _read_into(self, view: memoryview, patience: Patience) -> int:
        if not self._ahead:
            return self._stream.read_into(view, patience)
        count = min(len(self._ahead), view.nbytes)
        view[:count] = self._ahead[:count]
        del self._ahead[:count]
        return count

    def _take_ahead(self, count: int) -> bytes:
        self._require_open()
        taken = bytes(memoryview(self._ahead)[:count])
        del self._ahead[:count]
        return taken

    def _patience(self, deadline: float | None) -> Patience:
        return Patience(self._limits.idle, deadline, peer=self._label)

    def _check_frame(self, header: bytes, length: int) -> None:
        if len(header) != self._limits.header_size:
            raise InputError(f"the header has {len(header)} bytes, but the link's have {self._limits.header_size}")
        if length > self._limits.max_payload:
            raise InputError(
                f"the payload has {length} bytes, but the link takes at most {self._limits.max_payload}",
                peer=self._peer,
            )

    def _check_payload(self, length: int) -> None:
        if not 0 <= length <= self._limits.max_payload:
            what = f"the payload has {length} bytes, but the link takes at most {self._limits.max_payload}"
            raise Refused(Reason.WRONG_SIZE, what, peer=self._peer)


class _Step:
    """One use of a link, by one thread at a time; an error inside it breaks the link.

    A new one is made for each use: kept by its link it would be a reference cycle, and what a broken link holds would
    wait for the garbage collector.
    """

    def __init__(self, link: StreamLink) -> None:
        self._link = link

    def __enter__(self) -> None:
        self._link._begin_step()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._link._end_step(error)


class _Scratch(threading.local):
    """A receive buffer per thread; not per link, of which there may be thousands."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_SCRATCH))


_SCRATCHES = _Scratch()


def _flat(buffer: Bytes) -> memoryview:
    view = memoryview(cast(Any, buffer))  # numpy arrays are buffers; Python 3.11 has no type for that
    if not view.nbytes:
        return memoryview(b"")
    if not view.c_contiguous:
        raise InputError("a buffer is not contiguous", fix="pass numpy.ascontiguousarray(...)")
    return view.cast("B")
