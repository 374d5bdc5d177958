"""What only the combination shows to be impossible."""

from __future__ import annotations

import numpy as np
import pytest

from eris.compose import check_settings, compose, could_be_masked
from eris.config import load_config
from eris.errors import ConfigError
from eris.local.spec import ModelSpec

FLAT = ModelSpec.flat(50)
WITH_BUFFERS = ModelSpec.of({"w": np.zeros(9, np.float32), "m": np.zeros(3, np.float32)}, roles={"m": "buffer"})


FIXED, LEVELS = "server.encoding=fixed", "compression.options={levels=4}"


def composed(*changes, method="eris", spec=FLAT, samples=None):
    config = load_config(changes=[f"method={method}", *changes])
    return compose(config, spec, samples or [1] * config.members)


@pytest.mark.parametrize(
    ("method", "changes", "says"),
    [
        ("erris", [], "no method 'erris'"),
        ('["eris", "fedavg"]', [], "compose one method at a time"),
        ("eris", ["members=5", "aggregators=6"], "aggregators is 6, but there are 5 members"),
        ("eris", ["members=2"], "min_contributors is 3, but only 2 of 2 members take part"),
        ("eris", ["participation=0.2"], "min_contributors is 3, but only 2 of 10 members take part"),
        ("eris+dsc", ["server.rule=median"], "median"),
        ("eris", ["server.rule=krum"], "krum"),
        ("eris", ["server.optimizer=sgd"], "no server optimizer 'sgd'"),
        ("eris", ["server.optimizer_options={speed=3.0}"], "speed"),
        ("eris+dsc", ["compression.compressor=top_k"], "biased"),
        ("eris+dsc", ["compression.compressor=rand_j"], "did you mean rand_k"),
        (
            "eris+dsc",
            ["compression.compressor=bernoulli", "compression.masks=independent"],
            "cannot give members",
        ),
        ("eris+dsc", ["compression.options={q=1}"], "takes no parameter 'q'"),
        ("eris", ["privacy.noise_multiplier=1.0"], "updates are not clipped"),
        ("eris", ["shards.capacities=[1.0, 2.0]"], "shards.capacities has 2 numbers for 10 aggregators"),
        (
            "eris",
            ["shards.schedule=rotate", f"shards.capacities={[1.0] * 10}"],
            "shards that rotate cannot follow capacities",
        ),
        ("eris", ["faults.slow_members=0.04"], "no member would be slow"),
        ("eris", [FIXED, "server.rule=median"], "an aggregator has only their sum"),
        ("eris", [FIXED, "server.limit=0.3"], "use a power of two"),
        ("eris", ["server.limit=0.5"], "server.limit applies to fixed point"),
        ("eris+ldp", [FIXED, "privacy.noise=shares"], "aggregators of plain shards see more than sums"),
        ("priprune", [FIXED], "keeps coordinates that depend on the values"),
        ("gossip", [FIXED], "server.encoding does not work with gossip"),
        ("fedavg+compression", [FIXED, "compression.compressor=qsgd", LEVELS], "symbols cannot be added up"),
        ("fedavg+compression", [FIXED, "compression.compressor=top_k"], "keeps coordinates that depend on the values"),
        ("eris+dsc", [FIXED, "compression.masks=independent"], "lets members keep different coordinates"),
    ],
)
def test_refused(method, changes, says):
    with pytest.raises(ConfigError, match=says.replace("[", r"\[").replace("(", r"\(")):
        composed(*changes, method=method)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (["server.rule=krum"], "server.rule"),
        (["privacy.clip=1.0", "privacy.noise_multiplier=1.0", "keep=best"], "keep"),
        (["privacy.unit=sample", "privacy.clip=1.0", "privacy.noise_multiplier=1.0", "stop=patience:3"], "stop"),
        (["method=fedavg-ldp", 'figures=["loss"]'], "figures"),
        (["method=gossip", "keep=best"], "keep"),
        (["keep=best", "rounds=1"], "keep"),
        (['figures=["loss", "loss"]'], "figures"),
        (["server.encoding=fixed", "server.limit=3.0"], "server.limit"),
        (["server.encoding=fixed", "server.rule=median"], "server.encoding"),
        (["server.rule=median", "method=eris+dsc"], "server.rule"),
        (["server.optimizer=sgd"], "server.optimizer"),
        (["server.schedule=cosine"], "server.schedule"),
        (["server.schedule=stepwise", "server.schedule_options={evry=3}"], "server.schedule"),
        (["compression.gamma_schedule=linear", "method=eris+dsc"], "compression.gamma_schedule"),
        (["compression.compressor=rand_j", "method=eris+dsc"], "compression.compressor"),
        (["compression.compressor=top_k", "method=eris+dsc"], "compression"),
        (["compression.gamma=0.9", "method=eris+dsc"], "compression.gamma"),
        (["faults.slow_members=0.04"], "faults.slow_members"),
    ],
)
def test_a_refusal_names_its_key(changes, key):
    with pytest.raises(ConfigError) as refused:
        composed(*changes)
    assert refused.value.where["key"] == key


