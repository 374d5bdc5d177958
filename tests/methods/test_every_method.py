"""Every method runs, learns what it can, and leaves a folder that can be reported."""

from __future__ import annotations

import math
import re

import pytest

from eris.aggregate.choose import RULES
from eris.errors import ConfigError
from eris.methods import METHODS, method_by_name
from eris.report import write_report
from eris.simulate.run import run
from eris.step.choose import OPTIMIZERS
from tests.simulate.setting import settings

WITHOUT_SAMPLE_NOISE = [name for name in METHODS if name != "fedavg-dpsgd"]


@pytest.mark.parametrize("name", WITHOUT_SAMPLE_NOISE)
def test_it_runs_and_says_what_it_did(name, tmp_path):
    result = run(settings("rounds=3", method=name), tmp_path / "run")
    summary = result[name]
    assert summary["finished"]
    assert math.isfinite(summary["final_loss"])
    noisy = name in {"fedavg-ldp", "soteriafl", "cdp-sgd", "qdpsgd", "eris+ldp", "eris+dsc+ldp"}
    assert bool(summary["privacy"]) == noisy
    unseen = method_by_name(name).trusted or name.endswith("+masked")
    assert (summary["exposure"]["largest_share_per_round"] == 0) == unseen
    assert write_report(result.path).exists()


def test_dpsgd_runs_on_digits_beside_methods_without_noise(tmp_path):
    """One configuration, two learning problems: noise must be in the steps of the one method and not of the other."""
    changes = ["data.name=mnist-sample", "data.samples=8", "data.test_samples=50", "rounds=2", "members=4"]
    methods = '["fedavg", "fedavg-dpsgd", "eris"]'
    result = run(settings(*changes, "local.batch=full", "local.steps=0", method=methods), tmp_path / "run")
    assert result["fedavg"]["model_digest"] == result["eris"]["model_digest"]
    assert result["fedavg"]["model_digest"] != result["fedavg-dpsgd"]["model_digest"]
    assert result["fedavg-dpsgd"]["privacy"]["unit"] == "sample"
    assert result["fedavg-dpsgd"]["notes"] == ["noise reproducible: no privacy claim"]
    assert result["eris"]["privacy"] is None


@pytest.mark.parametrize(
    "changes",
    [
        ["compression.compressor=qsgd_max", "compression.options={levels=8}"],
        ["compression.compressor=uniform", "compression.options={levels=8}"],
        ["compression.compressor=top_k", "compression.keep=0.2"],
    ],
    ids=["qsgd", "uniform", "top-k"],
)
def test_compression_as_a_defence_of_its_own(changes, tmp_path):
    packed = run(settings("rounds=3", *changes, method="fedavg+compression"), tmp_path / "a")["fedavg+compression"]
    plain = run(settings("rounds=3", method="fedavg"), tmp_path / "b")["fedavg"]
    assert packed["model_digest"] != plain["model_digest"]
    assert packed["bytes"]["up_per_member_round"] < plain["bytes"]["up_per_member_round"]


@pytest.mark.parametrize(
    "changes",
    [
        *[[f"server.optimizer={name}"] for name in sorted(OPTIMIZERS)],
        *[[f"server.rule={name}"] for name in sorted(RULES)],
        ["shards.capacities=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]"],
    ],
    ids=lambda changes: changes[0].split("=")[1][:12],
)
def test_eris_is_its_central_self_with_every_step_and_rule(changes, tmp_path):
    many = run(settings("rounds=3", *changes, method="eris"), tmp_path / "a")["eris"]
    central = [change for change in changes if not change.startswith("shards")]
    one = run(settings("rounds=3", *central, method="fedavg"), tmp_path / "b")["fedavg"]
    assert many["model_digest"] == one["model_digest"]


@pytest.mark.parametrize("name", ["shatter", "gossip", "ako"])
def test_noise_goes_with_models_of_one_s_own(name, tmp_path):
    """LDP on the update comes before the exchange: the same messages, other values."""
    noisy = run(settings("rounds=3", "privacy.clip=1.0", "privacy.noise_multiplier=0.5", method=name), tmp_path / "a")[
        name
    ]
    plain = run(settings("rounds=3", method=name), tmp_path / "b")[name]
    assert noisy["privacy"]["unit"] == "member"
    assert noisy["model_digest"] != plain["model_digest"]
    assert noisy["bytes"] == plain["bytes"]


@pytest.mark.parametrize(
    ("name", "meant"), [("eris+ldp+dsc", "eris+dsc+ldp"), ("dsc+eris", "eris+dsc"), ("eriss", "eris")]
)
def test_a_name_with_its_parts_in_another_order_is_understood(name, meant):
    with pytest.raises(ConfigError, match=f"did you mean {re.escape(meant)}\\?"):
        method_by_name(name)
