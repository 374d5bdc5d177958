"""Pads for masked shards: a member adds one to its contribution, and an unmasker removes them from the sum.

    seed(k, j) = HKDF-SHA256(X25519(k, q), info)      k the member, q the unmasker of shard j
    pad        = AES-256-CTR(seed), read as little-endian 32-bit words
    y          = z + pad  mod 2³²                     what the aggregator receives

The aggregator adds up the y without being able to read any of them; the unmasker knows every pad but no y. `info` names
the one thing that a pad may be used for: run, plan, shard, both peers with their keys, the code, the length, and a
nonce drawn at random for every masked contribution. So no two contributions share a pad, whatever is masked again; and
a contribution that is sent again is the same message, nonce included.

Four check words (0, 0, 0, 1) follow the values under the same pad. Over the right set of contributors with the right
pads they sum to (0, 0, 0, |C|); a wrong set, key or pad gives that sum only with probability 2⁻¹²⁸.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import MissingExtra, Reason, Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

__all__ = [
    "CHECK_WORDS",
    "KEY_ROUNDS",
    "MaskKey",
    "PadPurpose",
    "add_pad",
    "add_pads",
    "check_words",
    "fresh_nonce",
    "key_statement",
    "pad_seed",
    "remove_pad",
    "spelled",
    "sum_checks",
]

Words = NDArray[np.uint32]
Whole = NDArray[np.unsignedinteger[Any]]  # words of 32 bits (values, checks) or of 64 (buffers)

LABEL = b"eris-mask-v1"
CHECK_WORDS = 4
KEY_ROUNDS = 32  # after so many rounds a peer shows a new key, and erases the old one
_NONCE_BYTES = 16
_BLOCK = 1 << 16  # words padded at a time: block, pad and zeros stay in the second-level cache
_ZEROS = bytes(4 * _BLOCK)


class MaskKey:
    """A peer process's X25519 key, never stored: a new one is made at every start and every `KEY_ROUNDS` rounds.

    `renew` makes the next key, to be shown to others; with the first plan that shows it, `follow` puts it in place of
    the old one, which is then erased. `counter` rises from key to key.
    """

    def __init__(self, counter: int, private: X25519PrivateKey | None = None) -> None:
        x25519 = _primitives().asymmetric.x25519
        self._private: X25519PrivateKey | None = private or x25519.X25519PrivateKey.generate()
        self.counter, self.public = counter, bytes(self._private.public_key().public_bytes_raw())
        self._shared: dict[bytes, bytes] = {}  # other peer's public key → shared secret
        self._next: MaskKey | None = None

    def __repr__(self) -> str:
        return f"MaskKey(counter={self.counter}, public={self.public.hex()[:8]}…)"

    def agree(self, other: bytes) -> bytes:
        """Return the secret shared with the holder of another public key; refuse keys that give none."""
        if self._private is None:
            raise Refused(
                Reason.WRONG_ROUND, "this mask key was erased", fix="wait for the next plan, which shows the new one"
            )
        if other not in self._shared:
            x25519 = _primitives().asymmetric.x25519
            try:
                self._shared[other] = bytes(self._private.exchange(x25519.X25519PublicKey.from_public_bytes(other)))
            except ValueError:  # wrong length, or low order: the secret would be zeros, which everybody knows
                raise Refused(Reason.MALFORMED, "this mask key gives no secret", fix="refuse its peer") from None
        return self._shared[other]

    def renew(self) -> MaskKey:
        """Return the key that will replace this one: the same until a plan has shown it."""
        if self._next is None:
            self._next = MaskKey(self.counter + 1)
        return self._next

    def follow(self, shown: bytes | None) -> None:
        """Become the next key if a plan shows that one; erase the old key."""
        new = self._next
        if new is not None and shown == new.public:
            self.erase()
            self._private, self.public, self.counter = new._private, new.public, new.counter
            self._next = None

    def erase(self) -> None:
        """Forget the key and all secrets from it, so that nobody who takes this machine later can unmask the past."""
        self._private, self._shared = None, {}

    @property
    def renewing(self) -> bool:
        """Whether the next key has been made but no plan has shown it yet."""
        return self._next is not None

    @property
    def erased(self) -> bool:
        """Whether the key has been erased."""
        return self._private is None


def key_statement(run: str, peer: int, fingerprint: str, key: bytes, counter: int) -> bytes:
    """Return what a peer signs about its mask key with the key of its certificate.

    `fingerprint` is the certificate's; a later key has a higher `counter`.
    """
    return spelled(LABEL + b"-key", run.encode(), _number(peer), fingerprint.encode(), key, _number(counter))


@dataclass(frozen=True, slots=True)
class PadPurpose:
    """The one contribution that a pad is for; contributions that differ in any field have unrelated pads."""

    run: str
    plan: bytes  # digest of the round plan
    shard: int
    member: int
    unmasker: int
    member_key: bytes
    unmasker_key: bytes
    code: str  # how values are written: "ring32" …
    length: int  # words under the pad
    nonce: bytes = field(repr=False)

    def spelled(self) -> bytes:
        """Return the bytes of this purpose, which no other purpose has."""
        numbers = map(_number, (self.shard, self.member, self.unmasker, self.length))
        texts = (self.run.encode(), self.plan, self.member_key, self.unmasker_key, self.code.encode(), self.nonce)
        return spelled(LABEL, *texts, *numbers)


def fresh_nonce() -> bytes:
    """Return a random nonce that makes one masked contribution's pad unique; it is sent in the clear."""
    return os.urandom(_NONCE_BYTES)


