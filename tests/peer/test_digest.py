"""Peers over real links end with the bits of the simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.peer.town import settings, simulated, town

FEDADAM = ["server.optimizer=fedadam", "server.optimizer_options={lr = 0.1}"]
CASES = {
    "one aggregator": ["aggregators=1"],
    "three aggregators of four": ["aggregators=3"],
    "everybody aggregates": [],
    "fedadam": FEDADAM,
    "dsc": ["method=eris+dsc"],
    "half take part": ["participation=0.5", "server.min_contributors=1"],
    "all together": ["method=eris+dsc", "aggregators=3", "participation=0.5", *FEDADAM],
    "mini-batches": ["data.name=synthetic-clouds", "local.batch=5"],  # all others have uneven weights
    "kept momentum": ["data.name=synthetic-clouds", "local.keep_state=true", "local.momentum=0.9"],
    "fixed point": ["server.encoding=fixed", "method=eris+dsc", "aggregators=3", *FEDADAM],
    "noise": ["privacy.clip=1.0", "privacy.noise_multiplier=0.5"],
}
MORE = {
    "median": ["server.rule=median"],
    "redrawn shards": ["shards.schedule=redraw"],
    "a server": ["method=fedavg"],
    "fixed point, everybody aggregates": ["server.encoding=fixed", "participation=0.5", "server.min_contributors=1"],
    "fixed point, two aggregators a shard": ["server.encoding=fixed", "shards.replicas=2", "server.limit=4.0"],
    "noise that makes a method": ["method=eris+ldp", "privacy.epsilon=10.0"],
    "six peers": ["members=6", "aggregators=4", "method=eris+dsc"],
}


@pytest.mark.parametrize(
    "changes",
    [*CASES.values(), *(pytest.param(case, marks=pytest.mark.slow) for case in MORE.values())],
    ids=[*CASES, *MORE],
)
def test_the_network_ends_with_the_model_of_the_simulator(changes: list[str], tmp_path: Path) -> None:
    config = settings("members=4", "rounds=3", *changes)
    with town(tmp_path, config) as place:
        nodes = [place.node(name) for name in place.names]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
        assert place.coordinator.wait(5.0) == "finished"
    assert {node.model_digest() for node in nodes} == {simulated(config, tmp_path / "run")}
    assert {node.member.replica.digest() for node in nodes} == {nodes[0].member.replica.digest()}


MASKED = {
    "one aggregator": ["aggregators=1"],
    "two aggregators": ["method=eris+dsc+masked", "aggregators=2", *FEDADAM],
    "everybody aggregates": ["participation=0.5", "server.min_contributors=1", "members=6"],
}
MASKED_MORE = {
    "two aggregators, both of each shard": ["aggregators=2", "shards.replicas=2"],
    "all but one aggregate": ["members=6", "aggregators=5", "method=eris+dsc+masked"],
    "two unmaskers": ["privacy.unmaskers=2", "method=eris+dsc+masked"],
    "two aggregators a shard": ["shards.replicas=2", "method=eris+dsc+masked"],
    "ten of ten": ["members=10", "aggregators=10"],
    "ten of ten, dsc": ["members=10", "aggregators=10", "method=eris+dsc+masked"],
}


@pytest.mark.parametrize(
    "changes",
    [*MASKED.values(), *(pytest.param(case, marks=pytest.mark.slow) for case in MASKED_MORE.values())],
    ids=[*MASKED, *MASKED_MORE],
)
def test_masked_shards_end_with_the_bits_of_plain_fixed_point(changes: list[str], tmp_path: Path) -> None:
    config = settings("members=4", "rounds=3", "method=eris+masked", *changes)
    with town(tmp_path, config) as place:
        nodes = [place.node(name) for name in place.names]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
        assert place.coordinator.wait(5.0) == "finished"
        assert place.coordinator.coordinator.lost_reasons == {}
    dropped = {"method=eris+masked", "method=eris+dsc+masked", "privacy.unmaskers=2"}
    method = "method=eris+dsc" if "method=eris+dsc+masked" in changes else "method=eris"
    rest = [change for change in changes if change not in dropped]
    plain = settings("members=4", "rounds=3", method, "server.encoding=fixed", *rest)
    assert {node.model_digest() for node in nodes} == {simulated(plain, tmp_path / "run")}


BATCH_NORM = ["model.name=tiny-batchnorm", "data.name=mnist-sample", "data.samples=8", "data.test_samples=20"]


@pytest.mark.parametrize("method", ["eris", pytest.param("eris+dsc", marks=pytest.mark.slow)])
@pytest.mark.parametrize("aggregators", [7, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 2, 8))])
def test_running_statistics_under_masks_are_those_of_plain_fixed_point(
    method: str, aggregators: int, tmp_path: Path
) -> None:
    """Buffers travel in a ring of 64 bits, under the same pads: half of eight peers in each round, FedAdam."""
    changes = ["members=8", "rounds=3", f"aggregators={aggregators}", "participation=0.5", *FEDADAM, *BATCH_NORM]
    config = settings(*changes, method=f"{method}+masked")
    with town(tmp_path, config) as place:
        nodes = [place.node(name) for name in place.names]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
        assert place.coordinator.wait(5.0) == "finished"
        assert place.coordinator.coordinator.lost_reasons == {}
    member = nodes[0].member
    statistics = member.replica.model[member.recipe.spec.n_trainable :]
    assert statistics.size == 8
    assert not np.isin(statistics, (0.0, 1.0)).any()  # as a mean and a variance begin
    plain = settings(*changes, "server.encoding=fixed", method=method)
    assert {node.model_digest() for node in nodes} == {simulated(plain, tmp_path / "run")}


NETWORK = ["data.name=mnist-sample", "data.samples=8", "data.test_samples=20", "local.steps=2", "local.momentum=0.0"]


@pytest.mark.parametrize(
    "changes",
    [
        ["method=eris+ldp", "privacy.noise=shares", "privacy.epsilon=20"],
        pytest.param(["method=eris+dsc+ldp", "aggregators=2"], marks=pytest.mark.slow),
        pytest.param(["method=eris+dsc+ldp", "privacy.noise=shares", "privacy.colluders=0"], marks=pytest.mark.slow),
        ["method=scaffold", *NETWORK],
    ],
    ids=["shares of noise", "noise of one's own", "shares and compression", "scaffold"],
)
def test_noise_and_control_variates_under_masks_end_with_the_simulators_bits(
    changes: list[str], tmp_path: Path
) -> None:
    config = settings("members=4", "rounds=3", "privacy.masking=pairs", *changes)
    with town(tmp_path, config) as place:
        nodes = [place.node(name) for name in place.names]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
        assert place.coordinator.wait(5.0) == "finished"
        assert place.coordinator.coordinator.lost_reasons == {}
    assert {node.model_digest() for node in nodes} == {simulated(config, tmp_path / "masked")}
    if "privacy.noise=shares" not in changes:  # which nobody may have without masks
        plain = settings("members=4", "rounds=3", "server.encoding=fixed", *changes)
        assert simulated(plain, tmp_path / "plain") == nodes[0].model_digest()
