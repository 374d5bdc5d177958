"""What one member makes of a model: sums that add up to what all of them together would have measured."""

from __future__ import annotations

import numpy as np
import pytest

from eris.config import load_config
from eris.local.scores import scores_of
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
