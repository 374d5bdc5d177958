from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.config import Config, commented_config, dump_config, load_config
from eris.errors import ConfigError


def test_the_defaults_need_nothing():
    config = load_config()
    assert config.methods == ("fedavg", "eris", "eris+dsc", "eris+masked")
    assert (config.members, config.aggregators, config.data.name, config.model.name) == (
        10,
        10,
        "mnist-sample",
        "lenet5",
    )


def test_aggregators_follow_the_members_unless_said():
    assert load_config(changes=["members=4"]).aggregators == 4
    assert load_config(changes=["members=4", "aggregators=2"]).aggregators == 2
    assert load_config({"members": 6}).aggregators == 6


@given(
    seed=st.integers(0, 2**63 - 1),
    gamma=st.one_of(st.sampled_from(["paper", "diana"]), st.floats(0.001, 1)),
    methods=st.lists(st.text("abc+-", min_size=1), min_size=1, max_size=3),
    batch=st.one_of(st.just("full"), st.integers(1, 99)),
)
def test_what_is_written_is_read_back_the_same(seed, gamma, methods, batch):
    given_ = {"seed": seed, "method": methods, "compression": {"gamma": gamma}, "local": {"batch": batch}}
    config = load_config(given_)
    again = load_config(tomllib.loads(dump_config(config)))
    assert again == config
    assert again.digest == config.digest


def test_a_file_and_changes_to_it(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('method = "eris"\nrounds = 7\n[data]\nalpha = 0.2\n')
    config = load_config(path, changes=["rounds=9", "data.partition=dirichlet", "model.options={width=3}"])
    assert (config.methods, config.rounds, config.data.alpha) == (("eris",), 9, 0.2)
    assert (config.data.partition, config.model.options) == ("dirichlet", {"width": 3})


def test_the_starter_file_is_the_defaults():
    text = commented_config()
    assert load_config(tomllib.loads(text)) == Config()
    settings = [line for line in text.splitlines() if "=" in line]
    assert all("#" in line for line in settings)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("round=3", "there is no key round [key=round, value=3]: did you mean rounds?"),
        ("data.alpa=3", "there is no key data.alpa [key=data.alpa, value=3]: did you mean data.alpha?"),
        (
            "zzz.bar=1",
            "there is no key zzz [key=zzz, value={'bar': 1}]: use one of aggregators, compression, data",
        ),
        ("members=ten", "members cannot be 'ten' [key=members]: use a whole number"),
        ("members=0", "members cannot be 0 [key=members]: use a number greater than or equal to 1"),
        ("participation=true", "participation cannot be True [key=participation]: use a number"),
        ("participation=1.5", "participation cannot be 1.5 [key=participation]: use a number less than or equal to 1"),
        ("compression.gamma=3", "compression.gamma cannot be 3 [key=compression.gamma]: use 'paper' or 'diana', or"),
        ("shards.plan=foo", "shards.plan cannot be 'foo' [key=shards.plan]: use 'random', 'contiguous' or 'tensor'"),
        ("engine=spark", "engine cannot be 'spark' [key=engine]: use 'local' or 'ray'"),
        ("data=3", "data cannot be 3 [key=data]: use a table"),
        ("method=[]", "method cannot be [] [key=method]: use a string, or a list with at least 1 item"),
        ("network.up=inf", "network.up cannot be inf [key=network.up]: use a finite number"),
        ("rounds", "'rounds' is not a setting: write --set key=value"),
        ("rounds.x=1", "rounds is not a table"),
    ],
)
def test_an_error_names_key_value_and_what_is_allowed(change, says):
    with pytest.raises(ConfigError) as error:
        load_config({"rounds": 5}, changes=[change])
    assert says in str(error.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="no such configuration file"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(tmp_path / "bad.toml")


def test_a_folder_in_the_place_of_a_file(tmp_path):
    with pytest.raises(ConfigError, match=r"Is a directory.*give a TOML file"):
        load_config(tmp_path)
    (tmp_path / "config.toml").write_text("rounds = 3")
    with pytest.raises(ConfigError, match=f"--resume {tmp_path}"):
        load_config(tmp_path)


@pytest.mark.parametrize(("line", "change"), [("members = 10", "members = 4"), ('= "sgd"', '= "adam"')])
def test_what_follows_another_setting_is_not_said_by_the_starter_file(line, change):
    text = commented_config().replace(line, change, 1)
    changed = load_config(tomllib.loads(text))
    assert changed.aggregators == changed.members
    assert changed.local.momentum == (0.0 if changed.local.optimizer == "adam" else 0.9)


def test_whoever_says_epochs_means_epochs():
    assert load_config().local.steps == 6
    assert load_config(changes=["local.epochs=2"]).local.steps == 0
    assert load_config(changes=["local.batch=full"]).local.steps == 0
    assert load_config(changes=["local.batch=8", "local.steps=3"]).local.steps == 3


def test_whoever_says_adam_means_no_momentum():
    assert load_config().local.momentum == 0.9
    assert load_config(changes=["local.optimizer=adam"]).local.momentum == 0.0
    assert load_config(changes=["local.optimizer=adam", "local.momentum=0.5"]).local.momentum == 0.5


def test_the_digest_says_what_decides_the_result():
    config = load_config()
    for same in ("workers=7", "engine=ray", "network.ray=auto", "local.device=auto"):
        assert load_config(changes=[same]).digest == config.digest
    for other in (
        "seed=2",
        "rounds=3",
        "local.lr=0.5",
        "local.precision=bf16",
        "local.loss=mse",
        "faults.link_failure=0.1",
    ):
        assert load_config(changes=[other]).digest != config.digest


def test_changes_leave_what_was_given_alone():
    given_ = {"data": {"alpha": 0.3}}
    load_config(given_, changes=["data.alpha=0.9"])
    assert given_ == {"data": {"alpha": 0.3}}
