"""Workers add whole numbers up and return one vector each; who asks for views gets them, and the bits are the same."""

from __future__ import annotations

import numpy as np
import pytest

from eris.events import RoundEnded, Sent, asks_for_views, hears
from eris.exposure import ExposureLedger
from eris.simulate.inline_engine import InlineEngine
from eris.simulate.process_engine import ProcessEngine
from eris.simulate.worker_process import TaskSource
from tests.simulate.setting import play, prepare, settings
from tests.simulate.test_fixed_point import Spikes

FIXED = "server.encoding=fixed"


class Counting:
    """An engine whose works and sums are counted."""

    def __init__(self, engine) -> None:
        self._engine, self.added, self.alone, self.sums_told = engine, 0, 0, 0

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def train(self, jobs, states, *, add_up=False):
        for work in self._engine.train(jobs, states, add_up=add_up):
            assert bool(work.values.size) != work.added
            self.added += work.added
            self.alone += not work.added
            yield work

    def sums(self):
        for total in self._engine.sums():
            self.sums_told += 1
            yield total


def processes(*changes):
    config = settings(*changes).model_dump(mode="json", exclude_none=True)
    return ProcessEngine(TaskSource("eris.tasks:build_task", {"config": config}), workers=2)


@pytest.mark.parametrize("method", ["eris", "eris+dsc"])
@pytest.mark.parametrize("changes", [[], ["faults.link_failure=0.3"], ["local.keep_state=true"]])
def test_sums_of_workers_have_the_bits_of_members_one_by_one(method, changes, tmp_path):
    config = settings(FIXED, *changes, method=method)
    watched = play(config, tmp_path / "a")  # whose listener asks for views
    engine = Counting(processes(*changes))
    played = prepare(config, tmp_path / "b", engine=engine)
    played.simulation.listen((), lambda: False)
    played.simulation.play(config.rounds)
    engine.close()
    assert played.digest == watched.digest
    assert engine.added + engine.alone == 4 * 7
    assert engine.sums_told <= 4 * 2
    assert (engine.alone > 0) == ("faults.link_failure=0.3" in changes)


def test_buffers_are_added_up_too(tmp_path):
    config = settings("members=4", FIXED, "rounds=2")
    watched = play(config, tmp_path / "a", task=Spikes(spike=0.5))
    engine = Counting(InlineEngine(Spikes(spike=0.5)))
    played = prepare(config, tmp_path / "b", engine=engine)
    played.simulation.listen((), lambda: False)
    played.simulation.play(config.rounds)
    assert (engine.added, engine.sums_told) == (8, 2)
    assert np.array_equal(played.simulation.replica.model, watched.simulation.replica.model)


def test_the_ledger_asks_for_no_views_and_counts_the_same(tmp_path):
    config = settings(FIXED, method="eris+dsc")
    summaries = []
    for name, others in (("views", [lambda event: None]), ("sums", [])):
        played = prepare(config, tmp_path / name)
        ledger = ExposureLedger(played.composition.recipe, 7, tmp_path / f"{name}-ledger", server=False)
        sizes = []

        def sent(event, sizes=sizes):
            sizes.append(event.values.size if isinstance(event, Sent) else 0)

        sent.views = False
        played.simulation.listen((ledger, sent, *others), lambda: False)
        played.simulation.play(config.rounds)
        summaries.append(ledger.summary())
        assert any(sizes) == (name == "views")
    assert summaries[0] == summaries[1]


def test_who_asks_for_views():
    assert asks_for_views([lambda event: None])
    assert not asks_for_views([hears(RoundEnded)(lambda event: None)])
