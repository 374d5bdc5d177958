"""What members remember between rounds (references, kept momentum), on disk: memory does not grow with their number.

Nothing advances before the round's verdict, and nothing is lost when a process is killed. So a new state never takes
the place of one that is still needed: each member has four slots, of which at most three are in use (the current state,
and those that the last two checkpoints speak of). What a round writes counts from `commit` on.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.errors import CheckpointError
from eris.local.spec import Vector

__all__ = ["NONE", "Slots", "StateStore"]

NONE = -1  # no state yet: the member starts with the initial one

Slots = NDArray[np.int8]


class StateStore:
    """One file for each member and slot, in one folder."""

    def __init__(self, folder: Path, members: int) -> None:
        self._folder = folder
        self._current = np.full(members, NONE, np.int8)
        self._saved: list[Slots] = [self._current.copy(), self._current.copy()]
        self._written: dict[int, int] = {}

    def read(self, member: int) -> Vector | None:
        """Return a member's state as the last committed round left it; None before its first round."""
        slot = int(self._current[member])
        if slot == NONE:
            return None
        try:
            return np.fromfile(self._path(member, slot), np.float32)
        except FileNotFoundError:
            raise CheckpointError("a member's state is missing", fix="begin a new run", member=member) from None

    def write(self, member: int, state: Vector) -> None:
        """Put down a new state; it does not count yet. A second one in a round takes the place of the first."""
        if not state.size:
            return
        slot = self._written.setdefault(member, self._free(member))
        path = self._path(member, slot)
        try:
            _write(path, state)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, state)

    def commit(self) -> None:
        """Make what was written since the last commit the current states."""
        for member, slot in self._written.items():
            self._current[member] = slot
        self._written.clear()

    def discard(self) -> None:
        """Forget what was written since the last commit."""
        self._written.clear()

    def save(self) -> Slots:
        """Return which slots are current, for a checkpoint; call `saved` when that is safe."""
        return self._current.copy()

    def saved(self) -> None:
        """Keep what the new checkpoint and the one before it speak of; older states may be written over."""
        self._saved = [self._saved[1], self._current.copy()]

    def load(self, slots: Slots) -> None:
        """Go back to what a checkpoint says."""
        self._current = slots.astype(np.int8)
        self._saved = [self._current.copy(), self._current.copy()]
        self._written.clear()

    def clear(self) -> None:
        """Remove all states."""
        for path in self._folder.glob("*.state"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def _free(self, member: int) -> int:
        used = {int(slots[member]) for slots in (self._current, *self._saved)}
        return next(slot for slot in range(4) if slot not in used)

    def _path(self, member: int, slot: int) -> Path:
        return self._folder / f"{member:06d}-{slot}.state"


def _write(path: Path, state: Vector) -> None:
    """Write over a file without emptying it first: its pages are used again instead of being thrown away."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        rest = state.view(np.uint8).data
        while rest.nbytes:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)
