"""The coordinator never sees an update: its bytes do not grow with the model, and no pattern of one reaches it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eris.local.spec import ModelSpec
from eris.local.task import LocalResult
from eris.peer.node import Node
from eris.transport import control_server
from eris.transport.stream_link import StreamLink
from tests.peer.town import Town, settings, town

PATTERN = np.float32(-1234.5678)


class Planted:
    """Every member's update is one unmistakable number over and over."""

    members = 3

    def __init__(self, n: int) -> None:
        self.spec = ModelSpec.flat(n)

    def samples(self, member: int) -> int:
        return 1

    def initial(self, seed: object) -> np.ndarray:
        return np.zeros(self.spec.n, np.float32)

    def memory(self, member: int) -> dict[str, np.ndarray]:
        return {}

    def train(self, member: int, model: np.ndarray, memory: dict, *, round: int, seed: object) -> LocalResult:
        return LocalResult(np.full(self.spec.n, PATTERN), samples=1)

    def evaluate(self, model: np.ndarray) -> dict[str, float]:
        return {}


def play(place: Town, n: int) -> list[Node]:
    nodes = [place.node(name, task=Planted(n)) for name in place.names]
    for node in nodes:
        place.start(node.settings.name, node.run)
    place.wait()
    return nodes


def bytes_per_round(folder: Path, n: int) -> float:
    config = settings("members=3", "rounds=8", "shards.block=1024", "compression.keep=0.01", method="eris+dsc")
    with town(folder, config) as place:
        play(place, n)
        traffic = place.coordinator.overview().control
    return (traffic.received + traffic.sent) / config.rounds


def test_its_bytes_do_not_depend_on_the_size_of_the_model(tmp_path: Path) -> None:
    small, large = bytes_per_round(tmp_path / "small", 10**3), bytes_per_round(tmp_path / "large", 10**7)
    assert large == pytest.approx(small, rel=0.05)


def test_no_pattern_of_an_update_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard, on_links = bytearray(), bytearray()
    decode, receive_into = control_server.decode, StreamLink.receive_into

    def decode_overheard(kind: type, data: bytes) -> object:
        heard.extend(data)
        return decode(kind, data)

    def overheard(link: StreamLink, view: memoryview, *, deadline: float | None = None) -> None:
        receive_into(link, view, deadline=deadline)
        on_links.extend(bytes(view))

    monkeypatch.setattr(control_server, "decode", decode_overheard)
    monkeypatch.setattr(StreamLink, "receive_into", overheard)
    with town(tmp_path, settings("members=3", "rounds=2")) as place:
        play(place, 3_000)
    pattern = PATTERN.tobytes()
    assert pattern in bytes(on_links), "the pattern must be where it belongs, or this test says nothing"
    for form in (pattern, pattern.hex().encode(), str(float(PATTERN)).encode()):
        assert form not in bytes(heard)
