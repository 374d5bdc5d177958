"""Bytes carried over a connection by the kernel's own count, which no code of ours can get wrong."""

from __future__ import annotations

import socket
import struct
import sys

__all__ = ["KernelCount", "kernel_count"]

KernelCount = tuple[int, int]  # bytes sent (retransmissions not counted) and received

# Linux's struct tcp_info has these at fixed offsets: bytes received, bytes sent, bytes retransmitted.
_RECEIVED, _SENT, _LENGTH = 128, 200, 216


def kernel_count(connection: socket.socket) -> KernelCount | None:
    """Return the bytes a TCP connection sent and received, TCP headers excluded; None where the kernel has no count."""
    if sys.platform != "linux":
        return None
    try:
        facts = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LENGTH)
    except OSError:  # closed, or not TCP
        return None
    if len(facts) < _LENGTH:
        return None
    sent, again = struct.unpack_from("<QQ" if sys.byteorder == "little" else ">QQ", facts, _SENT)
    (received,) = struct.unpack_from("<Q" if sys.byteorder == "little" else ">Q", facts, _RECEIVED)
    return sent - again, received
