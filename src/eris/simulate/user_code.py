"""Run the user's own code: a failure says what the code was asked to do, and whether memory ran out.

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

# Torch has no error of its own for the processor's memory, only these words.
_IN_WORDS = ("can't allocate memory", "not enough memory", "out of memory")


@contextmanager
def user_code(doing: str, **where: int) -> Iterator[None]:
    """Run the user's code; what it raises becomes a TaskError, or a MemoryError if that was the cause."""
    try:
        yield
    except ErisError:
        raise
    except Exception as error:
        raise failure(doing, error, **where) from error


def failure(doing: str, error: BaseException, **where: int) -> TaskError | MemoryError:
    """Return what to raise in place of an error of the user's code."""
    told: TaskError | MemoryError = TaskError(f"{doing} failed with {type(error).__name__}: {error}", fix="", **where)
    if _ran_out(error):
        told = MemoryError(str(told))
    told.__cause__ = error
    return told


def _ran_out(error: BaseException | None) -> bool:
    """Return whether memory that ran out was the root cause."""
    if error is None:
        return False
    return _of_memory(error) or _ran_out(error.__cause__)


def _of_memory(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _IN_WORDS)
    )
