"""Frames: every byte where docs/wire.md says, and no bytes at all that could raise anything but a refusal."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.aggregate import Staging
from eris.errors import InputError, Reason, Refused
from eris.wire import HEADER_BYTES, Header, Kind, frames, run_tag
from eris.wire.frame import LONGEST_CHUNK
from eris.wire.version import VERSION

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**63)

FULL = Header(
    kind=Kind.CONTRIBUTION, total=1_000, offset=400, length=200, symbols=250, epoch=2, round=7, shard=3, member=5,
    steps=12.5, explicit=True, mask_key=bytes(range(16)), run=run_tag("a run"), plan=b"p" * 32, chain=b"c" * 32,
)  # fmt: skip


@st.composite
def headers(draw: st.DrawFn) -> Header:
    length = draw(st.integers(1, 2**20))
    offset = draw(U64)
    total = offset + length + draw(U32)
    return Header(
        kind=draw(st.sampled_from(Kind)), total=total, offset=offset, length=length,
        symbols=draw(st.integers(0, min(8 * total, 2**64 - 1))), epoch=draw(U32), round=draw(U32), shard=draw(U32),
        member=draw(U32), steps=draw(st.floats(0, 1e300)), explicit=draw(st.booleans()), compact=draw(st.booleans()),
        mask_key=draw(st.sampled_from([b"", bytes(16), b"k" * 16])), run=draw(st.binary(min_size=16, max_size=16)),
        plan=draw(st.binary(min_size=32, max_size=32)), chain=draw(st.binary(min_size=32, max_size=32)),
    )  # fmt: skip


@given(headers())
def test_what_is_written_is_read(header: Header) -> None:
    data = header.encode()
    assert len(data) == HEADER_BYTES == 160
    assert Header.decode(data) == header
    assert Header.decode(memoryview(bytearray(data))) == header


def test_every_field_is_where_the_document_says() -> None:
    data = FULL.encode()
    assert data[0:4] == b"ERIS"
    assert struct.unpack("<H", data[4:6]) == (VERSION,)
    assert (data[6], data[7]) == (2, 0b101)
    assert struct.unpack("<IIII", data[8:24]) == (2, 7, 3, 5)
    assert struct.unpack("<d", data[24:32]) == (12.5,)
    assert struct.unpack("<QQQQ", data[32:64]) == (1_000, 400, 200, 250)
    assert data[64:80] == bytes(range(16))
    assert data[80:96] == run_tag("a run")
    assert (data[96:128], data[128:160]) == (b"p" * 32, b"c" * 32)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        pytest.param(0, b"HTTP", id="magic"),
        pytest.param(6, b"\x00", id="kind 0"),
        pytest.param(6, b"\x0b", id="kind 11"),
        pytest.param(7, b"\x10", id="unknown flag"),
        pytest.param(7, b"\x01", id="key without its flag"),
        pytest.param(24, struct.pack("<d", float("nan")), id="nan steps"),
        pytest.param(24, struct.pack("<d", float("inf")), id="infinite steps"),
        pytest.param(24, struct.pack("<d", -1.0), id="negative steps"),
        pytest.param(32, struct.pack("<Q", 599), id="beyond the end"),
        pytest.param(40, struct.pack("<Q", 2**64 - 1), id="offset"),
        pytest.param(48, struct.pack("<Q", 601), id="length"),
        pytest.param(48, struct.pack("<Q", 0), id="empty chunk"),
        pytest.param(32, struct.pack("<QQQ", 2**40, 0, LONGEST_CHUNK + 1), id="too long"),
        pytest.param(56, struct.pack("<Q", 8_001), id="more values than bits"),
    ],
)
def test_malformed_headers_are_refused(place: int, value: bytes) -> None:
    data = bytearray(FULL.encode())
    data[place : place + len(value)] = value
    with pytest.raises(Refused) as caught:
        Header.decode(data)
    assert caught.value.reason is Reason.MALFORMED


@pytest.mark.parametrize("version", [0, VERSION - 1, VERSION + 1, 65535])
def test_a_frame_of_another_version_is_told_so_by_name(version: int) -> None:
    data = bytearray(FULL.encode())
    data[4:6] = struct.pack("<H", version)
    with pytest.raises(Refused, match=f"a frame of wire version {version} met version {VERSION}") as caught:
        Header.decode(data)
    assert caught.value.reason is Reason.WRONG_VERSION


@pytest.mark.parametrize("length", [0, 1, 159, 161])
def test_a_header_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(Refused) as caught:
        Header.decode(bytes(length))
    assert caught.value.reason is Reason.MALFORMED


def test_twenty_thousand_damaged_frames_raise_nothing_but_refusals() -> None:
    generator, good = np.random.default_rng(11), np.frombuffer(FULL.encode(), np.uint8)
    reasons: list[Reason] = []
    for _ in range(20_000):
        damaged = good.copy()
        places = generator.integers(0, HEADER_BYTES, generator.integers(1, 6))
        damaged[places] = generator.integers(0, 256, places.size)
        cut = HEADER_BYTES if generator.random() < 0.9 else int(generator.integers(0, HEADER_BYTES))
        try:
            header = Header.decode(damaged[:cut].tobytes())
        except Refused as refusal:
            reasons.append(refusal.reason)
        else:
            assert Header.decode(header.encode()) == header
            assert header.offset + header.length <= header.total
    assert set(reasons) == {Reason.MALFORMED, Reason.WRONG_VERSION}
    assert 5_000 < len(reasons) < 19_500  # neither all nor none: both ways are tried


@pytest.mark.parametrize(
    "wrong", [{"round": 2**32}, {"member": -1}, {"mask_key": b"short"}, {"plan": b""}, {"total": 2**64}]
)
def test_a_sender_learns_what_does_not_fit(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Header(kind=Kind.HELLO, **wrong).encode()


class TestFrames:
    @settings(max_examples=60, deadline=None)
    @given(lengths=st.lists(st.integers(0, 50), max_size=5), chunk=st.integers(1, 70), data=st.data())
    def test_any_cut_arrives_whole_in_any_order(self, lengths: list[int], chunk: int, data: st.DataObject) -> None:
        whole = np.random.default_rng(sum(lengths)).standard_normal(sum(lengths), dtype=np.float32)
        header, pieces, start = FULL._replace(symbols=whole.size), [], 0
        for length in lengths:
            pieces.append(whole[start : start + length].view(np.uint8).data)
            start += length
        cut = [(Header.decode(head), b"".join(body)) for head, body in frames(header, pieces, chunk=chunk)]
        assert all(head.length == len(body) <= chunk for head, body in cut)
        assert {head.plan for head, _ in cut} == {FULL.plan}
        staging = Staging([5], size=whole.nbytes)
        for head, body in data.draw(st.permutations(cut)):
            staging.write(head.member, head.offset, body, total=head.total)
        assert np.array_equal(staging.contributions({5: np.float32(1)})[0].values, whole)

    def test_nothing_is_copied(self) -> None:
        values = np.arange(100, dtype=np.float32)
        for _, body in frames(FULL, [values.view(np.uint8).data], chunk=64):
            assert all(np.shares_memory(np.frombuffer(piece, np.uint8), values) for piece in body)

    def test_an_empty_message_is_one_frame(self) -> None:
        [(head, body)] = frames(Header(kind=Kind.RECEIPT), [])
        assert body == []
        assert Header.decode(head).total == 0


def test_runs_are_told_apart() -> None:
    assert run_tag("a") != run_tag("b")
    assert len(run_tag("a")) == 16
