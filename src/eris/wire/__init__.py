"""⑥ Messages as bytes: frames, payloads, documents. No sockets here."""

from eris.wire.codec import (
    Payload,
    decode_published,
    encode_part,
    encode_published,
    encode_upload,
    payload_length,
)
from eris.wire.expected import Expected
from eris.wire.frame import CHUNK, HEADER_BYTES, Header, Kind, frames, run_tag
from eris.wire.version import VERSION

__all__ = [
    "CHUNK",
    "HEADER_BYTES",
    "VERSION",
    "Expected",
    "Header",
    "Kind",
    "Payload",
    "decode_published",
    "encode_part",
    "encode_published",
    "encode_upload",
    "frames",
    "payload_length",
    "run_tag",
]
