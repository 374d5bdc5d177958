"""The user's own code may fail: that is told with what it was asked for, and apart from memory that ran out.

>>> str(failure("evaluation", ZeroDivisionError("division by zero"), round=3))
'evaluation failed with ZeroDivisionError: division by zero [round=3]'
>>> type(failure("evaluation", RuntimeError("DefaultCPUAllocator: can't allocate memory"))).__name__
'MemoryError'
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from eris.errors import ErisError, TaskError

__all__ = ["failure", "user_code"]

# How torch says it: it has no error of its own for the memory of the processor.
_IN_WORDS = ("can't allocate memory", "not enough memory", "out of memory")


@contextmanager
def user_code(doing: str, **where: int) -> Iterator[None]:
    """Run what is not ours; what it raises becomes a TaskError, or a MemoryError if that was the cause."""
    try:
        yield
    except ErisError:
        raise
    except Exception as error:
        raise failure(doing, error, **where) from error


def failure(doing: str, error: BaseException, **where: int) -> TaskError | MemoryError:
    """Return what to raise in the place of an error of the user's code."""
    told: TaskError | MemoryError = TaskError(f"{doing} failed with {type(error).__name__}: {error}", fix="", **where)
    if _ran_out(error):
        told = MemoryError(str(told))
    told.__cause__ = error
    return told


def _ran_out(error: BaseException | None) -> bool:
    """Return whether memory was what was missing, in the end."""
    if error is None:
        return False
    return _of_memory(error) or _ran_out(error.__cause__)


def _of_memory(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _IN_WORDS)
    )
