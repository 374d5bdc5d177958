"""How a process that lives for days keeps its memory."""

from __future__ import annotations

import ctypes

__all__ = ["keep_few_arenas"]

_M_ARENA_MAX = -8  # of glibc's malloc.h
_ARENAS = 2


def keep_few_arenas() -> bool:
    """Let threads share two heaps of the C library (True if it has them): call it before any thread is started.

    By default every new thread may get a heap of its own, and heaps are not given back. A peer makes a thread whenever
    a link comes back, so its resident memory would creep up for a thousand rounds though nothing is kept. Python's
    threads allocate one at a time anyway: more heaps gain them nothing.
    """
    library = ctypes.CDLL(None)
    return hasattr(library, "mallopt") and bool(library.mallopt(_M_ARENA_MAX, _ARENAS))
