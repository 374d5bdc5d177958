"""The Ray engine against the local one, and the way to a cluster."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace

import numpy as np
import pytest

from eris.errors import ConfigError, TaskError
from eris.simulate import ray_cluster
from eris.simulate.work import Job
from eris.simulate.worker_process import TaskSource
from tests.simulate.setting import NoStates, play, prepare, settings

ray = pytest.importorskip("ray")
KEPT = "local.keep_state=true"


def source(*changes, factory="eris.tasks:build_task"):
    return TaskSource(factory, {"config": settings(*changes).model_dump(mode="json", exclude_none=True)})


@pytest.fixture(scope="module")
def cluster():
    from eris.simulate.ray_engine import RayEngine

    engine = RayEngine(source(KEPT), workers=2)
    yield engine
    engine.close()


@pytest.mark.parametrize("changes", [[], ["participation=0.7", "faults.link_failure=0.2"], ["server.encoding=fixed"]])
def test_a_cluster_does_not_change_a_bit(cluster, changes, tmp_path):
    config = settings(KEPT, *changes, method="eris+dsc")
    alone, together = play(config, tmp_path / "a"), prepare(config, tmp_path / "b", engine=cluster)
    if "server.encoding=fixed" in changes:
        together.simulation.listen((), lambda: False)  # nobody asks for views: the nodes add up
    together.simulation.play(config.rounds)
    assert alone.digest == together.digest


def test_states_stay_where_they_are(cluster, tmp_path, monkeypatch):
    """After its first job a member's state does not travel to its home any more, even if a round is done again."""
    config = settings(KEPT, method="eris+dsc")
    alone, together = play(config, tmp_path / "a"), prepare(config, tmp_path / "b", engine=cluster)
    read, asked = together.simulation.states.read, []
    monkeypatch.setattr(together.simulation.states, "read", lambda member: asked.append(member) or read(member))
    together.simulation.play(config.rounds)
    assert alone.digest == together.digest
    assert asked == []
    homes = {member: cluster._where[member][0] for member in range(7)}
    assert all(homes[member] is cluster._homes[member % 2] for member in range(7))


def test_an_actor_that_has_let_go_of_a_state_is_sent_it_again(cluster, tmp_path, monkeypatch):
    config = settings(KEPT, method="eris+dsc")
    alone, together = play(config, tmp_path / "a"), prepare(config, tmp_path / "b", engine=cluster)

    def forget():
        ray.get([hand.actor.__ray_call__.remote(lambda actor: actor._held.clear()) for hand in cluster._hands])

    together.simulation.play(config.rounds, after_round=forget)
    assert alone.digest == together.digest


def test_two_processes_do_the_work(cluster):
    pids = ray.get([hand.actor.__ray_call__.remote(lambda _: os.getpid()) for hand in cluster._hands])
    assert len({*pids, os.getpid()}) == 3


def test_long_jobs_go_first_and_results_come_in_order(cluster, tmp_path, monkeypatch):
    played = prepare(settings(KEPT), tmp_path, engine=cluster)
    samples = np.array([5, 9, 1, 7, 3, 8, 2])
    monkeypatch.setattr(cluster, "facts", replace(cluster.facts, samples=samples))
    given, ask = [], cluster._ask
    monkeypatch.setattr(
        cluster, "_ask", lambda hand, cohort, *rest: given.append(cohort[0].member) or ask(hand, cohort, *rest)
    )
    cluster.begin(played.composition)
    monkeypatch.setattr(cluster, "_remembers", False)
    cluster.publish(played.simulation.replica)
    works = list(cluster.train([Job(0, member) for member in range(7)], NoStates()))
    assert given == [1, 5, 3, 0, 4, 6, 2]
    assert [work.job.member for work in works] == list(range(7))


def test_an_error_of_a_member_reaches_the_caller(cluster, tmp_path):
    config = settings(KEPT, method="eris")
    played = prepare(config, tmp_path, engine=cluster)
    cluster.begin(played.composition)
    cluster.publish(played.simulation.replica)

    def spoil(actor):
        actor._task.train = lambda *given, **named: 1 // 0

    def mend(actor):
        del actor._task.train

    ray.get([hand.actor.__ray_call__.remote(spoil) for hand in cluster._hands])
    with pytest.raises(TaskError, match="local training failed with ZeroDivisionError") as caught:
        next(cluster.train([Job(0, 3)], NoStates()))
    ray.get([hand.actor.__ray_call__.remote(mend) for hand in cluster._hands])
    cluster.begin(played.composition)
    assert caught.value.where == {"peer": 3, "round": 0}


def test_memory_that_ran_out_on_the_cluster_is_told_as_such(cluster):
    with pytest.raises(MemoryError):
        cluster._get(cluster._hands[0].actor.__ray_call__.remote(lambda _: bytes(1 << 62)))
    with pytest.raises(TaskError, match="an actor failed with ZeroDivisionError"):
        cluster._get(cluster._hands[0].actor.__ray_call__.remote(lambda _: 1 // 0))


# ── the way there ────────────────────────────────────────────────────────────────────────────────────────────────────


def refused(address):
    began = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        ray_cluster._try(address)
    assert caught.value.where["key"] == "network.ray"
    assert caught.value.fix
    return str(caught.value), time.monotonic() - began


def test_an_address_where_nobody_listens_is_refused_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        said, seconds = refused(f"127.0.0.1:{taken.getsockname()[1]}")
    assert "nothing listens at 127.0.0.1" in said
    assert seconds < 5
    assert "is not an address" in refused("head-node")[0]


def test_somebody_who_is_no_ray_head_is_given_up_in_time(monkeypatch):
    monkeypatch.setattr(ray_cluster, "PATIENCE", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said, seconds = refused(f"127.0.0.1:{silent.getsockname()[1]}")
    assert "did not accept a connection within 4 s" in said or "no cluster at" in said
    assert seconds < 20
