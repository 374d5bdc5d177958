"""The virtual clock: peers with rates and training times of their own, and what a round then takes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eris.compose import compose
from eris.config import dump_config, load_config
from eris.errors import ConfigError
from eris.events import RoundEnded, ShardPublished
from eris.local.spec import ModelSpec
from eris.simulate.clock import Links, links_of
from eris.simulate.run import run
from eris.wire.frame import HEADER_BYTES
from tests.simulate.setting import play, settings

QUADRATIC = ["data.name=synthetic-quadratic", "model.options={n=700}", "rounds=2"]
MESSAGE = 4 * 100 + HEADER_BYTES  # a seventh of the model


def traffic(tmp_path, *changes, method="eris"):
    return play(settings(*QUADRATIC, *changes, method=method), tmp_path).of(RoundEnded)[0].traffic


def test_every_peer_has_links_of_its_own(tmp_path):
    found = traffic(tmp_path, "network.up=[1e3, 2e3, 4e3, 1e6, 1e6, 1e6, 1e6]", "network.down=3e3")
    assert found.seconds == pytest.approx(6 * MESSAGE / 1e3 + 6 * MESSAGE / 1e3)  # of the slowest, both ways
    assert traffic(tmp_path, "network.up=1e6", "network.down=3e3").seconds == pytest.approx(12 * MESSAGE / 3e3)


def test_lists_of_equal_numbers_are_that_number(tmp_path):
    one = traffic(tmp_path, "network.up=5e3", "network.down=7e3", "network.compute=2")
    lists = ["network.up=[5e3,5e3,5e3,5e3,5e3,5e3,5e3]", "network.down=[7e3,7e3,7e3,7e3,7e3,7e3,7e3]"]
    assert traffic(tmp_path, *lists, "network.compute=[2,2,2,2,2,2,2]") == one


def test_a_server_has_the_best_link_and_slow_members_are_slower_still():
    network = load_config(changes=["network.up=[1,5,3]", "network.down=[4,2,2]", "network.compute=[1,2,3]"]).network
    links = links_of(network, 3, {2}, 10.0)
    assert links.up.tolist() == [1.0, 5.0, 0.3, 5.0]
    assert links.down.tolist() == [4.0, 2.0, 0.2, 4.0]
    assert links.compute.tolist() == [1.0, 2.0, 30.0, 0.0]


@pytest.mark.parametrize("method", ["fedavg", "eris", "gossip", "shatter"])
def test_a_round_takes_its_training_and_its_distribution(method, tmp_path):
    idle, busy = (
        run(settings(*QUADRATIC, f"network.compute={seconds}", method=method), tmp_path / str(seconds)).summaries[0]
        for seconds in (0, 100)
    )
    assert idle["virtual_round_seconds"] == pytest.approx(idle["distribution_seconds"])
    assert busy["distribution_seconds"] == idle["distribution_seconds"]
    assert busy["virtual_round_seconds"] == pytest.approx(100 + busy["distribution_seconds"])


def test_who_trains_for_long_may_be_done_before_who_has_a_bad_link():
    links = Links(up=np.array([100.0, 10.0]), down=np.array([1e9, 1e9]), compute=np.array([8.0, 1.0]))
    sent, received = np.array([100, 100]), np.array([100, 100])
    assert links.gathered([0, 1], sent, received) == pytest.approx(11.0)  # max(8 + 1, 1 + 10), not 8 + 10
    assert links.gathered([0], np.array([100, 0]), np.array([0, 100])) == pytest.approx(9.0)
    assert links.gathered([], np.array([0, 0]), np.array([0, 0])) == 0.0


def test_only_who_takes_part_is_waited_for(tmp_path):
    played = play(settings("participation=0.5", "network.compute=[1,2,3,4,5,6,7]"), tmp_path)
    for ended, published in zip(played.of(RoundEnded), played.of(ShardPublished)[::7], strict=True):
        slowest = max(published.contributors) + 1
        assert slowest < ended.traffic.round_seconds < slowest + 1


def test_a_member_that_is_too_slow_is_waited_for_until_the_deadline(tmp_path):
    compute = "network.compute=[1,1,1,1,1,1,50]"
    cut = play(settings(*QUADRATIC, compute, "network.deadline=20"), tmp_path)
    assert {event.contributors for event in cut.of(ShardPublished)} == {(0, 1, 2, 3, 4, 5)}
    assert 20 < cut.of(RoundEnded)[0].traffic.round_seconds < 20.1  # and the way down
    assert 50 < traffic(tmp_path, compute).round_seconds < 50.1
    in_time = traffic(tmp_path, "network.compute=1", "network.deadline=20")
    assert 1 < in_time.round_seconds < 1.1


def test_the_folder_tells_the_virtual_time(tmp_path):
    summary = run(settings(*QUADRATIC, "network.compute=3"), tmp_path / "run").summaries[0]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for told in (summary, *lines):
        assert told["virtual_round_seconds"] == pytest.approx(3 + told["distribution_seconds"])


@pytest.mark.parametrize("key", ["up", "down", "compute"])
def test_a_list_is_for_every_member(key):
    config = settings(f"network.{key}=[1, 2, 3]", "members=3")
    assert load_config(json.loads(config.model_dump_json())) == config
    assert f"{key} = [" in dump_config(config)
    spec = ModelSpec.flat(10)
    compose(config, spec, [1, 1, 1])
    for members in (2, 4):
        with pytest.raises(ConfigError, match=rf"network.{key} has 3 numbers for {members} .*key=network.{key}"):
            compose(settings(f"network.{key}=[1, 2, 3]", f"members={members}"), spec, [1] * members)


def test_a_rate_below_zero_is_refused_in_a_list_too():
    with pytest.raises(ConfigError, match=r"network\.up cannot be \[1, -2\] \[key=network.up\]"):
        load_config(changes=["network.up=[1, -2]"])


@pytest.mark.parametrize("method", ["gossip", "shatter", "ako", "qdpsgd"])
def test_where_nobody_aggregates_nobody_has_a_deadline(method, tmp_path):
    with pytest.raises(ConfigError, match=r"network\.deadline"):
        run(settings(*QUADRATIC, "network.deadline=5", method=method), tmp_path / "run")
