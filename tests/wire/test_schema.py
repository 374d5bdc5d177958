"""Documents: one spelling for one value, everything else refused, another version told so by name."""

import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import InputError, Reason, Refused
from eris.wire.schema import (
    LONGEST_DOCUMENT,
    MOST_NUMBERED,
    MOST_PEERS,
    Digest,
    Number,
    Peers,
    Real,
    Signature,
    Text,
    decode,
    document,
    encode,
    plain,
    read_plain,
)
from eris.wire.version import VERSION


@dataclass(frozen=True)
class Inner:
    number: Number
    peers: Peers


@document(201)
@dataclass(frozen=True)
class First:
    text: Text
    real: Real
    digest: Digest
    signature: Signature
    reason: Reason
    inner: Inner | None
    many: Annotated[tuple[Inner, ...], msgspec.Meta(max_length=3)]
    raw: bytes
    truth: bool


@document(202)
@dataclass(frozen=True)
class Second:
    number: Number


@document(203)
@dataclass(frozen=True)
class Envelope:
    content: First | Second


digests = st.sampled_from(["", "00" * 32, "9f" * 32])
peers = st.sets(st.integers(0, MOST_PEERS - 1), max_size=20).map(lambda found: tuple(sorted(found)))
inner = st.builds(Inner, st.integers(0, 2**32 - 1), peers)
first = st.builds(
    First,
    st.text(max_size=30),
    st.floats(allow_nan=False, allow_infinity=False),
    digests,
    st.binary(max_size=80).map(bytes.hex),
    st.sampled_from(Reason),
    st.none() | inner,
    st.lists(inner, max_size=3).map(tuple),
    st.binary(max_size=40),
    st.booleans(),
)
SAMPLE = First("é", 0.5, "0a" * 32, "ff00", Reason.LATE, Inner(1, (0, 9)), (), b"\0\1", True)
BODY = encode(SAMPLE)


@given(first)
def test_what_is_written_is_read(value: First) -> None:
    assert decode(First, encode(value)) == value
    assert decode(First, memoryview(encode(value))) == value
    assert decode(Envelope, encode(Envelope(value))).content == value
    assert encode(decode(First, encode(value))) == encode(value)


@given(first)
def test_json_says_the_same(value: First) -> None:
    bare = First(**{**vars(value), "raw": b""})  # people see no raw bytes
    assert read_plain(First, plain(bare)) == bare


@pytest.mark.parametrize("value", [Second(3), SAMPLE])
def test_a_union_is_told_apart_by_its_tag(value: object) -> None:
    assert decode(First | Second, encode(value)) == value
    with pytest.raises(Refused, match=r"not a (first|second)"):
        decode(First if isinstance(value, Second) else Second, encode(value))


def test_every_byte_is_where_the_page_says() -> None:
    bitmap = bytes([0b1, 0b10])  # peers 0 and 9
    fields = ["é", 0.5, bytes([10] * 32), b"\xff\0", "late", [1, bitmap], [], b"\0\1", True]
    assert bytes([0xE5, VERSION]) + msgspec.msgpack.encode([201, *fields]) == BODY


