"""Two ends of a link in one process, for tests and simulation.

>>> left, right = memory_pair(LinkLimits(header_size=4, max_payload=100), "alice", "bob")
>>> left.send(b"head", b"payload")
>>> right.receive_header(), right.peer.name
(b'head', 'alice')
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque

from eris.transport.identity import PeerIdentity
from eris.transport.kernel_count import KernelCount
from eris.transport.link import LinkClosed, LinkLimits
from eris.transport.patience import Patience
from eris.transport.stream_link import StreamLink

__all__ = ["memory_pair"]

CAPACITY = 1 << 20  # about what a pair of socket buffers holds: a slow reader must slow the writer down here too
_PIECE = 1 << 18


class _Pipe:
    """Bytes in one direction, at most `capacity` of them under way."""

    def __init__(self, capacity: int) -> None:
        self._pieces: deque[memoryview] = deque()
        self._space, self._ended, self._cut = capacity, False, False
        self._changed = threading.Condition()

    def write(self, data: memoryview, patience: Patience) -> None:
        while data.nbytes:
            with self._changed:
                while not self._space and not self._cut:
                    self._changed.wait(patience.left())
                if self._cut or self._ended:
                    raise LinkClosed("the other side has left", clean=False)
                count = min(data.nbytes, self._space, _PIECE)
                self._pieces.append(memoryview(bytes(data[:count])))
                self._space -= count
                self._changed.notify_all()
            data = data[count:]
            patience.moved(count)

    def read_into(self, view: memoryview, patience: Patience) -> int:
        with self._changed:
            while not self._pieces and not self._ended and not self._cut:
                self._changed.wait(patience.left())
            if not self._pieces:
                return self._end_of_stream()
            piece = self._pieces.popleft()
            count = min(piece.nbytes, view.nbytes)
            view[:count] = piece[:count]
            if count < piece.nbytes:
                self._pieces.appendleft(piece[count:])
            self._space += count
            self._changed.notify_all()
        patience.moved(count)
        return count

    @property
    def holds(self) -> bool:
        """Whether a read would return at once."""
        with self._changed:
            return bool(self._pieces) or self._ended or self._cut

    def end(self, *, cut: bool) -> None:
        with self._changed:
            self._ended, self._cut = self._ended or not cut, self._cut or cut
            self._changed.notify_all()

    def _end_of_stream(self) -> int:
        if self._ended:
            return 0
        raise LinkClosed("the other side left without a goodbye", clean=False)


class _MemoryStream:
    def __init__(self, outgoing: _Pipe, incoming: _Pipe) -> None:
        self._outgoing, self._incoming = outgoing, incoming
        self.wire_sent = self.wire_received = 0
        self.kernel: KernelCount | None = None

    def write(self, data: memoryview, patience: Patience) -> None:
        self._outgoing.write(data, patience)
        self.wire_sent += data.nbytes

    def flush(self, patience: Patience) -> None:
        del patience

    def read_into(self, view: memoryview, patience: Patience) -> int:
        count = self._incoming.read_into(view, patience)
        self.wire_received += count
        return count

    def fileno(self) -> int:
        return -1  # nothing to wait on: a memory link has a thread at each end

    def write_now(self, data: memoryview) -> bool:
        self.write(data, Patience())
        return True

    def read_now(self, view: memoryview) -> int | None:
        return self.read_into(view, Patience()) if self._incoming.holds else None

    def finish(self) -> None:
        self._outgoing.end(cut=False)

    def wake(self) -> None:
        self._outgoing.end(cut=True)
        self._incoming.end(cut=True)

    shut = wake


def memory_pair(
    limits: LinkLimits, dialler: str = "member", acceptor: str = "aggregator", *, capacity: int = CAPACITY
) -> tuple[StreamLink, StreamLink]:
    """Return the two ends of a link, the dialler's first, then the acceptor's.

    Args:
        dialler: its name.
        acceptor: its name.
        capacity: bytes that may be under way in each direction before the writer waits.
    """
    there, back = _Pipe(capacity), _Pipe(capacity)
    return (
        StreamLink(_MemoryStream(there, back), _identity(acceptor), limits),
        StreamLink(_MemoryStream(back, there), _identity(dialler), limits),
    )


def _identity(name: str) -> PeerIdentity:
    return PeerIdentity(name, "memory", hashlib.sha256(name.encode()).hexdigest())
