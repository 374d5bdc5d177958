"""Bytes and virtual seconds against closed forms, and against real messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eris.config import load_config
from eris.events import RoundEnded, Sent, ShardPublished
from eris.seeds import private_root
from eris.simulate.clock import Links, links_of
from eris.simulate.traffic import payload_sizes, shared_payload_sizes
from eris.transforms import SendContext, chain, compressor_by_name
from eris.wire.frame import HEADER_BYTES
from tests.simulate.setting import play, settings

QUADRATIC = ["data.name=synthetic-quadratic", "model.options={n=700}", "rounds=2"]


def test_fedavg_moves_2kb_through_its_server(tmp_path):
    played = play(settings(*QUADRATIC, method="fedavg"), tmp_path)
    traffic, message = played.of(RoundEnded)[0].traffic, 4 * 700 + HEADER_BYTES
    assert (traffic.member.up, traffic.member.down) == (message, message)
    assert (traffic.aggregator.up, traffic.aggregator.down) == (7 * message, 7 * message)
    assert traffic.total == 2 * 7 * message
    assert traffic.seconds == pytest.approx(2 * 7 * message / 20e6)


def test_eris_sends_all_but_its_own_shard(tmp_path):
    played = play(settings(*QUADRATIC), tmp_path)
    traffic, message = played.of(RoundEnded)[0].traffic, 4 * 100 + HEADER_BYTES
    assert (traffic.member.up, traffic.member.down) == (6 * message, 6 * message)
    assert (traffic.aggregator.up, traffic.aggregator.down) == (6 * message, 6 * message)
    assert traffic.seconds == pytest.approx(2 * 6 * message / 20e6)  # (K−1)/K · (b + b) / R


def test_what_is_sent_is_received(tmp_path):
    changes = ["participation=0.6", "aggregators=3", "faults.link_failure=0.2"]
    played = play(settings(*QUADRATIC, *changes, method="eris+dsc"), tmp_path)
    sent = sum(sum(event.bytes) for event in played.of(Sent))
    published = sum(event.bytes * 6 for event in played.of(ShardPublished))
    assert sum(event.traffic.total for event in played.of(RoundEnded)) == sent + published


def test_shared_masks_shrink_the_download_too(tmp_path):
    keep = ["compression.keep=0.05", "compression.masks="]
    shared = play(settings(*QUADRATIC, keep[0], keep[1] + "shared", method="eris+dsc"), tmp_path / "a")
    own = play(settings(*QUADRATIC, keep[0], keep[1] + "independent", method="eris+dsc"), tmp_path / "b")
    one, other = (played.of(RoundEnded)[0].traffic.member for played in (shared, own))
    headers = 6 * HEADER_BYTES
    assert one.down - headers < 0.08 * 4 * 700
    assert other.down - headers == 4 * 600


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("identity", {}),
        ("rand_k", {"p": 0.1}),
        ("rand_k", {"p": 0.1, "independent": True}),
        ("stratified_rand_k", {"p": 0.1}),
        ("bernoulli", {"p": 0.2}),
        ("top_k", {"p": 0.1}),
        ("top_k", {"p": 0.9}),
        ("qsgd", {"levels": 5}),
        ("terngrad", {}),
        ("sign", {}),
        ("fp16", {}),
    ],
)
def test_sizes_without_cutting_are_the_sizes_of_the_parts(name, parameters, tmp_path):
    agreed = play(settings(*QUADRATIC, "rounds=1"), tmp_path).composition.recipe
    recipe = replace(agreed, chain=chain(compressor_by_name(name, **parameters)))
    plan = recipe.layout(0).trainable
    private = private_root(1, peer=0).child("round", 0)
    context = SendContext(0, 0, plan, recipe.round_seed(0), private, recipe.spec.trainable_sizes)
    vector = np.sin(np.arange(700, dtype=np.float32))
    packed = recipe.compressor.compress(vector, context)
    sizes = tuple(part.payload_bytes for part in packed.parts(plan))
    assert payload_sizes(packed, plan) == sizes
    if recipe.compressor.shared_support:
        assert shared_payload_sizes(recipe, 0) == sizes


def test_the_slowest_peer_decides():
    links = Links(up=np.array([10.0, 1.0]), down=np.array([10.0, 10.0]), compute=np.zeros(2))
    assert links.phase(np.array([10, 10]), np.array([0, 0])) == 10.0
    assert links.phase(np.array([10, 0]), np.array([0, 30])) == 3.0


def test_slow_members_are_slow_and_a_server_is_not():
    links = links_of(load_config().network, 3, {1}, 10.0)
    assert links.up.tolist() == [20e6, 2e6, 20e6, 20e6]
