"""The learning problem a configuration describes: what it says is done, or refused by its key."""

from __future__ import annotations

import pytest

from eris.config import load_config
from eris.errors import ConfigError
from eris.tasks import build_task, check_task, own_task

CLOUDS, QUADRATIC = "data.name=synthetic-clouds", "data.name=synthetic-quadratic"


def built(*changes):
    return build_task(load_config(changes=["method=eris", *changes]).model_dump(mode="json", exclude_none=True))


@pytest.mark.parametrize("name", [CLOUDS, QUADRATIC])
@pytest.mark.parametrize(
    "change",
    [
        "data.partition=natural",
        "data.validation=0.3",
        "model.name=resnet9",
        "local.steps=2",
        "local.optimizer=adam",
        "local.momentum=0.5",
        "local.weight_decay=5.0",
        "local.send=gradient",
        "local.refresh=0.5",
        "local.estimator=saga",
    ],
)
def test_what_a_made_up_task_makes_nothing_of_is_refused(name, change):
    with pytest.raises(ConfigError) as refused:
        built(name, change)
    assert refused.value.where["key"] == change.partition("=")[0]


@pytest.mark.parametrize("change", ["data.samples=9", "data.test_samples=9", "local.epochs=2", "local.batch=5"])
def test_a_quadratic_has_no_samples(change):
    with pytest.raises(ConfigError, match="synthetic-quadratic") as refused:
        built(QUADRATIC, change)
    assert refused.value.where["key"] == change.partition("=")[0]


def test_what_a_made_up_task_does_is_not_refused():
    clouds = built(CLOUDS, "data.samples=9", "data.test_samples=30", "local.epochs=2", "local.batch=4")
    assert (clouds.samples(0), clouds._test[1].size, clouds.epochs, clouds.batch) == (9, 30, 2, 4)
    assert built(CLOUDS, "local.momentum=0.5", "local.keep_state=true").descent.momentum == 0.5
    assert built(CLOUDS, "local.momentum=0.0", "local.steps=0", "data.validation=0").descent.momentum == 0.0
    assert built(CLOUDS)._test[1].size == 200
    assert built(QUADRATIC, "model.options={n=7}", "local.batch=full").spec.n == 7


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("data.name=mnits", "data.name"),
        ("model.name=lenet6", "model.name"),
        ("local.estimator=saga", "local.estimator"),
        ("local.optimizer=adam", "local.momentum"),
    ],
)
def test_a_refusal_names_its_key(change, key):
    with pytest.raises(ConfigError) as refused:
        check_task(load_config(changes=["method=eris", "local.momentum=0.5", change]))
    assert refused.value.where["key"] == key


def test_a_made_up_task_has_a_model_of_its_own():
    with pytest.raises(ConfigError, match="its own model"):
        own_task(load_config(changes=[CLOUDS]), lambda: None, None)
