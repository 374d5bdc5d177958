"""What the roles say as bytes: golden values, damage, and what an honest peer never writes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from eris.errors import InputError, Reason, Refused
from eris.protocol.messages import Manifest
from eris.protocol.roster import Roster, RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import ShardVerdict, Verdict
from eris.wire.schema import digest_of, encode, plain, read_plain
from eris.wire.version import VERSION
from tests.protocol.documents import CHANGE, MANIFEST, PLAN, ROSTER, SAMPLES, VERDICT
from tests.wire.damage import damaged


def written(value: Any) -> bytes:
    return value.encoded if isinstance(value, Roster) else encode(value)


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_bytes(name: str) -> None:
    """Peers on other machines, and of the next release, must come to the same bytes, signatures and digests."""
    sample = SAMPLES[name]
    data = written(sample.value)
    assert (len(data), digest_of(data)[:32]) == (sample.length, sample.digest)
    assert sample.read(data) == sample.value


@pytest.mark.parametrize("name", SAMPLES)
def test_a_peer_of_the_next_version_is_told_so(name: str) -> None:
    data = bytearray(written(SAMPLES[name].value))
    data[1] = VERSION + 1
    said = f"wire version {VERSION + 1} met version {VERSION}: update the side with version {VERSION}"
    with pytest.raises(Refused, match=said):
        SAMPLES[name].read(bytes(data))


def attack(count: int, seed: int) -> Counter[str]:
    """Damage documents of every kind; a reader refuses, or returns what is written as exactly those bytes."""
    chance, seen = random.Random(seed), Counter[str]()
    samples = [(written(sample.value), sample.read) for sample in SAMPLES.values()]
    for attempt in range(count):
        data, read = samples[attempt % len(samples)]
        bad = damaged(data, chance)
        try:
            value = read(bad)
        except Refused as refusal:
            seen[refusal.reason.value] += 1
        else:
            assert written(value) == bad
            seen["harmless"] += 1
    return seen


def test_damaged_documents_are_refused_or_mean_what_they_say() -> None:
    seen = attack(8_000, seed=1)
    assert seen.total() == 8_000
    assert {"malformed", "wrong-version", "harmless"} <= seen.keys()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_million_damaged_documents() -> None:
    assert attack(1_000_000, seed=2).total() == 1_000_000


def test_a_signature_signs_all_but_itself() -> None:
    assert MANIFEST.signed_bytes == replace(MANIFEST, signature="").encoded != MANIFEST.encoded
    assert MANIFEST.digest == replace(MANIFEST, signature="").digest


def test_a_plan_cites_its_roster_and_nobody_reads_it_without() -> None:
    assert bytes.fromhex(ROSTER.digest) in PLAN.encoded
    assert b"clinic" not in PLAN.encoded

    def unknown(digest: str) -> Roster:
        raise Refused(Reason.WRONG_DIGEST, f"roster {digest[:8]} is not known here")

    with pytest.raises(Refused, match=f"roster {ROSTER.digest[:8]} is not known"):
        RoundPlan.decode(PLAN.encoded, unknown)
    other = Roster(ROSTER[:2])  # a resolver that lies is noticed: the plan would be written otherwise
    with pytest.raises(Refused, match="malformed"):
        RoundPlan.decode(replace(PLAN, participants=(0, 2), assignment=(2, 0), witnesses=()).encoded, lambda _: other)


def test_a_plan_means_the_same_with_weights_as_whole_numbers() -> None:
    whole = Roster(replace(entry, weight=int(entry.weight)) for entry in ROSTER if entry.weight != 2.5)
    real = Roster(entry for entry in ROSTER if entry.weight != 2.5)
    assert whole.digest == real.digest


def test_sets_stand_once_in_a_verdict() -> None:
    many = tuple(range(800))
    shards = tuple(ShardVerdict(shard, 0, "aa" * 32, many, manifest="bb" * 32) for shard in range(50))
    verdict = replace(VERDICT, shards=shards)
    assert len(verdict.encoded) < 50 * 74 + 100 + 200
    assert Verdict.decode(verdict.encoded) == verdict


def test_a_table_in_another_order_is_another_spelling() -> None:
    fields = msgspec.msgpack.decode(VERDICT.encoded[2:])
    sets, rows = fields[6]
    fields[6] = [sets[::-1], [[*row[:3], len(sets) - 1 - row[3], row[4]] for row in rows]]
    with pytest.raises(Refused, match="its encoding is not the one"):
        Verdict.decode(VERDICT.encoded[:2] + msgspec.msgpack.encode(fields))
    fields[6] = [sets, [[*row[:3], 9, row[4]] for row in rows]]
    with pytest.raises(Refused, match="not in the table"):
        Verdict.decode(VERDICT.encoded[:2] + msgspec.msgpack.encode(fields))


def test_shards_of_a_verdict_stand_in_their_order() -> None:
    with pytest.raises(InputError, match="in order of their numbers"):
        replace(VERDICT, shards=VERDICT.shards[::-1]).encoded  # noqa: B018


@pytest.mark.parametrize("value", [MANIFEST, PLAN, VERDICT])
def test_json_says_the_same(value: Manifest | RoundPlan | Verdict) -> None:
    again = read_plain(type(value), plain(value))
    assert again == value
    assert again.digest == value.digest


def test_a_difference_leads_from_one_roster_to_the_next_and_nowhere_else() -> None:
    later = ROSTER.changed(CHANGE)
    assert [entry.peer for entry in later] == [0, 2, 7]
    assert later.digest == CHANGE.result
    assert ROSTER.changed(ROSTER.change_to(ROSTER)) == ROSTER
    with pytest.raises(Refused, match="does not have"):
        later.changed(CHANGE)
    for wrong in ({"removed": ()}, {"entries": ()}, {"entries": (RosterEntry(9, "x", 1.0),)}):
        with pytest.raises(Refused, match="does not lead"):
            ROSTER.changed(replace(CHANGE, **wrong))


def test_a_roster_is_made_once() -> None:
    assert Roster(ROSTER) is ROSTER is replace(PLAN, round=4).roster
    assert PLAN.weights is ROSTER.weights
    with pytest.raises(InputError, match="ascending"):
        Roster(ROSTER[::-1])