def test_the_settings_of_every_method_are_checked_without_a_model():
    check_settings(load_config())
    for changes in (["method=['eris', 'nonsense']"], ["method=['eris', 'eris']"], ["method=['eris', 'gossip']"]):
        with pytest.raises(ConfigError):
            check_settings(load_config(changes=[*changes, "participation=0.5"]))


def test_a_schedule_of_a_file_moves_the_step():
    made = composed("server.schedule=stepwise", "server.schedule_options={every=10, factor=0.5}")
    assert [made.recipe.optimizer_at(round).lr for round in (9, 10, 25)] == [1.0, 0.5, 0.25]


@pytest.mark.parametrize("method", ["fedavg", "eris", "eris+dsc", "fedavg-dpsgd"])
@pytest.mark.parametrize("compressor", ["rand_k", "bernoulli", "stratified_rand_k", "identity"])
def test_what_is_on_the_list_of_fixed_point(method, compressor):
    changes = [FIXED, f"compression.compressor={compressor}", "server.optimizer=fedyogi", "compression.gamma=diana"]
    assert composed(*changes, method=method).recipe.encoding is not None


def test_noise_and_buffers_are_refused():
    noisy = ["privacy.clip=1.0", "privacy.noise_multiplier=1.0"]
    composed(*noisy)
    with pytest.raises(ConfigError, match="buffers"):
        composed(*noisy, spec=WITH_BUFFERS)


def test_the_data_must_have_as_many_members():
    with pytest.raises(ConfigError, match="the data has 3 members"):
        composed(samples=[1, 2, 3])


def test_a_biased_compressor_with_gamma_one_is_ef21():
    made = composed("compression.compressor=top_k", "compression.gamma=1", method="eris+dsc")
    assert made.recipe.chain.describe() == "shift(top_k(0.2), gamma=1.0)"


def test_the_order_of_the_chain():
    changes = ["privacy.clip=2.0", "privacy.noise_multiplier=0.5", "server.optimizer=fednova", "compression.keep=0.2"]
    described = composed(*changes, method="eris+dsc").recipe.chain.describe()
    names = ["normalise_steps", "clip_by_norm", "gaussian_noise", "shift"]
    assert [described.index(name) for name in names] == sorted(described.index(name) for name in names)


def test_fedavg_has_one_aggregator_that_is_no_member():
    made = composed("aggregators=5", "shards.capacities=[1.0, 2.0, 3.0, 4.0, 5.0]", method="fedavg")
    assert made.recipe.policy.shards == 1
    assert made.method.server
    assert made.aggregators == (0,)


def test_weights():
    weighted = composed("members=3", samples=[1, 2, 5])
    assert [entry.weight for entry in weighted.roster] == [1, 2, 5]
    uniform = composed("members=3", "server.weights=uniform", samples=[1, 2, 5])
    assert [entry.weight for entry in uniform.roster] == [1, 1, 1]


@pytest.mark.parametrize(
    ("changes", "could"),
    [
        (["method=eris"], True),
        (["method=scaffold"], True),
        (["method=eris+masked"], False),
        (["method=eris", "privacy.masking=pairs"], False),
        (["method=eris", "members=3"], False),
        (["method=eris", "server.rule=median"], False),
        (["method=fedavg"], False),
    ],
)
def test_who_is_told_that_plain_shards_could_be_masked(changes, could):
    assert could_be_masked(load_config(changes=changes)) is could
