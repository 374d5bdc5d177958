"""Uploads and published shards: every compressor's parts survive the wire bit for bit, in the bytes they claim."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.errors import InputError, Reason, Refused
from eris.local.spec import Vector
from eris.seeds import private_root, public_root
from eris.shards.plan import ShardPlan, contiguous, per_tensor, scattered
from eris.transforms import SendContext
from eris.transforms.compress import Compressor
from eris.transforms.named import COMPRESSORS
from eris.transforms.packed import Float32, Part
from eris.wire import Expected, decode_published, encode_part, encode_published, encode_upload, payload_length
from eris.wire.bits import Bytes

TENSORS = (700, 3, 250, 47)
N = sum(TENSORS)
BUFFERS = np.array([0.5, -2.25, 1e-30], np.float32)

# Every compressor there is; a new one fails here until it is given a few settings to be tried with.
SETTINGS: dict[str, list[dict[str, object]]] = {
    "bernoulli": [{"p": 0.1}],
    "bf16": [{}],
    "fp16": [{}],
    "identity": [{}],
    "magnitude_prune": [{"p": 0.3}],
    "natural": [{}],
    "qsgd": [{"levels": 1}, {"levels": 5}, {"levels": 300}],
    "qsgd_max": [{"levels": 4}, {"levels": 16}],
    "rand_k": [{"p": 0.1}, {"p": 0.1, "independent": True}, {"p": 1.0}],
    "sign": [{}],
    "stratified_rand_k": [{"p": 0.05}],
    "terngrad": [{}],
    "top_k": [{"p": 0.01}, {"p": 0.2}, {"p": 1.0}],
    "uniform": [{"levels": 2}, {"levels": 7}],
}
CASES = [pytest.param(name, params, id=f"{name}{params or ''}") for name in SETTINGS for params in SETTINGS[name]]
PLANS: dict[str, Callable[[int], ShardPlan]] = {
    "coordinates": lambda shards: scattered(N, shards, public_root(1)),
    "blocks": lambda shards: scattered(N, shards, public_root(2), block=16),
    "tensors": lambda shards: per_tensor(TENSORS, shards, public_root(3)),
    "contiguous": lambda shards: contiguous(N, shards),
}


def join(payload: list[memoryview]) -> Bytes:
    return np.frombuffer(b"".join(payload), np.uint8)


def sent(compressor: Compressor, plan: ShardPlan) -> list[Part]:
    vector = np.random.default_rng(5).standard_normal(N, dtype=np.float32)
    context = SendContext(0, 0, plan, public_root(7), private_root(7, 0), tensor_sizes=TENSORS)
    return compressor.compress(vector, context).parts(plan)


def expected(compressor: Compressor, plan: ShardPlan, part: Part) -> Expected:
    """What the receiver knows: nothing of it comes from the part but whether positions travel, and the key."""
    coordinates = None
    if not part.explicit:
        coordinates = compressor.support(part.shard, plan, public_root(7), part.mask_key)
    return Expected(plan, part.shard, compressor.code(TENSORS), BUFFERS.size, coordinates, part.explicit)


def test_every_compressor_is_tried() -> None:
    assert set(SETTINGS) == set(COMPRESSORS)


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("shards", [1, 4, 60])
@pytest.mark.parametrize(("name", "params"), CASES)
class TestEveryCompressor:
    def test_survives_the_wire_in_the_bytes_it_claims(
        self, name: str, params: dict[str, object], shards: int, kind: str
    ) -> None:
        plan, compressor = PLANS[kind](shards), COMPRESSORS[name](**params)
        for part in sent(compressor, plan):
            assert payload_length(encode_part(part, plan)) == part.payload_bytes
            payload, form = encode_upload(part, BUFFERS, plan), expected(compressor, plan, part)
            assert payload_length(payload) == part.payload_bytes + BUFFERS.nbytes
            assert payload_length(payload) <= form.longest
            if not part.explicit:
                assert payload_length(payload) == form.length
            read, buffers = form.decode(join(payload), symbols=part.symbols.size, mask_key=part.mask_key)
            assert read.values().tobytes() == part.values().tobytes()
            assert np.array_equal(buffers, BUFFERS)
            assert (read.code.name, read.size, read.explicit, read.mask_key) == (
                part.code.name, part.size, part.explicit, part.mask_key,
            )  # fmt: skip
            if part.coordinates is not None:
                assert read.coordinates is not None
                assert np.array_equal(read.coordinates, part.coordinates)


@pytest.mark.parametrize(("name", "params"), CASES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_damaged_uploads_are_refused_or_read_never_anything_else(
    name: str, params: dict[str, object], data: st.DataObject
) -> None:
    plan, compressor = PLANS["coordinates"](4), COMPRESSORS[name](**params)
    part = sent(compressor, plan)[data.draw(st.integers(0, 3))]
    damaged = bytearray(b"".join(encode_upload(part, BUFFERS, plan)))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 4, len(damaged)]))
    symbols = part.symbols.size + data.draw(st.sampled_from([0, 0, 0, 1, -1]))
    payload = np.frombuffer(bytes(damaged[: len(damaged) - cut]), np.uint8)
    reason, read = Reason.MALFORMED, None
    try:
        with np.errstate(all="ignore"):
            read, _ = expected(compressor, plan, part).decode(payload, symbols=symbols, mask_key=part.mask_key)
            read.values()
    except Refused as refusal:
        reason = refusal.reason
    assert reason in (Reason.MALFORMED, Reason.WRONG_SIZE)
    assert read is None or read.symbols.size == symbols


class TestCopies:
    def test_float32_leaves_from_the_array_it_is_in(self) -> None:
        plan = PLANS["blocks"](4)
        part = sent(COMPRESSORS["identity"](), plan)[2]
        [piece] = encode_part(part, plan)
        assert np.shares_memory(np.frombuffer(piece, np.uint8), part.symbols)

    def test_float32_is_read_where_it_arrived(self) -> None:
        plan = PLANS["blocks"](4)
        part = sent(COMPRESSORS["identity"](), plan)[2]
        arrived = join(encode_upload(part, BUFFERS, plan)).copy()
        read, buffers = Expected(plan, 2, Float32(), BUFFERS.size).decode(arrived, symbols=part.symbols.size)
        assert np.shares_memory(read.values(), arrived)
        assert np.shares_memory(buffers, arrived)

    def test_published_shards_are_not_copied_either(self) -> None:
        values = np.arange(5, dtype=np.float32)
        pieces = encode_published(values, BUFFERS)
        assert np.shares_memory(np.frombuffer(pieces[0], np.uint8), values)
        read, buffers = decode_published(join(pieces), count=5, buffers=3)
        assert np.array_equal(read, values)
        assert np.array_equal(buffers, BUFFERS)

    def test_bytes_that_begin_anywhere_can_be_read(self) -> None:
        arrived = np.zeros(4 * 3 + 1, np.uint8)[1:]
        arrived[:] = BUFFERS.view(np.uint8)
        assert np.array_equal(decode_published(arrived, count=3, buffers=0)[0], BUFFERS)


class TestPositions:
    """Explicit ones: a list of 32-bit positions up to 1/32 of the shard, a bitmap beyond."""

    def upload(self, kept: list[int], size: int = 640) -> tuple[Expected, Bytes]:
        plan, values = contiguous(2 * size, 2), np.ones(len(kept), np.float32)
        part = Part(1, size, np.array(kept, np.int64) + size, values, np.empty(0, np.float32), Float32(), True)
        return Expected(plan, 1, Float32(), explicit=True), join(encode_part(part, plan)).copy()

    @pytest.mark.parametrize(("count", "index"), [(0, 0), (1, 4), (20, 80), (21, 80), (640, 80)])
    def test_the_shorter_form_is_used(self, count: int, index: int) -> None:
        form, payload = self.upload(list(range(count)))
        assert payload.size == 4 * count + index
        read, _ = form.decode(payload, symbols=count)
        assert read.coordinates is not None
        assert read.coordinates.tolist() == list(range(640, 640 + count))

    @pytest.mark.parametrize("positions", [[3, 3], [4, 3], [3, 640]])
    def test_lists_must_ascend_inside_the_shard(self, positions: list[int]) -> None:
        form, payload = self.upload([3, 4])
        payload[8:].view("<u4")[:] = positions
        with pytest.raises(Refused) as caught:
            form.decode(payload, symbols=2)
        assert caught.value.reason is Reason.MALFORMED

    def test_bitmaps_must_mark_as_many_as_there_are_values(self) -> None:
        form, payload = self.upload(list(range(30)))
        payload[-1] |= 128
        with pytest.raises(Refused) as caught:
            form.decode(payload, symbols=30)
        assert caught.value.reason is Reason.MALFORMED

    def test_bitmaps_must_not_mark_beyond_the_shard(self) -> None:
        form, payload = self.upload([*list(range(29)), 636], size=637)
        payload[-1] = 32  # bit 637 instead of 636
        with pytest.raises(Refused) as caught:
            form.decode(payload, symbols=30)
        assert caught.value.reason is Reason.MALFORMED

    def test_more_values_than_coordinates_are_refused(self) -> None:
        form, payload = self.upload([1, 2])
        with pytest.raises(Refused) as caught:
            form.decode(payload, symbols=641)
        assert caught.value.reason is Reason.WRONG_SIZE

    def test_a_sender_without_coordinates_is_told(self) -> None:
        plan = contiguous(4, 1)
        part = Part(0, 4, None, np.ones(4, np.float32), np.empty(0, np.float32), Float32(), True)
        with pytest.raises(InputError, match="explicit"):
            encode_part(part, plan)


@pytest.mark.parametrize(("count", "buffers"), [(4, 3), (5, 2), (0, 0)])
def test_a_published_shard_of_another_size_is_refused(count: int, buffers: int) -> None:
    payload = join(encode_published(np.ones(5, np.float32), BUFFERS))
    with pytest.raises(Refused) as caught:
        decode_published(payload, count=count, buffers=buffers)
    assert caught.value.reason is Reason.WRONG_SIZE


def test_an_empty_shard_is_an_empty_payload() -> None:
    empty: Vector = np.empty(0, np.float32)
    assert encode_published(empty, empty) == []
    plan = contiguous(2, 3)
    read, buffers = Expected(plan, 2, Float32()).decode(np.empty(0, np.uint8), symbols=0)
    assert (read.values().size, buffers.size) == (0, 0)
