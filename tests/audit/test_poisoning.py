"""Members that do harm: what they train on and send, and what each rule makes of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eris.audit.poisoned_task import POISONING, PoisonedTask, poisoning_attack
from eris.audit.poisoning import PoisoningPlan, audit_poisoning
from eris.config import load_config
from eris.errors import ConfigError, InputError
from eris.seeds import private_root, public_root
from eris.tasks import build_task

CLOUDS = ["method=eris", "data.name=synthetic-clouds", "data.samples=30", "members=8", "rounds=10", "workers=1"]
DIGITS = [
    "method=eris", "members=5", "data.samples=20", "data.test_samples=60", "data.validation=0.0", "rounds=2",
    "evaluate_every=2", "local.batch=full", "workers=1",
]  # fmt: skip


def built(changes):
    return build_task(load_config(changes=changes).model_dump(mode="json", exclude_none=True))


def trained(task, member, seed=1):
    model = task.initial(public_root(1))
    return task.train(member, model, task.memory(member), round=0, seed=private_root(seed, member)).update


@pytest.fixture(scope="module")
def digits():
    return built(DIGITS)


def test_only_attackers_send_something_else(digits):
    for name, times in (("sign-flip", -2), ("scaled", 10)):
        poisoned = PoisonedTask(digits, poisoning_attack(name), [1])
        assert np.array_equal(trained(poisoned, 0), trained(digits, 0))
        assert np.array_equal(trained(poisoned, 1), np.float32(times) * trained(digits, 1))


def test_flipped_labels_are_mirrored(digits):
    poisoned = PoisonedTask(digits, POISONING["label-flip"], [2])
    before, after = digits.examples(2), poisoned._spoiled.examples(2)
    assert np.array_equal(before[0], after[0])
    assert np.array_equal(9 - before[1], after[1])
    assert not np.array_equal(trained(poisoned, 2), trained(digits, 2))


def test_a_trigger_is_on_half_of_the_samples_and_leaves_the_rest_alone(digits):
    poisoned = PoisonedTask(digits, POISONING["backdoor"], [0], target=3)
    pictures, labels = (np.asarray(part) for part in digits.examples(0))
    stamped, claimed = (np.asarray(part) for part in poisoned._spoiled.examples(0))
    marked = digits.places(0) % 2 == 0
    assert 0 < marked.sum() < len(marked)
    assert np.array_equal(stamped[~marked], pictures[~marked])
    assert np.array_equal(claimed, np.where(marked, 3, labels))
    assert (stamped[marked][..., -4:, -4:] == pictures.max()).all()
    assert np.array_equal(stamped[..., :-4, :], pictures[..., :-4, :])
    # All test samples that are asked about are of other classes, and all claim to be the target's.
    asked = poisoned._triggered._test
    assert set(np.asarray(asked.take(np.arange(len(asked)))[1]).tolist()) == {3}
    whole = digits.held_out(10**6).pool
    assert len(asked) == (np.asarray(whole.take(np.arange(len(whole)))[1]) != 3).sum()


def test_robust_rules_hold_where_means_do_not(tmp_path):
    plan = PoisoningPlan(attacks=("none", "sign-flip", "scaled"), attackers=3)
    config = load_config(changes=[*CLOUDS, "local.lr=0.5"])
    found = audit_poisoning(config, tmp_path, plan, seeds=[1, 2])
    accuracy = {(result["attack"], result["rule"]): result["accuracy"]["value"] for result in found}
    assert accuracy["none", "mean"] == pytest.approx(accuracy["none", "fixed point"], abs=0.01)
    assert accuracy["none", "mean"] > 0.8
    for rule in ("median", "trimmed mean"):
        assert accuracy["sign-flip", rule] > accuracy["sign-flip", "mean"] + 0.2
    assert accuracy["sign-flip", "fixed point"] < 0.6
    assert all(result["backdoor_rate"] is None for result in found)  # nothing to carry a trigger here


def test_masked_sums_come_to_what_fixed_point_does(tmp_path):
    plan = PoisoningPlan(attacks=("none", "sign-flip"), rules=("fixed point", "masked"), attackers=2)
    found = audit_poisoning(load_config(changes=CLOUDS), tmp_path, plan, seeds=[1, 2])
    accuracy = {(result["attack"], result["rule"]): result["accuracy"]["values"] for result in found}
    for attack in plan.attacks:
        assert accuracy[attack, "masked"] == accuracy[attack, "fixed point"]
    assert accuracy["none", "masked"] != accuracy["sign-flip", "masked"]
    models = [
        tmp_path / "runs" / rule / "sign-flip" / "seed-1" / "model.safetensors" for rule in ("fixed-point", "masked")
    ]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_what_cannot_be_is_refused_before_anything_is_trained(tmp_path):
    config = load_config(changes=CLOUDS)
    for plan, words in (
        (PoisoningPlan(attackers=4), "fewer than half"),
        (PoisoningPlan(attacks=("magic",)), "no poisoning attack"),
        (PoisoningPlan(rules=("mode",)), "no rule"),
    ):
        with pytest.raises(ConfigError, match=words):
            audit_poisoning(config, tmp_path / "out", plan, seeds=[1])
    clipped = load_config(changes=[*CLOUDS, "privacy.clip=1.0"])
    with pytest.raises(ConfigError, match="would not"):
        audit_poisoning(clipped, tmp_path / "out", PoisoningPlan(), seeds=[1])
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="cannot be replaced"):
        audit_poisoning(config, tmp_path / "out", PoisoningPlan(attacks=("backdoor",)), seeds=[1])


def test_the_command_ends_with_a_table_a_file_and_a_picture(invoke, tmp_path):
    few = [part for change in DIGITS for part in ("--set", change)]
    options = [*few, "--attack", "none", "--attack", "backdoor", "--rule", "mean", "--rule", "median"]
    options += ["--attackers", "1", "--seeds", "2", "--out", "here"]
    done = invoke("audit", "poisoning", *options)
    assert done.exit_code == 0
    for words in ("1 of 5 members attack", "here/poisoning.json", "here/poisoning.png", "median"):
        assert words in done.output
    written = json.loads((tmp_path / "here" / "poisoning.json").read_text())
    assert [(r["attack"], r["rule"]) for r in written["results"]] == [
        ("none", "mean"), ("none", "median"), ("backdoor", "mean"), ("backdoor", "median"),
    ]  # fmt: skip
    assert all(len(r["backdoor_rate"]["values"]) == 2 for r in written["results"])
    assert (tmp_path / "here" / "poisoning.png").read_bytes().startswith(b"\x89PNG")
    again = invoke("audit", "poisoning", *options, "--json")  # from what lies there
    assert json.loads(again.stdout)["results"] == written["results"]
    with pytest.raises(ConfigError, match="other settings"):
        invoke("audit", "poisoning", *options, "--target", "5")


def test_side_by_side_they_come_to_the_same(tmp_path):
    config, plan = (
        load_config(changes=[*CLOUDS, "rounds=2"]),
        PoisoningPlan(attacks=("none", "sign-flip"), rules=("mean",)),
    )
    ended = []
    apart = audit_poisoning(config, tmp_path / "apart", plan, seeds=[1, 2], listeners=[ended.append], processes=2)
    assert len(ended) == 4
    assert apart == audit_poisoning(config, tmp_path / "one", plan, seeds=[1, 2])
