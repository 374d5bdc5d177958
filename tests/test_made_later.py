"""Data that a function makes when a member trains, against the same data made at the beginning."""

from __future__ import annotations

import numpy as np
import pytest

from eris.config import load_config
from eris.errors import DataError, InputError
from eris.events import RoundStarted
from eris.simulate.run import run
from eris.tasks import own_task

torch = pytest.importorskip("torch")


def network():
    return torch.nn.Linear(6, 3)


class Pictures:
    """Makes a member's samples, and remembers whose it was asked for."""

    def __init__(self, *, later: bool) -> None:
        self.asked: list[int] = []
        if later:
            self.samples, self.test = 5, self.made(10**6)

    def __call__(self, member):
        self.asked.append(member)
        return self.made(member) if hasattr(self, "samples") else (self.made(member), self.made(10**6))

    def made(self, member):
        draw = np.random.default_rng(member)
        return draw.standard_normal((5, 6)).astype(np.float32), draw.integers(3, size=5)


def config_of(*changes):
    changes = ["method=eris", "rounds=3", "local.batch=full", "data.validation=0.0", "workers=1", *changes]
    return load_config(changes=changes)


def played(config, data, folder):
    participants = set()

    def listen(event):
        if isinstance(event, RoundStarted):
            participants.update(event.participants)

    task = own_task(config, network, data)
    result = run(config, folder, task=task, listeners=[listen])
    return result.summaries[0], participants


def test_the_same_bits_as_made_at_the_beginning(tmp_path):
    config = config_of("members=12", "participation=0.5")
    later, _ = played(config, Pictures(later=True), tmp_path / "later")
    at_once, _ = played(config, Pictures(later=False), tmp_path / "at-once")
    assert later["model_digest"] == at_once["model_digest"]


def test_nobody_elses_data_are_made(tmp_path):
    data = Pictures(later=True)
    summary, participants = played(config_of("members=20_000", "participation=0.0005"), data, tmp_path / "run")
    assert set(data.asked) == {0, 1, 2, *participants}  # three were looked at before
    assert len(participants) <= 30
    assert summary["finished"]
    assert summary["final_loss"] is not None


@pytest.mark.parametrize("counts", [0, [5, 5], "five", 2.5])
def test_numbers_of_samples_that_cannot_be(counts):
    data = Pictures(later=True)
    data.samples = counts
    with pytest.raises(InputError, match="set it to one number for all members, or to 12"):
        own_task(config_of("members=12"), network, data)


def test_fewer_samples_than_were_said():
    data = Pictures(later=True)
    data.samples = 6
    with pytest.raises(DataError, match="made 5 samples, but announced 6"):
        own_task(config_of("members=12"), network, data)
