"""What is digested is the JSON that Python's own encoder writes, to the byte."""

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import Reason
from eris.protocol.canonical import canonical_bytes, plain
from eris.protocol.messages import Manifest, Withheld
from eris.protocol.round_plan import RosterEntry, RoundPlan
from eris.protocol.verdict import GENESIS, ShardVerdict, Verdict

MANIFEST = Manifest("aa", 3, 1, 2, (0, 2, 5), c=0.1 + 0.2, steps=1e-7, hash="bb", signature="cc")
PLAN = RoundPlan(
    *("rün", 1, 3, GENESIS, "spec"),
    roster=(RosterEntry(0, "Köln\n", 1.0), RosterEntry(2, 'a "b"', 2.5)),
    participants=(0, 2),
    assignment=(2, 0),
)
VERDICT = Verdict("run", 1, 3, "aa", GENESIS, (ShardVerdict(0, 2, "bb", (0, 2)), ShardVerdict(1, 0, lost="why")), (2,))


@dataclass(frozen=True)
class Anything:
    value: Any
    again: Any


@pytest.mark.parametrize("value", [MANIFEST, PLAN, VERDICT, Withheld("aa", 1, 2, Reason.TOO_FEW, (0,))])
def test_messages(value):
    assert canonical_bytes(value) == by_the_library(value)


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(values, values)
def test_whatever_it_is(value, again):
    held = Anything(value, again)
    assert canonical_bytes(held) == by_the_library(held)


def test_numbers_that_are_equal_but_spelled_otherwise():
    spelled = [canonical_bytes(numbers) for numbers in ((1, 0), (1.0, 0.0), (True, False), (1, 0))]
    assert spelled == [b"[1,0]", b"[1.0,0.0]", b"[true,false]", b"[1,0]"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), (1.0, float("-inf"))])
def test_what_json_has_no_word_for(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_bytes(Anything(value, 0))


def test_a_signature_signs_all_but_itself():
    assert MANIFEST.signed_bytes == replace(MANIFEST, signature="").spelled != MANIFEST.spelled


def by_the_library(value: Any) -> bytes:
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
