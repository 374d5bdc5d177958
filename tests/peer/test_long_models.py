"""A real federation whose vectors lie in files and whose updates come in blocks ends in the model of the simulation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eris.errors import DiskError
from eris.local.spec import Vector
from eris.local.task import BlockResult, BlockTask, Task
from eris.peer.node import Node
from eris.protocol.aggregator import Aggregator
from eris.protocol.round_plan import RoundPlan
from eris.storage import mapped
from eris.storage.mapped import is_mapped
from tests.peer.town import Town, after_rounds, settings, simulated, town

DSC = ("members=4", "model.options.n=5000", "rounds=4")


class InBlocks:
    """Another task, asked for blocks."""

    def __init__(self, task: Task, *, fails_in: int = -1) -> None:
        self._task, self._fails_in, self.looked_at = task, fails_in, []
        self.spec, self.members = task.spec, task.members
        self.samples, self.memory, self.evaluate = task.samples, task.memory, task.evaluate

    def initial_blocks(self, seed: Any) -> Iterator[Vector]:
        return iter(np.array_split(self._task.initial(seed), 7))

    def train_blocks(self, member: int, model: Vector, memory: dict, *, round: int, seed: Any) -> BlockResult:
        self.looked_at.append(model)
        done = self._task.train(member, model, memory, round=round, seed=seed)
        return BlockResult(self._blocks(done.update, round), done.samples, done.steps, done.loss)

    def _blocks(self, update: Vector, round: int) -> Iterator[Vector]:
        for number, block in enumerate(np.array_split(update, 13)):
            if round == self._fails_in and number == 5:
                raise RuntimeError("the disk with the data is gone")
            yield block


def play(place: Town, nodes: list[Node]) -> set[str]:
    for node in nodes:
        place.start(node.settings.name, node.run)
    place.wait()
    return {node.model_digest() for node in nodes}


@pytest.mark.parametrize("shared", ["true", "false"])
def test_the_model_is_that_of_the_simulation(tmp_path: Path, shared: str) -> None:
    config = settings(*DSC, f"compression.shared_reference={shared}", method="eris+dsc")
    with town(tmp_path / "town", config) as place:
        tasks = {name: InBlocks(place.task()) for name in place.names}
        assert all(isinstance(task, BlockTask) for task in tasks.values())
        nodes = [place.node(name, task=tasks[name], folder=tmp_path, spill_above=0) for name in place.names]
        digests = play(place, nodes)
        for node in nodes:
            vectors = [*node.member.replica.state().values(), *node.member.private.values()]
            assert all(is_mapped(vector) for vector in vectors)
            assert all(
                np.shares_memory(seen, node.member.replica.model) for seen in tasks[node.settings.name].looked_at
            )
    assert digests == {simulated(config, tmp_path / "run")}


def test_a_peer_whose_start_differs_takes_it_from_another_one_s_files(tmp_path: Path) -> None:
    config = settings(*DSC, "rounds=2", method="eris+dsc")
    with town(tmp_path / "town", config) as place:
        tasks = [InBlocks(place.task()) for _ in place.names]
        tasks[3].initial_blocks = lambda seed: iter([np.ones(5000, np.float32)])  # type: ignore[method-assign]
        nodes = [place.node(name, task=task, spill_above=0) for name, task in zip(place.names, tasks, strict=True)]
        assert nodes[3].model_digest() != nodes[0].model_digest()
        digests = play(place, nodes)
    assert digests == {simulated(config, tmp_path / "run")}


def test_blocks_that_fail_cost_this_member_one_contribution(tmp_path: Path) -> None:
    config = settings(*DSC, method="eris+dsc")
    with town(tmp_path / "town", config, round=6.0) as place:
        tasks = [InBlocks(place.task(), fails_in=1 if number == 2 else -1) for number in range(4)]
        seen: list[Any] = []
        nodes = [
            place.node(n, task=t, listeners=after_rounds(seen.append)) for n, t in zip(place.names, tasks, strict=True)
        ]
        digests = play(place, nodes)
    assert len(digests) == 1
    without = {event.plan.round for event in seen for shard in event.verdict.shards if 2 not in shard.contributors}
    assert without == {1}


def test_a_peer_that_takes_long_to_open_a_round_is_not_taken_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, seen = Aggregator.begin, []

    def begin_slowly(self: Aggregator, plan: RoundPlan, now: float) -> None:
        if (self.peer, plan.round) == (2, 1):  # as long as to draw the mask of a long model
            time.sleep(6.0)
        begin(self, plan, now)

    monkeypatch.setattr(Aggregator, "begin", begin_slowly)
    with town(tmp_path / "town", settings(*DSC, "rounds=3", method="eris+dsc"), connect=3.0) as place:
        play(place, [place.node(name, listeners=after_rounds(seen.append)) for name in place.names])
    assert len(seen) == 12
    assert all(shard.contributors == (0, 1, 2, 3) for event in seen for shard in event.verdict.shards)


def test_a_peer_goes_on_from_a_checkpoint_that_stays_on_disk(tmp_path: Path) -> None:
    config = settings(*DSC, method="eris+dsc")
    with town(tmp_path / "town", config, checkpoint_every=1) as place:
        sessions = [place.session(name, spill_above=0) for name in place.names]
        for session in sessions:
            place.start(session.name, session.run)
        place.wait()
        digest = sessions[0].node.model_digest()
        again = place.session(place.names[0], spill_above=0)
        again._folder.open()
        assert again._folder.restore(again.node.member, again.node.training)
        assert again.node.model_digest() == digest == simulated(config, tmp_path / "run")
        before, after = sessions[0].node.member.private, again.node.member.private
        assert all(is_mapped(after[name]) and np.array_equal(after[name], before[name]) for name in before)
        after["0.reference"][0] = 1  # a copy of the checkpoint, not the checkpoint


def test_a_peer_says_what_it_needs_and_refuses_before_it_joins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(*DSC, method="eris+dsc")
    with town(tmp_path / "town", config) as place:
        monkeypatch.setattr(mapped.shutil, "disk_usage", lambda _: SimpleNamespace(free=79_999))
        place.node(place.names[0], spill_above=20_000).close()  # 20,000 bytes are not above it
        with pytest.raises(DiskError, match=r"5,000 values.* needs 0.0 GB on disk.*make room"):
            place.node(place.names[0], folder=tmp_path, spill_above=19_999)
        monkeypatch.setattr(mapped.shutil, "disk_usage", lambda _: SimpleNamespace(free=80_000))
        with caplog.at_level("INFO"):
            place.node(place.names[0], folder=tmp_path, spill_above=19_999).close()
        assert "'model': 20000, 'public reference': 20000, 'private reference': 20000" in caplog.text
        with pytest.raises(DiskError, match="what is kept of a model"):
            place.session(place.names[1], spill_above=1 << 30).run()
