"""Dataclasses ⇄ bytes: everything that is sent, signed or digested, with exactly one encoding.

A document is a frozen dataclass marked with `@document(tag)`. Its annotations say what each field is on the wire:

>>> @document(200)
... @dataclass(frozen=True)
... class Note:
...     plan: Digest
...     contributors: Peers
>>> encode(Note("00" * 32, (0, 2))).hex(" ", 1)[:23]
'e5 03 93 cc c8 c4 20 00'
>>> decode(Note, encode(Note("ff" * 32, (0, 2)))).contributors
(0, 2)

The bytes are a mark, the wire version, then the MessagePack array [tag, field, …] in the order of the fields, written
and read by msgspec. In memory a digest is hex, for people and for JSON; on the wire it is 32 raw bytes. What was read
is encoded again and must give the same bytes: one value has one encoding. docs/wire.md describes every byte.
"""

from __future__ import annotations

import math
import re
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache, reduce
from operator import or_
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from blake3 import blake3

from eris.errors import InputError, Reason, Refused
from eris.wire.version import VERSION, require_version

__all__ = [
    "LONGEST_DOCUMENT",
    "Binary",
    "Digest",
    "Number",
    "Numbers",
    "Peers",
    "Real",
    "Signature",
    "Signed",
    "Spelling",
    "Sums",
    "Text",
    "decode",
    "digest_of",
    "document",
    "encode",
    "peek",
    "plain",
    "read_plain",
    "spelled_as",
    "whole",
    "without_signature",
]

LONGEST_DOCUMENT = 1 << 20
MARK = 0xE5
MOST_PEERS = 1 << 16
MOST_NUMBERED = 1 << 24  # members of a simulation, whose documents are digested but never sent
LONGEST_TEXT = 4096  # characters

T = TypeVar("T")
_PREFIX = bytes((MARK, VERSION))
_ENCODER = msgspec.msgpack.Encoder()
# msgspec caches what it learned of a type on the type, where other threads would see it half made and crash.
_MAKING = threading.RLock()
_READERS: dict[Any, tuple[msgspec.msgpack.Decoder[Any], Spelling]] = {}


# ── what a field can be ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Spelling:
    """What a field is on the wire, and how to convert it there and back."""

    wire: Any  # the type that msgspec reads and writes
    pack: Callable[[Any], Any]  # field → wire; ValueError if it cannot be written
    unpack: Callable[..., Any]  # wire → field; ValueError if no peer would write it


def _raw(value: str) -> bytes:
    raw = bytes.fromhex(value)
    if raw.hex() != value:
        raise ValueError(f"{value!r} is not lowercase hex")
    return raw


def _raw_digest(value: str) -> bytes:
    raw = _raw(value)
    if len(raw) not in (0, 32):
        raise ValueError(f"a digest has {len(raw)} bytes instead of 32")
    return raw


def _whole_digest(raw: bytes) -> str:
    if len(raw) not in (0, 32):
        raise ValueError(f"a digest has {len(raw)} bytes instead of 32")
    return raw.hex()


@lru_cache(maxsize=256)  # the same few sets in every round
def _bitmap(numbers: tuple[int, ...]) -> bytes:
    if list(numbers) != sorted(set(numbers)) or (numbers and not (numbers[0] >= 0 and numbers[-1] < MOST_NUMBERED)):
        raise ValueError("a set must be ascending, without repeats, from 0 to 16,777,215")
    present = np.zeros(numbers[-1] + 1 if numbers else 0, np.bool_)
    present[list(numbers)] = True
    return np.packbits(present, bitorder="little").tobytes()


