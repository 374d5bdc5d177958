"""A Ray cluster of two nodes, of which one is killed; code and data that are sent there; what stands in the way."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from eris.config import load_config
from eris.errors import ConfigError, RunStopped
from eris.simulate import ray_cluster
from eris.simulate.run import run
from eris.simulate.worker_process import TaskSource
from tests.simulate.setting import play, prepare, settings
from tests.simulate.test_ray_engine import KEPT, refused, source

ray = pytest.importorskip("ray")
FIXED = [KEPT, "server.encoding=fixed"]
GOSSIP = [KEPT, "rounds=3", "members=4"]
MEMBERS = 20
BOTH = [("eris+dsc", [KEPT]), ("eris+dsc", FIXED)]


@pytest.fixture
def two_nodes():
    """A head for us, which trains nothing, and two nodes with two processors each, all real Ray on this machine."""
    from ray.cluster_utils import Cluster

    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 200, "health_check_timeout_ms": 1000}
    head = {"num_cpus": 0, "object_store_memory": 100 << 20, "_system_config": quick, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    workers = [nodes.add_node(num_cpus=2, num_gpus=1, object_store_memory=100 << 20) for _ in range(2)]
    yield nodes, workers
    ray.shutdown()
    nodes.shutdown()


@pytest.mark.slow
def test_a_node_that_dies_costs_its_rounds_jobs_and_nothing_else(two_nodes, tmp_path, caplog):
    """Digests of the local engine: floats and whole numbers, with states and sums on the node that is killed."""
    from eris.simulate.ray_engine import RayEngine

    nodes, workers = two_nodes
    for number, (method, changes) in enumerate(BOTH):
        config = settings(*changes, f"members={MEMBERS}", "rounds=6", "faults.link_failure=0.1", method=method)
        alone = play(config, tmp_path / f"a{number}")
        wait_for_room(nodes, 4)
        engine = RayEngine(source(*changes, f"members={MEMBERS}", "rounds=6"), 0, nodes.address, gpus=0.5)
        assert len(engine._hands) == 4
        before = {hand.node for hand in engine._hands}
        assert len(before) == len(working()) == 2
        asked = jobs_asked_for(engine)
        together = prepare(config, tmp_path / f"b{number}", engine=engine)
        killing = Killing(nodes, workers[1])
        caplog.clear()
        together.simulation.listen((killing,), lambda: False)
        together.simulation.play(config.rounds)
        assert killing.in_round == 2
        assert together.digest == alone.digest
        assert {hand.node for hand in engine._hands} < before
        assert len(working()) == 1
        again = asked - Counter(set(asked))
        assert {job.round for job in again} == {killing.in_round}
        assert 0 < again.total() == started_again(caplog.messages) <= MEMBERS
        engine.close()
        workers[:] = [workers[0], nodes.add_node(num_cpus=2, num_gpus=1, object_store_memory=100 << 20)]


def wait_for_room(nodes, processors):
    """Ray counts what was given back a moment later."""
    ray.init(address=nodes.address, log_to_driver=False)
    deadline = time.monotonic() + 60
    while ray.available_resources().get("CPU", 0) < processors:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    ray.shutdown()


def working():
    """The nodes that live and have processors, as Ray says."""
    return [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]


def jobs_asked_for(engine):
    """Count how often each job is given to an actor, but not when one asks for a state that it has let go."""
    asked, ask = Counter(), engine._ask

    def counted(hand, cohort, current, *, send=False):
        asked.update(() if send else cohort)
        ask(hand, cohort, current, send=send)

    engine._ask = counted
    return asked


def started_again(messages):
    """The jobs that the log says start again."""
    return sum(int(found[1]) for each in messages if (found := re.search(r"(\d+) jobs start again", each)))


class Killing:
    """Ends a node in the middle of a round: when some members are trained and others are not."""

    views = False

    def __init__(self, nodes, victim) -> None:
        self._nodes, self._victim, self._trained, self.in_round = nodes, victim, 0, None

    def __call__(self, event) -> None:
        self._trained += type(event).__name__ == "MemberTrained"
        if self._trained == 2 * MEMBERS + 5 and self.in_round is None:
            self.in_round = event.round
            self._nodes.remove_node(self._victim, allow_graceful=False)


@pytest.mark.slow
def test_a_node_with_another_version_of_eris_is_refused_by_name(two_nodes, tmp_path):
    """What is installed on a third node says that it is another version; nobody is left working afterwards."""
    from eris.simulate.ray_engine import _VERSION, RayEngine

    nodes, _ = two_nodes
    other = tmp_path / "eris_fl-0.0.9.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: eris-fl\nVersion: 0.0.9\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    nodes.add_node(num_cpus=2, object_store_memory=100 << 20, env_vars={"PYTHONPATH": path})
    wait_for_room(nodes, 6)
    with pytest.raises(ConfigError, match=f"has eris 0.0.9, but this machine has {_VERSION}") as caught:
        RayEngine(source(), 0, nodes.address)
    assert caught.value.where["key"] == "network.ray"
    assert "install the same version on all nodes" in str(caught.value.fix)
    wait_for_room(nodes, 6)


@pytest.mark.slow
def test_code_and_data_of_ones_own_are_sent_to_the_nodes(two_nodes, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "my_problem.py").write_text(OWN)
    (folder / "centres.txt").write_text("1.0 2.0 3.0\n")
    nodes, _ = two_nodes
    wait_for_room(nodes, 4)
    config = load_config(
        changes=[
            "method=eris", "members=5", "rounds=2", "engine=ray", "workers=2", f"network.ray={nodes.address}",
            f"network.ray_folder={folder}", "network.ray_gpus=0.5",
        ]
    )  # fmt: skip
    result = run(config, tmp_path / "run", task=TaskSource("my_problem:problem"))
    summary = result.summaries[0]
    assert summary["finished"]
    assert summary["parameters"] == 3
    with pytest.raises(ConfigError, match="8 workers need one each"):
        run(config.model_copy(update={"workers": 8}), tmp_path / "again", task=TaskSource("my_problem:problem"))


OWN = """
from pathlib import Path
import numpy as np
from eris.local.numpy_task import QuadraticTask