def pad_seed(key: MaskKey, other: bytes, purpose: PadPurpose) -> bytes:
    """Derive a pad's 32-byte seed; member and unmasker get the same one from each other's public key.

    `key` is our own, `other` the other side's public key.
    """
    hashes, hkdf = _primitives().hashes, _primitives().kdf.hkdf
    if len(purpose.nonce) != _NONCE_BYTES:
        raise Refused(
            Reason.MALFORMED, f"the nonce has {len(purpose.nonce)} bytes instead of 16", member=purpose.member
        )
    derive = hkdf.HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=purpose.spelled())
    return bytes(derive.derive(key.agree(other)))


def add_pad(words: Words, seed: bytes, *more: Whole) -> None:
    """Add the pad to the words in place, modulo 2³²; further arrays continue the stream, buffers modulo 2⁶⁴."""
    _each_block((words, *more), [seed], np.add)


def add_pads(seeds: Sequence[bytes], *arrays: Whole) -> None:
    """Add several pads, each one stream over all arrays; what they are added to is brought into the cache once."""
    _each_block(arrays, seeds, np.add)


def remove_pad(words: Words, seed: bytes, *more: Whole) -> None:
    """Subtract the pad again, in place; arguments as for `add_pad`."""
    _each_block((words, *more), [seed], np.subtract)


def check_words() -> Words:
    """Return the check words that follow one member's values, under the pad."""
    return np.array([0, 0, 0, 1], np.uint32)


def sum_checks(words: Words, contributors: int) -> bool:
    """Return whether the check words of an unmasked sum show exactly so many contributors and the right pads."""
    return bool(np.array_equal(words, [0, 0, 0, contributors]))


def _each_block(arrays: Sequence[Whole], seeds: Sequence[bytes], combine: np.ufunc) -> None:
    ciphers = _primitives().ciphers
    begin = ciphers.modes.CTR(bytes(16))
    streams = [ciphers.Cipher(ciphers.algorithms.AES256(seed), begin).encryptor() for seed in seeds]
    longest = max((array.nbytes for array in arrays), default=0)
    pad = np.empty(min(4 * _BLOCK, longest) + 15, np.uint8)  # the library needs room for one more block, less a byte
    for array in filter(len, arrays):
        step, word = 4 * _BLOCK // array.itemsize, array.dtype.newbyteorder("<")
        for start in range(0, array.size, step):
            part = array[start : start + step]
            zeros, words = memoryview(_ZEROS)[: part.nbytes], pad[: part.nbytes].view(word)
            for stream in streams:
                stream.update_into(zeros, pad.data)
                combine(part, words, out=part)


def spelled(*fields: bytes) -> bytes:
    """Join fields so that no two lists of fields give the same bytes."""
    return b"".join([part for field in fields for part in (_number(len(field)), field)])


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


@cache  # asked for several times for every pad, of which a round has many
def _primitives() -> Any:
    try:
        from cryptography.hazmat import primitives
        from cryptography.hazmat.primitives import ciphers, hashes
        from cryptography.hazmat.primitives.asymmetric import x25519
        from cryptography.hazmat.primitives.kdf import hkdf
    except ImportError as error:  # pragma: no cover - the extra is installed wherever tests run
        raise MissingExtra("cryptography", "network", "masked shards") from error
    del ciphers, hashes, x25519, hkdf  # importing them makes them attributes of the package
    return primitives
