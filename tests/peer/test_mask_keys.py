"""Mask keys change every few rounds and are erased: who takes a machine later cannot take pads off what it recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eris.errors import Reason, Refused
from eris.events import VerdictWritten
from eris.privacy import masking
from eris.privacy.masking import MaskKey
from eris.protocol.messages import ShownKey
from tests.equivalence.federation import Federation
from tests.peer.town import noting, settings, simulated, town
from tests.protocol.test_masked_rounds import MASKED, PLAIN


def everything(key: MaskKey) -> str:
    """All that a key object holds, with the raw bytes of its private part."""
    private = key._private.private_bytes_raw() if key._private is not None else b""
    return repr((vars(key), private))


def test_keys_change_between_rounds_and_the_bits_stay() -> None:
    masked, plain = Federation(MASKED.change(rounds=6)), Federation(PLAIN.change(rounds=6))
    for number in range(6):
        for peer, member in masked.members.items():
            if number % 2:
                masked.coordinator.show_key(peer, member._key.renew().public)
        masked.round()
        plain.round()
        assert np.array_equal(masked.members[0].replica.model, plain.members[0].replica.model)
    keys = {entry.mask_keys for entry in masked.journal if hasattr(entry, "mask_keys")}
    assert len(keys) == 4


def test_what_a_key_was_is_gone_once_a_plan_shows_the_next() -> None:
    mine, other = MaskKey(7), MaskKey(0)
    old, secret, private = mine.public, mine.agree(other.public), mine._private.private_bytes_raw()
    new = mine.renew()
    assert mine.renew() is new  # until a plan has shown it there is one next key
    mine.follow(old)  # a plan that was made before
    assert mine.agree(other.public) == secret
    mine.follow(new.public)
    assert (mine.public, mine.counter) == (new.public, 8)
    for gone in (secret, private):
        assert repr(gone) not in everything(mine)
    assert mine.agree(other.public) == other.agree(mine.public) != secret


def test_over_the_network_plans_show_other_keys_and_the_model_is_that_of_fixed_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masking, "KEY_ROUNDS", 2)
    found: list[VerdictWritten] = []
    config = settings("members=4", "rounds=7", "method=eris+masked")
    with town(tmp_path, config, round=20.0) as place:
        nodes = [place.node(n, listeners=noting(found, VerdictWritten) if n == "amber" else ()) for n in place.names]
        began = {node.number: everything(node._mask_key) for node in nodes}
        first = {node.number: node._mask_key._private.private_bytes_raw() for node in nodes}
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
        assert not place.coordinator.coordinator.lost_reasons
    shown = [event.plan.mask_keys for event in found]
    assert len(shown) == 7
    for node in nodes:
        keys = [each[node.number] for each in shown]
        assert len(set(keys)) >= 3  # of rounds 0 … 1, 2 … 3 (or one later), and so on
        assert repr(first[node.number]) in began[node.number]
        assert repr(first[node.number]) not in everything(node._mask_key)
    assert {node.model_digest() for node in nodes} == {simulated(config, tmp_path / "simulated")}


def test_an_older_key_is_not_taken_for_a_newer_one(tmp_path: Path) -> None:
    with town(tmp_path, settings("members=4", "rounds=1", "method=eris+masked"), round=20.0) as place:
        nodes = [place.node(name) for name in place.names]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
        attendance = place.coordinator._attendance
        for number in (0, 99):
            with pytest.raises(Refused) as refused:
                attendance.show_key(number, ShownKey("ab" * 32, 0, ""))
            assert refused.value.reason is Reason.DUPLICATE
