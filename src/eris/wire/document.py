"""Small structured payloads (manifests, receipts, refusals) as canonical JSON.

One value has one spelling: sorted keys, no spaces, no NaN. A document that is spelled otherwise is refused, so that
what was signed and what was read are the same bytes.

>>> encode_document({"shard": 3, "contributors": [0, 2]})
b'{"contributors":[0,2],"shard":3}'
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from eris.errors import InputError, Reason, Refused

__all__ = ["LONGEST_DOCUMENT", "decode_document", "encode_document", "spelled"]

LONGEST_DOCUMENT = 1 << 20
_SPELLING = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)  # made once: `dumps` makes anew


def encode_document(document: Mapping[str, Any]) -> bytes:
    """Write a mapping of strings to plain values."""
    try:
        data = spelled(dict(document)).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"a document cannot be written: {error}", fix="use plain finite values") from None
    if len(data) > LONGEST_DOCUMENT:
        raise InputError(f"a document has {len(data)} bytes", fix=f"at most {LONGEST_DOCUMENT} are accepted")
    return data


def decode_document(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Read a document; refuse anything but a canonical JSON object."""
    raw = bytes(data)
    if len(raw) > LONGEST_DOCUMENT:
        raise Refused(Reason.MALFORMED, f"a document of {len(raw)} bytes, at most {LONGEST_DOCUMENT} are accepted")
    try:
        document = json.loads(raw.decode())
        canonical = isinstance(document, dict) and spelled(document).encode() == raw
    except (ValueError, RecursionError):
        canonical = False
    if not canonical:
        raise Refused(Reason.MALFORMED, "a document is not canonical JSON")
    assert isinstance(document, dict)
    return document


def spelled(value: Any) -> str:
    """Return the one way to write plain data."""
    return _SPELLING.encode(value)
