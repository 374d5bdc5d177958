"""What one member makes of a model: sums that add up to what all of them together would have measured."""

from __future__ import annotations

import json

import numpy as np
import pytest

import eris
from eris.config import load_config
from eris.local.scores import scores_of
from eris.local.spec import ModelSpec
from eris.local.task import LocalResult
from eris.seeds import public_root
from eris.tasks import own_task, task_at_home

torch = pytest.importorskip("torch")
nn = torch.nn

X = np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32)
CLASSES = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0.5)
MANY = (X[:, :3] > 0).astype(np.float32)
CASES = {
    "cross-entropy": (3, CLASSES, ("accuracy",)),
    "mse": (1, X.sum(1), ("mae",)),
    "bce": (3, MANY, ("f1",)),
}


def built(loss: str, *changes: str):
    outputs, targets, _ = CASES[loss]
    config = load_config(changes=["members=3", "data.validation=0.5", f"local.loss={loss}", *changes])
    data = (X[:60], targets[:60]), (X[60:], targets[60:])
    return own_task(config, lambda: nn.Linear(4, outputs), data), config


@pytest.mark.parametrize("loss", CASES)
def test_members_sums_are_the_figures_of_all_that_is_held_back(loss: str) -> None:
    task, _ = built(loss)
    model = task.initial(public_root(1))
    names = ["loss", *CASES[loss][2]]
    each = [scores_of(task, member, model, {}, names) for member in range(3)]
    whole = task.evaluate(model)
    for name in names:
        total, count = (sum(scores[name][part] for scores in each) for part in (0, 1))
        assert total / count == pytest.approx(whole[f"validation_{name}"], rel=1e-6)


def test_a_label_alone_is_right_or_wrong() -> None:
    config = load_config(changes=["members=3", "data.validation=0.5", "local.loss=bce"])
    task = own_task(config, lambda: nn.Linear(4, 1), ((X, MANY[:, :1]), None))
    model = task.initial(public_root(1))
    hits, count = np.sum([scores_of(task, k, model, {}, ["accuracy"])["accuracy"] for k in range(3)], axis=0)
    assert hits / count == pytest.approx(task.evaluate(model)["validation_accuracy"])


def test_at_home_a_member_is_scored_on_its_own_tests_as_in_the_simulation() -> None:
    def data(member: int):
        own = slice(30 * member, 30 * member + 30)
        return (X[own][:20], CLASSES[own][:20]), (X[own][20:], CLASSES[own][20:])

    config = load_config(changes=["members=3", "data.validation=0"])
    together = own_task(config, lambda: nn.Linear(4, 3), data)
    model = together.initial(public_root(1))
    for member in range(3):
        home = task_at_home(config, lambda: nn.Linear(4, 3), *data(member))
        names = ["loss", "accuracy"]
        assert scores_of(home, member, model, {}, names) == scores_of(together, member, model, {}, names)


def test_a_member_with_parts_of_its_own_is_scored_with_them() -> None:
    task, config = built("cross-entropy", 'local.keep=["bias"]')
    model, memory = task.initial(public_root(1)), task.memory(0)
    before = scores_of(task, 0, model, memory, ["loss"])
    memory["local"][:] += [3, -3, 0]
    assert scores_of(task, 0, model, memory, ["loss"]) != before
    assert config.local.keep == ("bias",)


class AtHome:
    """The task of one peer, as a user would write it: `evaluate` tells sums and counts."""

    members = 1

    def __init__(self, peer: int) -> None:
        self.peer, self.spec = peer, ModelSpec.flat(3)
        self.rows = np.random.default_rng(peer).normal(size=(10 + peer, 3)).astype(np.float32)

    def samples(self, member: int) -> int:
        return len(self.rows)

    def initial(self, seed: object) -> np.ndarray:
        return np.zeros(3, np.float32)

    def memory(self, member: int) -> dict:
        return {}

    def train(self, member, model, memory, *, round, seed) -> LocalResult:
        return LocalResult(np.float32(0.5) * (model - self.rows.mean(0)), len(self.rows))

    def evaluate(self, model) -> dict:
        errors = np.abs(self.rows - model).sum(dtype=np.float64)
        return {"error": (float(errors), self.rows.size), "largest": float(np.abs(model).max())}


def test_a_task_of_ones_own_tells_sums_from_evaluate(tmp_path):
    federation = eris.Federation(
        task=lambda config, peer: AtHome(peer), members=3, rounds=4, keep="best", figures=["error"]
    )
    result = federation.run(tmp_path / "run", report=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    model, tasks = np.zeros(3, np.float32), [AtHome(peer) for peer in range(3)]
    total, count = np.sum([task.evaluate(model)["error"] for task in tasks], axis=0)
    assert lines[0]["members_error"] == pytest.approx(total / count, rel=1e-6)
    assert isinstance(lines[0]["error"], float), "for its own figures a pair is a mean"
    scored = [line["members_error"] for line in lines]
    assert result["eris"]["choice"]["best_round"] == int(np.argmin(scored))
    with pytest.raises(eris.TaskError, match="largest is a mean, and means cannot be added up over members"):
        eris.Federation(task=lambda config, peer: AtHome(peer), members=3, rounds=4, figures=["largest"]).run(
            tmp_path / "other", report=False
        )
    assert not (tmp_path / "other").exists()