def respelled(*changes: tuple[int, object]) -> bytes:
    fields = msgspec.msgpack.decode(BODY[2:])
    for place, value in changes:
        fields[place] = value
    return BODY[:2] + msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "not an eris document"),
        (b"\xe5", "not an eris document"),
        (b"ERIS", "not an eris document"),
        (BODY + b"\0", "trailing"),
        (BODY[:-1], "truncated"),
        (respelled((1, 3)), "text: Expected `str`"),
        (respelled((1, "x" * 5000)), "text"),
        (respelled((2, float("nan"))), "not finite"),
        (respelled((2, float("inf"))), "not finite"),
        (respelled((2, 1)), "its encoding is not the one"),  # 1 for 1.0
        (respelled((3, b"short")), "a digest has 5 bytes"),
        (respelled((3, "0a" * 32)), "digest"),
        (respelled((5, "no reason")), "reason"),
        (respelled((6, [2**32, b""])), "inner"),
        (respelled((6, [-1, b""])), "inner"),
        (respelled((6, [True, b""])), "inner"),
        (respelled((6, [1, b"\1\0"])), "its encoding is not the one"),  # zeros behind the last bit
        (respelled((6, [1, bytes(MOST_PEERS // 8 + 1)])), "inner"),
        (respelled((6, [1, b"", 2])), "inner"),
        (respelled((6, {"number": 1, "peers": b""})), "inner"),
        (respelled((7, [[1, b""]] * 4)), "many"),
        (respelled((9, 1)), "truth"),
        (BODY[:2] + b"\xdc\x00\x0a" + BODY[3:], "its encoding is not the one"),  # a longer head for the same array
        (BODY[:2] + b"\x91" * 100_000, "at least length"),
        (BODY[:2] + b"\xdd\xff\xff\xff\xff", "truncated"),
        (BODY[:2] + bytes(LONGEST_DOCUMENT), "at most"),
    ],
)
def test_anything_else_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(Refused, match=what) as caught:
        decode(First, data)
    assert caught.value.reason is Reason.MALFORMED


@given(st.binary(max_size=60))
def test_noise_raises_nothing_but_refusals(data: bytes) -> None:
    for noise in (data, BODY[:2] + data, BODY[: len(data)] + data):
        with pytest.raises(Refused):
            decode(First, noise)


@pytest.mark.parametrize(
    ("data", "older"),
    [
        (bytes([0xE5, VERSION + 1]) + b"whatever comes then", VERSION),
        (bytes([0xE5, VERSION - 1]) + BODY[2:], VERSION - 1),
        (b'{"plan":"00"}', 1),  # version 1 wrote JSON
    ],
)
def test_another_version_is_told_so_by_name(data: bytes, older: int) -> None:
    with pytest.raises(Refused, match=f"a first of wire version .*: update the side with version {older}") as caught:
        decode(First, data)
    assert caught.value.reason is Reason.WRONG_VERSION


@pytest.mark.parametrize(
    "changes",
    [
        {"real": float("nan")},
        {"digest": "0a"},
        {"digest": "0A" * 32},
        {"signature": "zz"},
        {"inner": Inner(1, (3, 2))},
        {"inner": Inner(1, (2, 2))},
        {"inner": Inner(1, (-1,))},
        {"inner": Inner(1, (MOST_NUMBERED,))},
        {"raw": bytes(LONGEST_DOCUMENT)},
        {"text": "\ud800"},
        {"text": "x" * 4097},
        {"truth": object()},
    ],
)
def test_a_sender_learns_what_cannot_be_written(changes: dict[str, object]) -> None:
    with pytest.raises(InputError):
        encode(First(**{**vars(SAMPLE), **changes}))


_RACE = """
import dataclasses, inspect, sys, threading
sys.setswitchinterval(1e-6)
from eris.transport import bulletins, calls
from eris.wire import schema
kinds = [kind for home in (calls, bulletins) for kind in vars(home).values()
         if inspect.isclass(kind) and dataclasses.is_dataclass(kind)] + [bulletins.Bulletin]
together = threading.Barrier(24)

def read(first):
    together.wait()
    for kind in kinds[first:] + kinds[:first]:
        try:
            schema.peek(kind, bytes((schema.MARK, schema.VERSION)) + bytes((0x93, 1, 0x90, 0x90)))
        except schema.Refused:
            pass

threads = [threading.Thread(target=read, args=(number % len(kinds),)) for number in range(24)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_many_threads_may_read_their_first_documents_at_once():
    """A reader is made once: types that msgspec is still learning crashed the process of whoever saw them."""
    for _ in range(6):
        assert subprocess.run([sys.executable, "-c", _RACE], timeout=120).returncode == 0