def problem(config):
    centres = np.array([float(word) for word in Path("centres.txt").read_text().split()])
    return QuadraticTask([centres + member for member in range(config["members"])])
"""


@pytest.mark.slow
def test_another_version_of_ray_or_no_token_is_told_in_a_sentence(two_nodes, monkeypatch):
    """The cluster and Ray's own check are real; only our side says that it is another version."""
    nodes, _ = two_nodes
    if os.environ.get("RAY_AUTH_MODE") == "token":
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("RAY_AUTH_TOKEN", "0" * 64)
            elsewhere.setattr(ray_cluster, "PATIENCE", 15.0)
            assert "does not accept this machine's token" in refused(nodes.address)[0]
    monkeypatch.setattr(ray_cluster, "_PROBE", "import ray; ray.__version__ = '1.2.3'" + ray_cluster._PROBE)
    said, _ = refused(nodes.address)
    assert "1.2.3" in said
    assert "install the same Ray and Python on both sides" in said


@pytest.mark.slow
def test_without_an_address_what_a_dead_cluster_left_behind_is_not_asked(tmp_path):
    """Where Ray keeps the last cluster's address there is one that nobody answers for; a run begins all the same."""
    left = Path(tempfile.gettempdir()) / "ray" / "ray_current_cluster"
    before = left.read_bytes() if left.exists() else None
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("127.0.0.1:1")
    try:
        result = run(settings("engine=ray", "workers=1", *GOSSIP, method="gossip"), tmp_path / "run")
    finally:
        left.unlink(missing_ok=True)
        if before is not None:
            left.write_bytes(before)
    alone = run(settings(*GOSSIP, method="gossip"), tmp_path / "alone")  # whose members' states change between jobs
    assert result.summaries[0]["model_digest"] == alone.summaries[0]["model_digest"]


@pytest.mark.slow
def test_a_member_that_kills_whoever_trains_it_ends_the_run_by_name(tmp_path):
    config = settings("engine=ray", "workers=4", "rounds=1", "members=6")
    with pytest.raises(RunStopped, match="3 Ray actors in a row died") as caught:
        run(config, tmp_path / "run", task=TaskSource("tests.simulate.test_ray_cluster:deadly"))
    assert caught.value.where["peer"] == 4


def deadly(config):
    from eris.tasks import build_task

    task = build_task(config)
    train = task.train
    task.train = lambda member, *given, **named: os._exit(1) if member == 4 else train(member, *given, **named)
    return task
