"""Symbols without gaps: the layout of docs/wire.md, for every number of bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.errors import InputError, Reason, Refused
from eris.wire.bits import pack, packed_size, unpack


def by_hand(symbols: list[int], bits: int) -> bytes:
    """One long number: symbol i shifted by i·bits."""
    number = sum(symbol << (i * bits) for i, symbol in enumerate(symbols))
    return number.to_bytes(packed_size(len(symbols), bits), "little")


@settings(max_examples=150, deadline=None)
@given(data=st.data(), bits=st.integers(1, 32))
def test_is_one_long_little_endian_number(data: st.DataObject, bits: int) -> None:
    symbols = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=40))
    packed = pack(np.array(symbols, np.uint32), bits=bits)
    assert packed.tobytes() == by_hand(symbols, bits)
    assert unpack(packed, bits=bits, count=len(symbols), dtype=np.dtype(np.uint32)).tolist() == symbols


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 9, 12])
@pytest.mark.parametrize("count", [(1 << 15) - 3, 1 << 15, (1 << 15) + 9, 100_001])
def test_long_messages_are_worked_in_pieces(bits: int, count: int) -> None:
    dtype = np.dtype(np.uint8 if bits <= 8 else np.uint16)
    symbols = np.random.default_rng(count).integers(0, 2**bits, count).astype(dtype)
    packed = pack(symbols, bits=bits)
    assert packed.size == packed_size(count, bits)
    read = unpack(packed, bits=bits, count=count, dtype=dtype)
    assert read.dtype == dtype
    assert np.array_equal(read, symbols)
    piece = pack(symbols[: 1 << 14], bits=bits)
    assert np.array_equal(piece[: piece.size - 1], packed[: piece.size - 1])


def test_refuses_symbols_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="3 bits"):
        pack(np.array([8], np.uint8), bits=3)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_refuses_another_length(size: int) -> None:
    with pytest.raises(Refused) as caught:
        unpack(np.zeros(size, np.uint8), bits=3, count=5, dtype=np.dtype(np.uint8))
    assert caught.value.reason is Reason.WRONG_SIZE


def test_one_value_has_one_spelling() -> None:
    with pytest.raises(Refused) as caught:
        unpack(np.array([0, 128], np.uint8), bits=3, count=5, dtype=np.dtype(np.uint8))
    assert caught.value.reason is Reason.MALFORMED
