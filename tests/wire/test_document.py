"""Documents: one spelling for one value, everything else refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import InputError, Reason, Refused
from eris.wire import decode_document, encode_document
from eris.wire.document import LONGEST_DOCUMENT

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), PLAIN, max_size=5))
def test_what_is_written_is_read(document: dict[str, object]) -> None:
    assert decode_document(encode_document(document)) == document
    assert decode_document(memoryview(encode_document(document))) == document


def test_order_does_not_show() -> None:
    assert encode_document({"b": 1, "a": 2.5}) == encode_document({"a": 2.5, "b": 1}) == b'{"a":2.5,"b":1}'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[1]",
        b"3",
        b"{",
        b'{"a": 1}',
        b'{"b":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a":1.0e0}',
        b'{"a":NaN}',
        b'{"a":1e999}',
        b'{"a":1}\n',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":"\xff"}',
        '{"a":"é"}'.encode(),  # spelled é
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b"9" * 10_000 + b"}",
        b'{"a":"' + b"x" * LONGEST_DOCUMENT + b'"}',
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(Refused) as caught:
        decode_document(data)
    assert caught.value.reason is Reason.MALFORMED


@given(st.binary(max_size=60))
def test_noise_raises_nothing_but_refusals(data: bytes) -> None:
    reason = Reason.MALFORMED
    try:
        decode_document(data)
    except Refused as refusal:
        reason = refusal.reason
    assert reason is Reason.MALFORMED


@pytest.mark.parametrize("document", [{"a": float("nan")}, {"a": object()}, {"a": "x" * LONGEST_DOCUMENT}])
def test_a_sender_learns_what_cannot_be_written(document: dict[str, object]) -> None:
    with pytest.raises(InputError):
        encode_document(document)
