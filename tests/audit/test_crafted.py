"""Crafted canaries, audits by losses alone, and memory that is stated before it is taken."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from eris.audit import canaries, memory_need
from eris.audit.canaries import plant_crafted, plant_in
from eris.audit.membership_run import AuditedRun, AuditPlan, audit_method
from eris.audit.memory_need import AuditMemory, require_memory
from eris.audit.observer import parse_observer
from eris.config import load_config
from eris.errors import ConfigError
from eris.local.correction import proximal
from eris.local.numpy_task import LogisticTask
from eris.seeds import private_root, public_root
from eris.tasks import build_task

FEW = [
    "method=eris", "data.name=synthetic-clouds", "data.samples=40", "members=5", "rounds=3", "workers=1",
]  # fmt: skip
DIGITS = [
    "method=eris", "members=4", "data.samples=16", "data.test_samples=80", "data.validation=0.0", "rounds=2",
    "evaluate_every=2", "local.batch=full", "local.epochs=1", "workers=1",
]  # fmt: skip
AGGREGATOR = (parse_observer("aggregator"),)


def built(changes):
    config = load_config(changes=changes)
    return config, build_task(config.model_dump(mode="json", exclude_none=True))


def test_a_crafted_canary_is_in_the_update_if_its_coin_says_so():
    config, task = built(DIGITS)
    planted = plant_crafted(task, config, most=6)
    model = task.initial(public_root(1))
    for member in (0, 3):
        training = {"round": 0, "seed": private_root(1, member)}
        plain = task.train(member, model, task.memory(member), **training)
        crafted = planted.task.train(member, model, task.memory(member), **training)
        gradients = planted.probe.sample_gradients(member, model)
        chosen = gradients[planted.canaries.coins[member]].sum(axis=0)
        expected = config.local.lr * plain.steps / task.samples(member) * chosen
        n = task.spec.n_trainable
        assert np.allclose((crafted.update - plain.update)[:n], expected, atol=1e-6)
        assert planted.task.samples(member) == task.samples(member)
        # The loss is linear: its slope along any direction is the gradient's.
        ahead = model.copy()
        ahead[:n] += 0.5 * gradients[2]
        rise = planted.probe.sample_losses(member, ahead) - planted.probe.sample_losses(member, model)
        assert np.allclose(rise, 0.5 * gradients @ gradients[2], rtol=1e-3, atol=1e-3)
    lengths = np.linalg.norm(planted.probe.sample_gradients(0, model), axis=1)
    assert np.allclose(lengths, lengths[0])
    public = np.linalg.norm(planted.public.sample_gradients(0, task.initial(public_root(1).child("initial"))), axis=1)
    assert lengths[0] == pytest.approx(public.mean(), rel=1e-4)


def test_under_dp_sgd_a_canary_is_as_long_as_the_bound():
    noisy = [*DIGITS, "method=eris+ldp", "privacy.unit=sample", "privacy.clip=0.7", "privacy.epsilon=100"]
    config, task = built(noisy)
    planted = plant_crafted(task, config, most=4)
    gradients = planted.probe.sample_gradients(1, task.initial(public_root(1)))
    assert np.linalg.norm(gradients, axis=1) == pytest.approx([0.7] * 4, rel=1e-4)


def test_crafted_canaries_bound_natural_ones_from_above(tmp_path):
    areas = {}
    for crafted in (False, True):
        plan = AuditPlan(AGGREGATOR, ("whitened",), views=1, canaries=8, tosses=19, crafted=crafted)
        trial = audit_method(load_config(changes=DIGITS), tmp_path / str(crafted), plan)
        areas[crafted] = trial.results[0].figures["auc"].value
    assert areas[True] >= areas[False]
    assert areas[True] > 0.99


def test_an_audit_by_losses_alone_builds_no_gradient(tmp_path, monkeypatch):
    def forbidden(*arguments, **options):
        raise AssertionError("a gradient of a sample was built")

    monkeypatch.setattr(LogisticTask, "sample_gradients", forbidden)
    plan = AuditPlan(AGGREGATOR, ("rmia", "loss"), views=1, tosses=19, losses_only=True)
    needs = []
    trial = audit_method(load_config(changes=FEW), tmp_path / "light", plan, notice=needs.append)
    assert [result.attack for result in trial.results] == ["rmia", "loss"]
    assert needs[0].gradients == 0 < needs[0].updates
    heavy = replace(plan, losses_only=False)
    assert AuditedRun(load_config(changes=FEW), tmp_path / "heavy", heavy).memory_need.gradients > 0
    with pytest.raises(ConfigError, match="needs gradients"):
        AuditedRun(load_config(changes=FEW), tmp_path / "other", replace(plan, attacks=("whitened",)))


def test_the_command_says_what_it_takes_and_which_attack_is_best_without_gradients(invoke):
    few = [part for change in FEW for part in ("--set", change)]
    done = invoke("audit", "membership", *few, "--seeds", "1", "--views", "1", "--losses-only", "--out", "a")
    assert "Attack: rmia, the best of 5 that build no gradient" in done.output
    assert "memory besides the training: about" in done.output
    one = [*few, "--seeds", "1", "--views", "1", "--json"]
    crafted = invoke("audit", "membership", *one, "--crafted", "--canaries", "8", "--out", "b")
    (trial,) = json.loads(crafted.stdout)["trials"]
    assert trial["results"][0]["canaries"] == 5 * 8


def test_losses_alone_need_no_memory_for_gradients_of_public_samples(monkeypatch):
    _, task = built(FEW)
    monkeypatch.setattr(canaries, "_PUBLIC_BYTES", 1)
    assert canaries.public_samples(task) is None
    assert canaries.public_samples(task, gradients=False).samples(0) > 0


def test_what_does_not_fit_is_refused_before_it_is_taken(tmp_path):
    with pytest.raises(ConfigError, match="losses-only"):
        require_memory(AuditMemory(gradients=1 << 60, updates=0, references=0))
    require_memory(AuditMemory(gradients=1, updates=1, references=1))


@pytest.mark.parametrize("options", [("--losses-only",), ("--filler", "bert")])
def test_what_contradicts_crafted_canaries_is_refused_by_name_before_anything_is_built(invoke, tmp_path, options):
    one = ["--set", "data.name=no-such-data", "--crafted", *options, "--out", "none"]
    with pytest.raises(ConfigError, match=rf"{options[0]}.*leave out {options[0]}"):
        invoke("audit", "membership", *one)
    assert not (tmp_path / "none").exists()


def test_crafted_canaries_take_little_memory_before_it_is_asked_for(tmp_path, monkeypatch):
    """The length of their gradients is taken from public ones, which must not be held all at once."""
    built = []

    def counted(self, member, model, usual=LogisticTask.sample_gradients):
        built.append(self.samples(member))
        return usual(self, member, model)

    config = load_config(changes=FEW)
    task = build_task(config.model_dump(mode="json", exclude_none=True))
    public = canaries.public_samples(task)
    start = task.initial(canaries.initial_seed(config.seed))
    whole = np.linalg.norm(public.sample_gradients(0, start), axis=1).mean()
    monkeypatch.setattr(LogisticTask, "sample_gradients", counted)
    monkeypatch.setattr(canaries, "_CHUNK_BYTES", 4 * task.spec.n_trainable * 7)
    monkeypatch.setattr(memory_need, "_available", lambda: 0)
    with pytest.raises(ConfigError, match="are free"):
        AuditedRun(config, tmp_path / "none", AuditPlan(AGGREGATOR, ("whitened",), views=1, canaries=8, crafted=True))
    assert max(built) == 7
    assert sum(built) == public.samples(0)
    planted = plant_crafted(task, config, most=4)
    assert np.linalg.norm(planted.probe.sample_gradients(0, start), axis=1) == pytest.approx([whole] * 4, rel=1e-5)


def test_crafted_canaries_count_whichever_attack_listens(tmp_path):
    """Members train on them, so they take memory even if no attack asks for a gradient."""
    plan = AuditPlan(AGGREGATOR, ("loss",), heard=("loss",), views=1, canaries=8, crafted=True)
    config = load_config(changes=FEW)
    n = AuditedRun(config, tmp_path / "loss", plan).task.spec.n_trainable
    for crafted, rows in ((True, 2 * 8), (False, 0)):
        run = AuditedRun(config, tmp_path / str(crafted), replace(plan, crafted=crafted))
        assert run.memory_need.gradients == 4 * n * rows


def test_a_correction_is_made_once_however_often_it_is_asked_for():
    config, task = built(FEW)
    once = task.corrected(proximal(0.5))
    planted = plant_in(once, config.seed)
    model = task.initial(public_root(1))
    updates = [
        each.train(0, model, {}, round=0, seed=private_root(1, 0)).update
        for each in (planted.task.corrected(proximal(0.5)), plant_in(task, config.seed).task.corrected(proximal(0.5)))
    ]
    assert np.array_equal(*updates)
