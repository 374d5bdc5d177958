"""The Ray engine against the local one."""

from __future__ import annotations

import os

import pytest

from eris.errors import ConfigError, TaskError
from eris.simulate.worker_process import TaskSource
from tests.simulate.setting import play, prepare, settings

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    from eris.simulate.ray_engine import RayEngine

    plain = settings("local.keep_state=true").model_dump(mode="json", exclude_none=True)
    engine = RayEngine(TaskSource("eris.tasks:build_task", {"config": plain}), workers=2)
    yield engine
    engine.close()


@pytest.mark.parametrize("changes", [[], ["participation=0.7", "faults.link_failure=0.2"]])
def test_a_cluster_does_not_change_a_bit(cluster, changes, tmp_path):
    config = settings("local.keep_state=true", *changes, method="eris+dsc")
    alone, together = play(config, tmp_path / "a"), prepare(config, tmp_path / "b", engine=cluster)
    together.simulation.play(config.rounds)
    assert alone.digest == together.digest


def test_two_processes_do_the_work(cluster):
    import ray

    pids = ray.get([actor.__ray_call__.remote(lambda _: os.getpid()) for actor in cluster._actors])
    assert len({*pids, os.getpid()}) == 3


def test_an_error_of_a_member_reaches_the_caller(cluster, tmp_path):
    config = settings("local.keep_state=true", method="eris")
    played = prepare(config, tmp_path, engine=cluster)
    cluster.begin(played.composition)
    cluster.publish(played.simulation.replica)
    from eris.simulate.work import Job

    with pytest.raises((TaskError, ConfigError)):
        next(cluster.train([Job(0, 99)], lambda member: None))


def test_memory_that_ran_out_on_the_cluster_is_told_as_such(cluster):
    with pytest.raises(MemoryError):
        cluster._get(cluster._actors[0].__ray_call__.remote(lambda _: bytes(1 << 62)))
    with pytest.raises(TaskError, match="an actor failed with ZeroDivisionError"):
        cluster._get(cluster._actors[0].__ray_call__.remote(lambda _: 1 // 0))
