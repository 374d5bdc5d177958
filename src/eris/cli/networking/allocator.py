"""Keep the memory of a long-lived process from growing."""

from __future__ import annotations

import ctypes

__all__ = ["keep_few_arenas"]

_M_ARENA_MAX = -8  # of glibc's malloc.h
_ARENAS = 2


def keep_few_arenas() -> bool:
    """Make all threads share two heaps of the C library; return whether it can. Call it before starting any thread.

    By default each new thread may get its own heap, and heaps are never given back. A peer starts a thread whenever a
    link comes back, so its resident memory would creep up for a thousand rounds although nothing is kept. Python's
    threads allocate one at a time anyway, so more heaps gain nothing.
    """
    library = ctypes.CDLL(None)
    return hasattr(library, "mallopt") and bool(library.mallopt(_M_ARENA_MAX, _ARENAS))
