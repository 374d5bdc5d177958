"""Call other people's code: seeded, with one thread, one call at a time, and with its prints sent to the log."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from eris.seeds import Seed

__all__ = ["foreign_call", "in_our_words", "number_of"]

_LOCK = threading.RLock()  # the generators that are seeded belong to the whole process
_OURS = {"loss": "loss", "accuracy": "accuracy", "acc": "accuracy"}
_BEFORE = ("eval_", "eval-", "val_", "val/", "test_", "test/", "")  # what other libraries put before a figure's name


@contextlib.contextmanager
def foreign_call(seed: Seed) -> Iterator[None]:
    """Seed random, numpy and (if it is loaded) torch while somebody else's code runs.

    A member thus draws the same numbers in a simulation and in its own process. Afterwards the generators are as they
    were. Standard output is for results, so what the code prints goes to standard error.
    """
    number = number_of(seed)
    with _LOCK, contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002 - others draw from it
        random.seed(number)
        np.random.seed(number % 2**32)  # noqa: NPY002
        if (torch := sys.modules.get("torch")) is not None:
            from eris.local.torch_module import one_thread

            stack.enter_context(one_thread())
            stack.callback(torch.set_rng_state, torch.get_rng_state())
            torch.manual_seed(number)
        yield


def number_of(seed: Seed) -> int:
    """Return a seed as a number for other libraries."""
    return int.from_bytes(seed.key[:8], "little") >> 1


def in_our_words(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers and pairs (sum, count) among figures, with loss and accuracy under eris's own names.

    >>> in_our_words({"val_loss": 0.5, "eval_acc": (9, 10), "f1": 0.8, "note": "fine"})
    {'loss': 0.5, 'accuracy': (9.0, 10.0), 'f1': 0.8}
    """
    found: dict[str, Any] = {}
    for name, value in figures.items():
        with contextlib.suppress(TypeError, ValueError):
            if isinstance(value, tuple) and len(value) == 2:
                found.setdefault(_ours(name), (float(value[0]), float(value[1])))
            elif not isinstance(value, str | bytes | bool):
                found.setdefault(_ours(name), float(value))
    return found


def _ours(name: str) -> str:
    for before in _BEFORE:
        if name.startswith(before) and (known := _OURS.get(name.removeprefix(before).lower())):
            return known
    return name
