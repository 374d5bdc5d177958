"""Where a comparison stops: after so many rounds, or where FedAvg's validation loss is lowest."""

from __future__ import annotations

import pytest

from eris.config import dump_config, load_config
from eris.errors import ConfigError
from eris.simulate.comparison import Comparison, arm
from eris.simulate.run import run
from tests.simulate.setting import settings

RISING = ["data.name=synthetic-quadratic", "server.optimizer=fedavgm", "rounds=9"]  # runs past the minimum, and back


def test_a_file_may_say_it_in_the_place_of_rounds(tmp_path):
    path = tmp_path / "stop.toml"
    path.write_text('rounds = "fedavg-best"\n')
    config = load_config(path)
    assert (config.stop, config.rounds) == ("fedavg-best", load_config().rounds)
    (tmp_path / "again.toml").write_text(dump_config(config))
    assert load_config(tmp_path / "again.toml") == config
    assert load_config(path, changes=["rounds=7"]).stop == "rounds"  # who gives a number means it


def test_a_comparison_stops_there(tmp_path):
    config = settings(*RISING, "stop=fedavg-best")
    result = Comparison(config, [arm("eris"), arm("eris+dsc")], tmp_path).run()
    assert result["stop"] == "fedavg-best"
    assert 1 < result["rounds"][0] < 9
    assert [line["folds"][0]["rounds"] for line in result["methods"]] == result["rounds"] * 2


def test_a_single_run_cannot(tmp_path):
    with pytest.raises(ConfigError, match="known only if FedAvg runs too") as refused:
        run(settings(*RISING, "stop=fedavg-best"), tmp_path / "run")
    assert refused.value.where["key"] == "stop"
    with pytest.raises(ConfigError, match="which all methods share"):
        arm("eris:stop=fedavg-best")
