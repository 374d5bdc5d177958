"""Pads: both sides derive the same, nothing else does, and under one a contribution could be any other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.aggregate.fixed_point import RingScale
from eris.errors import Refused
from eris.privacy.masking import (
    CHECK_WORDS,
    MaskKey,
    PadPurpose,
    add_pad,
    add_pads,
    check_words,
    fresh_nonce,
    key_statement,
    pad_seed,
    remove_pad,
    sum_checks,
)

PLAN = bytes(range(32))


def key(number: int) -> MaskKey:
    return MaskKey(0, X25519PrivateKey.from_private_bytes(bytes([number]) * 32))


def purpose(mine: MaskKey, theirs: MaskKey, **changes) -> PadPurpose:
    fields = {"run": "r", "plan": PLAN, "shard": 3, "member": 1, "unmasker": 2, "code": "ring32", "length": 104}
    fields |= {"member_key": mine.public, "unmasker_key": theirs.public, "nonce": bytes(16)}
    return PadPurpose(**{**fields, **changes})


def test_member_and_unmasker_derive_the_same_pad_and_nobody_else():
    member, unmasker, stranger = key(1), key(2), key(3)
    what = purpose(member, unmasker)
    seed = pad_seed(member, unmasker.public, what)
    assert seed == pad_seed(unmasker, member.public, what)
    assert seed not in (pad_seed(stranger, member.public, what), pad_seed(stranger, unmasker.public, what))


@pytest.mark.parametrize(
    "change",
    [
        {"run": "s"}, {"plan": bytes(32)}, {"shard": 4}, {"member": 5}, {"unmasker": 6}, {"code": "ring64"},
        {"length": 105}, {"nonce": b"\1" * 16}, {"member_key": bytes(32)}, {"unmasker_key": bytes(32)},
    ],
)  # fmt: skip
def test_whatever_differs_gives_another_pad(change):
    member, unmasker = key(1), key(2)
    what = purpose(member, unmasker)
    assert pad_seed(member, unmasker.public, what) != pad_seed(member, unmasker.public, replace(what, **change))


def test_golden_pad():
    """Peers on different machines must agree on every word."""
    member, unmasker = key(1), key(2)
    seed = pad_seed(member, unmasker.public, purpose(member, unmasker))
    words = np.zeros(CHECK_WORDS, np.uint32)
    add_pad(words, seed)
    assert seed.hex() == "1d2a867e09893ad1639d7fef82178a398faaebe04da8332c002981497ab00792"
    assert words.tolist() == [2647354226, 2863551581, 1096923523, 4014499148]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(0, 70_000))
def test_a_pad_comes_off_again_at_any_length(seed, n):
    values = np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32)
    padded = values.copy()
    add_pad(padded, bytes(32))
    assert n < 4 or not np.array_equal(padded, values)
    remove_pad(padded, bytes(32))
    assert np.array_equal(padded, values)


def test_a_longer_pad_begins_as_a_shorter_one():
    """One stream over values, buffers and check words, however the words are divided into blocks."""
    short, long = np.zeros(5, np.uint32), np.zeros(100_000, np.uint32)
    add_pad(short, b"k" * 32)
    add_pad(long, b"k" * 32)
    assert np.array_equal(short, long[:5])
    assert np.unique(long).size > 99_900


def test_several_pads_at_once_are_the_same_as_one_after_another():
    seeds = [bytes([number]) * 32 for number in range(5)]
    arrays = [np.arange(70_003, dtype=np.uint32), np.arange(3, dtype=np.uint64), check_words()]
    alone = [array.copy() for array in arrays]
    for seed in seeds:
        add_pad(alone[0], seed, *alone[1:])
    add_pads(seeds, *arrays)
    for one, other in zip(arrays, alone, strict=True):
        assert np.array_equal(one, other)
    add_pads([], *arrays)
    assert np.array_equal(arrays[0], alone[0])


def test_the_sum_of_masked_contributions_less_the_pads_is_the_plain_sum():
    random, unmasker, scale = np.random.default_rng(4), key(9), RingScale(1.0)
    members, masked, pads, plain = [key(n) for n in range(1, 6)], np.zeros(54, "u4"), np.zeros(54, "u4"), 0
    for number, member in enumerate(members):
        values = scale.encode(random.normal(0, 1e-2, 50).astype("f4"), np.float32(0.2)).values
        plain = plain + values
        nonce = fresh_nonce()
        what = purpose(member, unmasker, member=number, length=54, nonce=nonce)
        words = np.concatenate([values, check_words()])
        add_pad(words, pad_seed(member, unmasker.public, what))
        masked += words
        add_pad(pads, pad_seed(unmasker, member.public, what))  # M: all that the unmasker says
    masked -= pads
    assert np.array_equal(masked[:-CHECK_WORDS], plain)
    assert sum_checks(masked[-CHECK_WORDS:], 5)
    assert not sum_checks(masked[-CHECK_WORDS:], 4)


def test_check_words_notice_a_pad_too_many():
    words = check_words() + check_words()
    add_pad(words, b"a" * 32)
    remove_pad(words, b"b" * 32)
    assert not sum_checks(words, 2)


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(0, 300), st.binary(min_size=32, max_size=32))
def test_for_every_other_update_there_is_a_pad_that_gives_the_same_bytes(seed, n, secret):
    """Why one masked contribution says nothing: y = z + p = z′ + p′ with p′ = y − z′, and p knows nothing of z."""
    random = np.random.default_rng(seed)
    for kind in (np.uint32, np.uint64):
        value, other = (random.integers(0, np.iinfo(kind).max, n, kind, endpoint=True) for _ in range(2))
        masked, another, alone = value.copy(), other.copy(), np.zeros(n, kind)
        for words in (masked, another, alone):
            add_pad(np.zeros(0, np.uint32), secret, words)
        assert np.array_equal(masked - value, alone)  # whatever the value is: no carry, no edge tells of it
        assert np.array_equal(another - other, alone)
        assert np.array_equal(other + (masked - other), masked)


def test_high_bytes_of_masked_values_are_uniform_and_of_plain_ones_are_not():
    """Low bytes of small updates look random even unmasked, so they would prove nothing."""
    values = (
        RingScale(1.0).encode(np.random.default_rng(0).normal(0, 1e-3, 200_000).astype("f4"), np.float32(0.1)).values
    )
    assert _chi_square(values) > 1e7
    add_pad(values, b"s" * 32)
    assert _chi_square(values) < 330  # 255 degrees of freedom: above 330 in one of a thousand


def _chi_square(words: np.ndarray) -> float:
    counts, expected = np.bincount(words >> 24, minlength=256), words.size / 256
    return float(((counts - expected) ** 2 / expected).sum())


def test_no_two_nonces_are_the_same_so_no_two_pads_are():
    assert len({fresh_nonce() for _ in range(1000)}) == 1000
    assert {len(fresh_nonce()) for _ in range(3)} == {16}


def test_an_erased_key_gives_no_secret_any_more():
    """Neither the key itself nor a secret that it gave before stays anywhere in it."""
    mine, other = key(1), key(2)
    secret = mine.agree(other.public)
    assert mine.agree(other.public) == secret == other.agree(mine.public)
    mine.erase()
    assert mine.erased
    assert not other.erased
    with pytest.raises(Refused, match="erased"):
        mine.agree(other.public)
    assert repr(secret) not in repr(vars(mine))  # everything that it still holds
    assert repr(secret) in repr(vars(other))


@pytest.mark.parametrize("public", [bytes(32), b"\1" + bytes(31), b"short"])
def test_a_key_that_shares_no_secret_is_refused(public):
    with pytest.raises(Refused, match="gives no secret"):
        key(1).agree(public)


def test_statements_about_keys_cannot_be_moved():
    said = key_statement("run", 1, "ab", bytes(32), 0)
    assert said != key_statement("run", 1, "a", b"b" + bytes(32), 0)
    assert said != key_statement("run", 1, "ab", bytes(32), 1)


def test_no_secret_is_shown():
    assert "private" not in repr(MaskKey(0)).lower()
    assert repr(purpose(key(1), key(2), nonce=b"n" * 16)).count("nnn") == 0


def test_one_stream_runs_over_values_buffers_and_check_words():
    """Buffers are padded modulo 2⁶⁴, so that a carry does not stop at their middle."""
    values, buffers, checks = np.arange(70_001, dtype=np.uint32), np.full(5, 2**64 - 1, np.uint64), check_words()
    whole = np.zeros(values.size + 2 * buffers.size + CHECK_WORDS, np.uint32)
    add_pad(whole, b"k" * 32)
    before = values.copy(), buffers.copy(), checks.copy()
    add_pad(values, b"k" * 32, buffers, checks)
    start, stop = values.size, values.size + 2 * buffers.size
    assert np.array_equal(values, before[0] + whole[:start])
    assert np.array_equal(buffers, before[1] + whole[start:stop].copy().view("<u8"))
    assert np.array_equal(checks, before[2] + whole[stop:])
    remove_pad(values, b"k" * 32, buffers, checks)
    for array, old in zip((values, buffers, checks), before, strict=True):
        assert np.array_equal(array, old)
