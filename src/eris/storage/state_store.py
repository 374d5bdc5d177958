"""Store what members remember between rounds (references, kept momentum); memory does not grow with their number.

Nothing advances before the round's verdict: what a round writes counts only after `commit`. And nothing is lost if a
process is killed: the files that a checkpoint refers to are not overwritten while it, or the next one, may be resumed
from. So each member has four files, of which at most three are in use.

States are held in memory up to a budget and written to their files at checkpoints; beyond it they are written at once.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.atomic_file import writing
from eris.errors import CheckpointError

__all__ = ["NONE", "Slots", "StateStore"]

NONE = -1  # no file yet
BUDGET = 1 << 26  # bytes of states held in memory

Slots = NDArray[np.int8]
Vector = NDArray[np.float32]


class StateStore:
    """One state per member, in memory or in one of the member's files.

    The files are in `folder`; `budget` is how many bytes stay in memory.
    """

    def __init__(self, folder: Path, members: int, *, budget: int = BUDGET) -> None:
        self._folder, self._budget = folder, budget
        self._files: Slots = np.full(members, NONE, np.int8)  # each member's newest file
        self._saved: list[Slots] = [self._files.copy(), self._files.copy()]  # what the last two checkpoints refer to
        self._held: dict[int, Vector] = {}  # states in memory
        self._ahead: set[int] = set()  # those of them that are newer than their file
        self._written: dict[int, Vector | int] = {}  # since the last commit: a state, or the file it is in
        self._spare: list[Vector] = []  # memory of outdated states, for the next ones
        self._bytes = 0
        self._stamps: dict[int, int] = {}
        self._changed: set[int] = set()  # written states that were changed after a job returned them

    def stamp(self, member: int) -> int:
        """Return the number of a member's current state: 0 for none, then one more with each that a job returned."""
        return self._stamps.get(member, 0)

    def read(self, member: int) -> Vector | None:
        """Return a member's state after the last committed round (do not change it); None before its first."""
        if (held := self._held.get(member)) is not None:
            state = held.view()
            state.flags.writeable = False
            return state
        file = int(self._files[member])
        if file == NONE:
            return None
        try:
            return np.fromfile(self._path(member, file), np.float32)
        except FileNotFoundError:
            raise CheckpointError("a member's saved state is missing", fix="start a new run", member=member) from None

    def write(self, member: int, state: Vector, *, trained: bool = True) -> None:
        """Write a new state, which does not count until `commit`. A second one in a round replaces the first.

        Set `trained` to false for a state that was changed after a job returned it: its stamp then differs from the
        one that the worker expects.
        """
        if not state.size:
            return
        if not trained:
            self._changed.add(member)
        before = self._written.get(member)
        if isinstance(before, np.ndarray):
            np.copyto(before, state)
        elif before is None and self._bytes + state.nbytes <= self._budget:
            self._written[member] = self._copied(state)
            self._bytes += state.nbytes
        else:
            file = self._free(member) if before is None else before
            self._write(member, file, state)
            self._written[member] = file

    def commit(self) -> None:
        """Make what was written since the last commit the current states."""
        for member, what in self._written.items():
            self._stamps[member] = self.stamp(member) + (2 if member in self._changed else 1)
            self._drop(member)
            if isinstance(what, np.ndarray):
                self._held[member] = what
                self._ahead.add(member)
            else:
                self._files[member] = what
        self._written.clear()
        self._changed.clear()

    def discard(self) -> None:
        """Forget what was written since the last commit."""
        for what in self._written.values():
            if isinstance(what, np.ndarray):
                self._let_go(what)
        self._written.clear()
        self._changed.clear()

    def save(self) -> Slots:
        """Write all states to files and return which; call `saved` once the checkpoint that refers to them is safe.

        Call this between rounds only: an uncommitted state takes a file of its own, and there are only four.
        """
        assert not self._written
        for member in sorted(self._ahead):
            file = self._free(member)
            self._write(member, file, self._held[member])
            self._files[member] = file
        self._ahead.clear()
        return self._files.copy()

    def saved(self) -> None:
        """Keep what the new checkpoint and the one before it refer to; older states may be overwritten."""
        self._saved = [self._saved[1], self._files.copy()]

    def load(self, files: Slots) -> None:
        """Restore the states that a checkpoint refers to."""
        self._files = files.astype(np.int8)
        self._saved = [self._files.copy(), self._files.copy()]
        self._held, self._ahead = {}, set()
        self._written, self._spare = {}, []
        self._bytes = 0
        self._stamps, self._changed = dict.fromkeys(np.flatnonzero(self._files != NONE).tolist(), 1), set()

    def _drop(self, member: int) -> None:
        if (old := self._held.pop(member, None)) is not None:
            self._let_go(old)
            self._ahead.discard(member)

    def _let_go(self, state: Vector) -> None:
        self._bytes -= state.nbytes
        self._spare.append(state)

    def _copied(self, state: Vector) -> Vector:
        """Copy a state into reused memory if there is some: new memory costs more than the copy."""
        while self._spare:
            if (copy := self._spare.pop()).size == state.size:
                np.copyto(copy, state)
                return copy
        return state.copy()

    def _free(self, member: int) -> int:
        used = {int(files[member]) for files in (self._files, *self._saved)}
        return next(file for file in range(4) if file not in used)

    def _path(self, member: int, file: int) -> Path:
        return self._folder / f"{member:06d}-{file}.state"

    def _write(self, member: int, file: int, state: Vector) -> None:
        path = self._path(member, file)
        with writing(path, fix="make room there, then continue with `eris run --resume`"):
            try:
                _write_over(path, state)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                _write_over(path, state)


def _write_over(path: Path, state: Vector) -> None:
    """Overwrite a file without emptying it first, so that its pages are reused."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        rest = state.view(np.uint8).data
        while rest.nbytes:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)