@lru_cache(maxsize=256)
def _members(bitmap: bytes) -> tuple[int, ...]:
    return tuple(np.flatnonzero(np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")).tolist())


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return float(value)


def _short(value: str) -> str:
    if len(value) > LONGEST_TEXT:  # nobody would read it
        raise ValueError(f"a text has {len(value):,} characters, more than {LONGEST_TEXT:,}")
    return value


def _as_it_is(value: T) -> T:
    return value


def _bytes_up_to(length: int) -> Any:
    return Annotated[bytes, msgspec.Meta(max_length=length)]


Number = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]  # what a frame's header can say of rounds, shards and peers
Text = Annotated[
    str,
    msgspec.Meta(max_length=LONGEST_TEXT),
    Spelling(Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)], _short, _as_it_is),
]
Binary = Annotated[bytes, msgspec.Meta(max_length=LONGEST_DOCUMENT)]
Signed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Numbers = Annotated[tuple[Number, ...], msgspec.Meta(max_length=MOST_PEERS)]
Sums = Annotated[tuple[Signed, ...], msgspec.Meta(max_length=64)]
Real = Annotated[float, Spelling(float, _finite, _finite)]
Digest = Annotated[
    str,
    msgspec.Meta(pattern="^([0-9a-f]{64})?$"),
    Spelling(_bytes_up_to(32), _raw_digest, _whole_digest),
]
Signature = Annotated[
    str,
    msgspec.Meta(pattern="^([0-9a-f]{2}){0,256}$"),
    Spelling(_bytes_up_to(256), _raw, bytes.hex),
]
Peers = Annotated[
    tuple[int, ...],
    Spelling(_bytes_up_to(MOST_PEERS // 8), _bitmap, _members),
]
"""A set of peers (or shards), ascending; a bitmap on the wire, lowest bit first, without zeros behind the last one."""


# ── what a document is ───────────────────────────────────────────────────────────────────────────────────────────────


def document(tag: int) -> Callable[[type[T]], type[T]]:
    """Mark a frozen dataclass as one that is sent, signed or digested; tags are unique and never used again."""

    def mark(kind: type[T]) -> type[T]:
        kind.__wire_tag__ = tag  # type: ignore[attr-defined]
        return kind

    return mark


def spelled_as(kind: type, there: Callable[[Any], Any], back: Callable[[Any], Any]) -> Spelling:
    """Return the spelling of a field that is written as another dataclass, which says the same in fewer bytes.

    `there` converts the field's value to that dataclass, `kind`; `back` converts from it.
    """
    schema = _schema(kind)
    return Spelling(schema.struct, lambda value: schema.pack(there(value)), lambda wire: back(schema.unpack(wire)))


def whole(kind: Any) -> Spelling:
    """Return the spelling of a document inside another one: the very bytes that were signed or digested."""
    return Spelling(Binary, lambda value: value.encoded, lambda data: kind.decode(data))


def encode(value: Any, *, longest: int = LONGEST_DOCUMENT) -> bytes:
    """Write a document; refuse values that cannot be encoded, and documents of more than `longest` bytes."""
    kind: Any = type(value)
    try:
        data = _PREFIX + _ENCODER.encode(_schema(kind).pack(value))
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise InputError(f"a {_name(kind)} cannot be written: {error}", fix="use plain finite values") from None
    if len(data) > longest:
        raise InputError(f"a {_name(kind)} has {len(data)} bytes, but at most {longest} are accepted")
    return data


def decode(kind: Any, data: bytes | bytearray | memoryview, **resolve: Callable[[Any], Any]) -> Any:
    """Read a document of a kind (or of a union of kinds); refuse anything that an eris peer would not write.

    A field named in `resolve` is converted by that function, for what a document only cites and the reader must know.
    """
    raw = bytes(data)
    try:
        value = _reader(kind)[1].unpack(peek(kind, raw), **resolve)
        written = value.encoded if hasattr(value, "encoded") else encode(value)  # some documents keep their bytes
    except (ValueError, TypeError, RecursionError, InputError) as error:
        raise Refused(Reason.MALFORMED, f"not a {_name(kind)}: {_explained(error, kind)}") from None
    if written != raw:
        raise Refused(Reason.MALFORMED, f"not a {_name(kind)}: its encoding is not the one that eris writes")
    return value


def peek(kind: Any, data: bytes) -> Any:
    """Read a document's fields as they are on the wire, without resolving citations or checking the encoding."""
    if len(data) > LONGEST_DOCUMENT:
        what = f"a {_name(kind)} has {len(data)} bytes, but at most {LONGEST_DOCUMENT} are accepted"
        raise Refused(Reason.MALFORMED, what)
    if not data.startswith(_PREFIX):
        _require_prefix(data, _name(kind))
    try:
        return _reader(kind)[0].decode(memoryview(data)[2:])
    except (ValueError, RecursionError) as error:
        raise Refused(Reason.MALFORMED, f"not a {_name(kind)}: {_explained(error, kind)}") from None


def _require_prefix(raw: bytes, name: str) -> None:
    if raw[:1] == b"{":  # JSON
        require_version(1, name)
    if len(raw) < len(_PREFIX) or raw[0] != MARK:
        raise Refused(
            Reason.MALFORMED,
            f"not a {name}: not an eris document",
            fix="check that the other side is an eris peer",
        )
    require_version(raw[1], name)


def without_signature(data: bytes, signature: str) -> bytes:
    """Return the bytes of a document whose last field is this signature (hex), as they are with an empty one there."""
    last = len(_ENCODER.encode(bytes.fromhex(signature)))
    return data[:-last] + _ENCODER.encode(b"")


def digest_of(data: bytes) -> str:
    """Return the BLAKE3 digest (hex) of a document's bytes."""
    return str(blake3(data).hexdigest())


def plain(value: Any) -> Any:
    """Return a document as dicts, lists, strings and numbers: for people, and for JSON.

    >>> plain({"contributors": (0, 2)})
    {'contributors': [0, 2]}
    """
    return msgspec.json.decode(msgspec.json.encode(value))


def read_plain(kind: type[T], data: Any) -> T:
    """Read what `plain` returned; raise ValueError if a field does not have its type."""
    with _MAKING:
        return msgspec.convert(data, kind)


# ── how it is done ───────────────────────────────────────────────────────────────────────────────────────────────────


class _Schema:
    """One dataclass: the struct as which msgspec reads it, and the spelling of every field."""

    def __init__(self, kind: type) -> None:
        hints = get_type_hints(kind, include_extras=True)
        self.kind, self.names = kind, [field.name for field in fields(kind)]
        self.tag: int | None = getattr(kind, "__wire_tag__", None)
        self._head = [] if self.tag is None else [self.tag]
        ways = [(name, _spelling(hints[name])) for name in self.names]
        self._packs = [(place, way.pack) for place, (_, way) in enumerate(ways, len(self._head)) if way]
        self._unpacks = [(place, way.unpack) for place, (_, way) in enumerate(ways) if way]
        self._places = {name: place for place, name in enumerate(self.names)}
        self.struct = msgspec.defstruct(
            kind.__name__,
            [(name, way.wire if way else hints[name]) for name, way in ways],
            array_like=True,
            frozen=True,
            forbid_unknown_fields=True,
            tag=self.tag,
        )

    def pack(self, value: Any) -> list[Any]:
        packed = [*self._head, *[getattr(value, name) for name in self.names]]
        for place, pack in self._packs:
            packed[place] = pack(packed[place])
        return packed

    def unpack(self, wire: Any, **resolve: Callable[[Any], Any]) -> Any:
        values = [getattr(wire, name) for name in self.names]
        cited = {self._places[name]: way for name, way in resolve.items() if name in self._places} if resolve else {}
        for place, unpack in self._unpacks:
            values[place] = cited.get(place, unpack)(values[place])
        return self.kind(*values)


@cache
def _schema(kind: type) -> _Schema:
    if not is_dataclass(kind):
        raise TypeError(f"{kind!r} is not a document")
    return _Schema(kind)


def _reader(kind: Any) -> tuple[msgspec.msgpack.Decoder[Any], Spelling]:
    if kind not in _READERS:
        with _MAKING:
            spelling = _spelling(kind)
            assert spelling is not None
            _READERS[kind] = msgspec.msgpack.Decoder(spelling.wire), spelling
    return _READERS[kind]


def _spelling(hint: Any) -> Spelling | None:
    """Return the spelling of a type on the wire; None if msgspec can write it directly."""
    if get_origin(hint) is Annotated:
        own = [extra for extra in get_args(hint)[1:] if isinstance(extra, Spelling)]
        if own:
            return own[0]
        inner, bounds = _spelling(get_args(hint)[0]), get_args(hint)[1:]
        return inner and Spelling(Annotated[(inner.wire, *bounds)], inner.pack, inner.unpack)
    if isinstance(hint, type) and is_dataclass(hint):
        schema = _schema(hint)
        return Spelling(schema.struct, schema.pack, schema.unpack)
    if get_origin(hint) is tuple and len(get_args(hint)) == 2 and get_args(hint)[1] is Ellipsis:
        inner = _spelling(get_args(hint)[0])
        return inner and Spelling(tuple[inner.wire, ...], _each(inner.pack), _each(inner.unpack))  # type: ignore[name-defined]
    if get_origin(hint) in (Union, types.UnionType):
        return _union(get_args(hint))
    return None


def _each(way: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: tuple([way(value) for value in values])


def _union(hints: tuple[Any, ...]) -> Spelling | None:
    """Return the spelling of several documents, told apart by their tags, or of a value that may be absent."""
    ways = {hint: _spelling(hint) for hint in hints if hint is not types.NoneType}
    if not any(ways.values()):
        return None
    wires = [way.wire if way else hint for hint, way in ways.items()]
    wire = reduce(or_, [*wires, None] if types.NoneType in hints else wires)
    if len(ways) == 1:
        (only,) = ways.values()
        return only and Spelling(wire, _unless_absent(only.pack), _unless_absent(only.unpack))
    schemas = {_schema(hint).struct: _schema(hint) for hint in ways}
    by_kind = {schema.kind: schema for schema in schemas.values()}
    return Spelling(
        wire,
        _unless_absent(lambda value: by_kind[type(value)].pack(value)),
        _unless_absent(lambda value, **resolve: schemas[type(value)].unpack(value, **resolve)),
    )


def _unless_absent(way: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, **resolve: None if value is None else way(value, **resolve)


def _name(kind: Any) -> str:
    """Return a kind's name in words: `ShardVerdict` is a shard verdict."""
    words = re.findall("[A-Z][a-z0-9]*", getattr(kind, "__name__", ""))
    return " ".join(words).lower() or "document"


def _explained(error: Exception, kind: Any) -> str:
    """Return msgspec's message, with the name of the field instead of its place."""
    text = str(error)
    if (found := re.search(r" - at `\$\[(\d+)\]", text)) and isinstance(kind, type) and is_dataclass(kind):
        schema, place = _schema(kind), int(found[1])
        names = ["tag", *schema.names] if schema.tag is not None else schema.names
        if place < len(names):
            return f"{names[place]}: {text[: found.start()]}"
    return text
