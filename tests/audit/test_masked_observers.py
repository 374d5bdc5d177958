"""What an auditor is given of masked shards: an aggregator what a broadcast gives, a pair what an aggregator had."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eris.audit.attack import Memory, Observation
from eris.audit.attacks.by_name import ATTACKS
from eris.audit.canaries import plant_in
from eris.audit.estimate import Captured, UpdateEstimator
from eris.audit.membership import MembershipAudit
from eris.audit.observer import Observer, RoundTranscript, TranscriptRecorder, Vantage, parse_observer, partners_of
from eris.audit.scoring import Scores
from eris.compose import compose
from eris.config import load_config
from eris.methods import with_defaults
from eris.seeds import public_root
from eris.simulate.run import run
from eris.simulate.spread import t_quantile
from eris.tasks import build_task
from tests.audit.federation import train
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
def test_an_unmasker_and_the_wire_have_what_is_broadcast_and_no_bytes_to_read(tmp_path, method):
    config = settings("privacy.masking=pairs", TWO, method=method)
    asked = {"members": config.members, "seed": public_root(1), "limit": 1, "partners": partners_of(config, method)}
    (unmasker,) = Observer("unmasker").vantages(VICTIM, range(2), **asked)
    (wire,) = Observer("wire").vantages(VICTIM, range(2), **asked)
    assert unmasker.peers[0] in {peer for peers in partners_of(config, method).values() for peer in peers}
    looks = (unmasker, Vantage(unmasker.peers, "none"), wire, Vantage((), "none"))
    _, found = estimates(tmp_path, *looks, change="privacy.masking=pairs", method=method)
    own_shards = [peer for peer in unmasker.peers if peer in range(2)]
    for one, broadcast in ((found[0], found[1]), (found[2], found[3])):
        assert one.view.size == 0
        for name in ("seen", "update", "rest", "means"):
            assert np.array_equal(getattr(one, name), getattr(broadcast, name))
    assert bool(found[0].captured.coordinates.size) == bool(own_shards)  # what it receives as an aggregator, padded
    assert not found[2].captured.coordinates.size


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


WHITENED = ATTACKS["whitened"]  # it tries what lies under a pad as well, and takes what fits better
SEEDS = range(1, 13)
WITHIN = 0.02  # two areas that differ by less are called the same


class FromBytesAlone:
    """The same attack, which takes the bytes that an aggregator received for a member's values, and nothing else."""

    name, cumulative, needs = "bytes", True, WHITENED.needs

    def score(self, seen: Observation, memory: Memory) -> Scores:
        where, values = seen.estimate.captured
        read = {"seen": where, "update": values, "fresh_update": values, "captured": Captured.nothing()}
        return WHITENED.score(replace(seen, estimate=replace(seen.estimate, **read)), memory)


def areas(folder: Path, seed: int) -> dict[str, float]:
    """Train once; return the area under the ROC curve of each look at it."""
    changes = ["privacy.masking=pairs", "members=8", "aggregators=2", "rounds=2"]
    trained = train(folder / f"{seed}", *changes, samples=32, features=200, seed=seed)
    broadcast, aggregator, alone = parse_observer("broadcast"), parse_observer("aggregator"), FromBytesAlone()
    looks = {
        "broadcast": (broadcast, WHITENED, True),
        "captured": (aggregator, WHITENED, True),
        "opened": (aggregator, WHITENED, False),
        "captured alone": (aggregator, alone, True),
        "opened alone": (aggregator, alone, False),
    }
    found = {}
    for name, (who, attack, padded) in looks.items():
        audit = MembershipAudit(trained.composition, trained.problem, [who], views=1, attacks=[attack])
        for place in (place for places in audit.places[who] for place in places):
            place.estimator.padded = padded
        for event in trained.events:
            audit(event)
        found[name] = audit.result(who, attack.name, tosses=1).figures["auc"].value
    return found


def interval(values: Sequence[float], level: float = 0.90) -> tuple[float, float]:
    """Return Student's interval of a mean over seeds."""
    reach = t_quantile((1 + level) / 2, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values) - reach, statistics.mean(values) + reach


@pytest.mark.slow
def test_the_bytes_that_an_aggregator_receives_are_worth_what_the_broadcast_is_and_without_pads_far_more(tmp_path):
    """Two one-sided tests: the paired 90 % interval of the difference lies within ±0.02. Open bytes must not pass."""
    found = [areas(tmp_path, seed) for seed in SEEDS]
    low, high = interval([one["captured"] - one["broadcast"] for one in found])
    assert -WITHIN < low <= high < WITHIN
    low, _ = interval([one["opened"] - one["broadcast"] for one in found])
    assert low > 4 * WITHIN  # the mutation
    low, high = interval([one["captured alone"] for one in found], 0.99)
    assert low < 0.5 < high  # by themselves they say nothing
    assert high - low < 0.1
    assert interval([one["opened alone"] for one in found])[0] > 0.9


@pytest.mark.parametrize("local", [("local.epochs=3",), ("local.steps=4", "local.batch=5", "local.momentum=0.5")])
def test_what_masked_members_do_not_tell_follows_from_the_settings(tmp_path, local):
    """The sum is the same to the bit, so the attack on broadcasts is: it must know how many steps are in an update."""
    few = ["members=5", "aggregators=5", "rounds=2", "evaluate_every=2", "data.samples=16", "data.validation=0.0"]
    few += ["data.test_samples=60", "local.batch=full", "local.momentum=0.0", "workers=1", *local]
    broadcast, found = Observer("broadcast"), []
    for name in ("eris", "eris+masked"):
        config = with_defaults(load_config(changes=[*few, f"method={name}", "server.encoding=fixed"]), name)
        planted = plant_in(build_task(config.model_dump(mode="json", exclude_none=True)), config.seed)
        composition = compose(config, planted.task.spec, [planted.task.samples(member) for member in range(5)])
        audit = MembershipAudit(composition, planted, [broadcast], views=1, attacks=[ATTACKS["whitened"]])
        run(config, tmp_path / name, task=planted.task, listeners=[audit])
        found.append(audit.scores(broadcast)["whitened"])
    for plain, masked in zip(*found, strict=True):
        assert plain.std() > 0
        assert np.array_equal(plain, masked)
