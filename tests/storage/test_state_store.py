"""Members' states: nothing counts before it is committed, and what two checkpoints speak of stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eris.errors import CheckpointError
from eris.storage.state_store import StateStore

MEMBERS = 3


def state(value):
    return np.full(4, value, np.float32)


def test_a_write_counts_from_commit_on(tmp_path):
    store = StateStore(tmp_path / "states", MEMBERS)
    assert store.read(0) is None
    store.write(0, state(1))
    assert store.read(0) is None
    store.commit()
    assert store.read(0).tolist() == [1, 1, 1, 1]
    store.write(0, state(2))
    store.write(0, state(3))
    store.discard()
    assert store.read(0).tolist() == [1, 1, 1, 1]


def test_nothing_is_written_for_members_without_state(tmp_path):
    store = StateStore(tmp_path / "states", MEMBERS)
    store.write(0, np.empty(0, np.float32))
    store.commit()
    assert store.read(0) is None
    assert not (tmp_path / "states").exists()


def test_a_missing_file_is_named(tmp_path):
    store = StateStore(tmp_path, MEMBERS)
    store.write(1, state(1))
    store.commit()
    slots = store.save()
    store.load(slots)
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(CheckpointError, match="member=1"):
        store.read(1)


class Crashes(RuleBasedStateMachine):
    """Rounds, checkpoints, and going back to either of the last two, at any moment."""

    @initialize()
    def begin(self):
        import tempfile
        from pathlib import Path

        self.folder = Path(tempfile.mkdtemp())
        self.store = self.opened()
        self.truth = [None] * MEMBERS
        self.written = {}
        self.saved = [(self.store.save(), list(self.truth))] * 2
        self.count = 0

    def opened(self):
        return StateStore(self.folder, MEMBERS, budget=2 * 16)  # room for two states in memory

    @rule(member=st.integers(0, MEMBERS - 1))
    def write(self, member):
        self.count += 1
        self.store.write(member, state(self.count))
        self.written[member] = self.count

    @rule()
    def commit(self):
        self.store.commit()
        for member, value in self.written.items():
            self.truth[member] = value
        self.written = {}

    @rule()
    def discard(self):
        self.store.discard()
        self.written = {}

    @precondition(lambda self: not self.written)
    @rule()
    def checkpoint(self):
        self.saved = [self.saved[1], (self.store.save(), list(self.truth))]
        self.store.saved()

    @rule(generation=st.integers(0, 1))
    def killed_and_gone_on_with(self, generation):
        slots, truth = self.saved[generation]
        self.store = self.opened()
        self.store.load(slots)
        self.truth, self.written = list(truth), {}
        self.saved = [(slots, list(truth))] * 2

    @invariant()
    def committed_states_are_there(self):
        for member in range(MEMBERS):
            found = self.store.read(member)
            assert (None if found is None else int(found[0])) == self.truth[member]


TestCrashes = Crashes.TestCase
