"""What an auditor is given of masked shards: an aggregator what a broadcast gives, a pair what an aggregator had."""

from __future__ import annotations

import numpy as np
import pytest

from eris.audit.estimate import UpdateEstimator
from eris.audit.observer import RoundTranscript, TranscriptRecorder, Vantage, partners_of
from tests.simulate.setting import play, settings

VICTIM, PEER = 4, 1
TWO = "aggregators=2"


def estimates(tmp_path, *vantages: Vantage, change: str, method: str = "eris", padded: bool = True):
    """Return what each vantage makes of the victim's update in the last round."""
    records: list[RoundTranscript] = []
    played = play(settings(change, "rounds=2", TWO, method=method), tmp_path)
    recipe = played.composition.recipe
    recorder = TranscriptRecorder(recipe, records.append)
    for event in played.events:
        recorder(event)
    found = []
    for vantage in vantages:
        estimator = UpdateEstimator(recipe, VICTIM, vantage)
        estimator.padded = padded
        found.append([estimator.follow(record) for record in records][-1])
    return played.config, found


@pytest.mark.parametrize("method", ["eris", "eris+dsc"])
def test_an_aggregator_has_what_is_broadcast_and_with_its_unmasker_its_shard(tmp_path, method):
    masked, fixed = "privacy.masking=pairs", "server.encoding=fixed"
    config = settings(masked, TWO, method=method)
    pair = Vantage((PEER, *partners_of(config, method)[PEER]), "own")
    looks = (Vantage((PEER,), "own"), Vantage((PEER,), "none"), pair)
    _, (alone, broadcast, together) = estimates(tmp_path / "masked", *looks, change=masked, method=method)
    _, (plain, _) = estimates(tmp_path / "plain", *looks[:2], change=fixed, method=method)
    assert alone.view.size == 0
    assert np.array_equal(alone.seen, broadcast.seen)
    for name in ("update", "rest", "means"):
        assert np.array_equal(getattr(alone, name), getattr(broadcast, name))
    assert together.view.size == plain.view.size > 0
    assert np.array_equal(together.view.values, plain.view.values)


@pytest.mark.parametrize("method", ["eris", "eris+dsc"])
def test_an_aggregator_is_given_the_bytes_that_it_received_and_they_say_nothing(tmp_path, method):
    """Where p's shard lies, other values under the real pad; without the pad (the mutation) they are the member's."""
    config = settings("privacy.masking=pairs", TWO, method=method)
    pair = Vantage((PEER, *partners_of(config, method)[PEER]), "own")
    looks = (Vantage((PEER,), "own"), pair, Vantage((PEER,), "none"))
    _, (alone, together, broadcast) = estimates(tmp_path, *looks, change="privacy.masking=pairs", method=method)
    assert np.array_equal(alone.captured.coordinates, together.seen)
    assert not together.captured.coordinates.size  # the pads are off
    assert not broadcast.captured.coordinates.size
    under, truth = alone.captured.values, together.update
    assert np.mean(under == truth) < 0.01
    assert truth.size < 20 or abs(np.corrcoef(under, truth)[0, 1]) < 3 / np.sqrt(truth.size)
    assert np.abs(under).mean() > 5 * np.abs(truth).max()
    if method == "eris+dsc":  # whoever read it would have followed the reference from the first round on
        return
    _, (open_one, *_) = estimates(
        tmp_path / "open", *looks, change="privacy.masking=pairs", method=method, padded=False
    )
    assert np.allclose(open_one.captured.values, truth, rtol=0, atol=1e-6)
