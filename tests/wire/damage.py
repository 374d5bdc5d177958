"""Documents as a careless or hostile peer would write them: bits flipped, bytes lost, values of the wrong kind."""

from __future__ import annotations

import random
from typing import Any

import msgspec

_HEADS = bytes([0xC0, 0xC1, 0xC4, 0xC6, 0xCA, 0xCB, 0xCF, 0xD3, 0xD9, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF, 0x90, 0x91, 0xFF])
_ODD: list[Any] = [
    *(None, True, -1, 0, 2**32, 2**64 - 1, 0.0, float("nan"), float("inf"), "", "x", "x" * 5000, "é"),
    *(b"", b"\0", b"\1" * 31, b"\1" * 32, bytes(9000), [], [[]], [0] * 40, {}, {"a": 1}),
]


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Damage a document: half of the time its bytes, else one of its values, which is then spelled correctly."""
    if chance.random() < 0.5:
        return _bytes(bytearray(data), chance)
    fields = msgspec.msgpack.decode(data[2:])
    _change(fields, chance)
    return data[:2] + msgspec.msgpack.encode(fields)


def _bytes(data: bytearray, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 2, 3))):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0 if place < len(data):
                data[place] ^= 1 << chance.randrange(8)
            case 1 if place < len(data):
                data[place] = chance.choice(_HEADS)
            case 2:
                del data[place:]
            case 3:
                del data[place : place + chance.randrange(1, 9)]
            case 4:
                data[place:place] = chance.randbytes(chance.randrange(1, 9))
            case _:
                data[place:place] = data[: chance.randrange(len(data) + 1)]
    return bytes(data)


def _change(values: list[Any], chance: random.Random) -> None:
    place = chance.randrange(len(values) + 1)
    if place < len(values) and isinstance(values[place], list) and chance.random() < 0.8:
        _change(values[place], chance)
    elif place < len(values) and chance.random() < 0.1:
        del values[place]
    else:
        values[place : place + 1] = [chance.choice(_ODD)]
