"""Members with models of their own: a neighbour knows what it was sent and its own model, nothing more."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from eris.audit.estimate import NeighbourEstimator
from eris.audit.observer import DecentralisedRecorder, Vantage, parse_observer
from eris.errors import ConfigError, InputError
from eris.events import RoundStarted, Sent
from tests.audit.federation import MEMBERS, train

NEIGHBOUR = parse_observer("neighbour")
SPARSE = ("baselines.degree=2",)
SHATTER = ("baselines.virtual_nodes=4", "baselines.virtual_degree=3")


def records(audited):
    found = []
    recorder = DecentralisedRecorder(found.append)
    for event in audited.events:
        recorder(event)
    return found


def estimates(audited, victim, vantage, **options):
    options = {"sends_models": audited.composition.method.sends_models, **options}
    watcher = NeighbourEstimator(victim, vantage, audited.problem.task.spec.n, **options)
    return [(record, watcher.follow(record, watcher.model(record))) for record in records(audited)]


def scrambled(audited, victim, watcher):
    """Return the events with everything replaced that the observers were not told."""
    generator, found = np.random.default_rng(0), []
    for event in audited.events:
        if isinstance(event, RoundStarted):
            models = generator.standard_normal(event.models.shape).astype(np.float32)
            models[list(watcher.vantage.peers)] = event.models[list(watcher.vantage.peers)]
            found.append(replace(event, models=models))
        elif isinstance(event, Sent) and event.member == victim and not watcher.vantage.hears(event):
            found.append(replace(event, values=generator.standard_normal(event.values.size).astype(np.float32)))
        else:
            found.append(event)
    return found


@pytest.mark.parametrize("observer", ["neighbour", "coalition:2"])
@pytest.mark.parametrize(
    ("method", "changes"), [("gossip", SPARSE), ("shatter", SHATTER), ("ako", ()), ("qdpsgd", SPARSE)]
)
def test_what_a_neighbour_was_not_sent_changes_no_score_by_a_bit(tmp_path, method, changes, observer):
    audited = train(tmp_path, "local.batch=full", *changes, method=method)
    who, victim = parse_observer(observer), 2
    honest = audited.audit(observer, views=1)
    events = scrambled(audited, victim, honest.places[who][victim][0].estimator)
    again = audited.audit(observer, views=1, events=events)
    for name, members in honest.scores(who).items():
        assert members[victim].tobytes() == again.scores(who)[name][victim].tobytes(), name


def test_what_it_was_sent_does_change_the_scores(tmp_path):
    audited = train(tmp_path, method="gossip")
    # Not the same added to all values: softmax would not notice.
    events = [replace(e, values=e.values[::-1].copy()) if isinstance(e, Sent) else e for e in audited.events]
    scores = [audited.audit("neighbour", views=1, events=each).scores(NEIGHBOUR) for each in (audited.events, events)]
    for name in scores[0]:
        assert not np.array_equal(scores[0][name][2], scores[1][name][2]), name


def test_under_a_full_graph_a_neighbour_has_the_whole_update(tmp_path):
    audited = train(tmp_path, method="gossip")
    for record, estimate in estimates(audited, 1, Vantage((3,), "own")):
        assert estimate.seen.size == audited.problem.task.spec.n
        assert estimate.update == pytest.approx(audited.updates[record.round, 1], abs=1e-6)


def test_the_wire_has_it_too(tmp_path):
    audited = train(tmp_path, method="gossip")
    for record, estimate in estimates(audited, 1, Vantage((), "sent")):
        assert estimate.update == pytest.approx(audited.updates[record.round, 1], abs=1e-6)


def test_ako_sends_the_sum_of_what_was_not_sent_yet(tmp_path):
    audited = train(tmp_path, "baselines.partitions=2", "rounds=4", method="ako")
    half = -(-audited.problem.task.spec.n // 2)
    for record, estimate in estimates(audited, 0, Vantage((4,), "own")):
        since = range(max(0, record.round - 1), record.round + 1)
        total = sum((audited.updates[round, 0] for round in since), np.zeros(1, np.float32))
        assert abs(estimate.seen.size - half) <= 1
        assert estimate.update == pytest.approx(total[estimate.seen], abs=1e-6)


def test_a_graph_that_is_redrawn_shows_a_member_in_some_rounds(tmp_path):
    audited = train(tmp_path, "rounds=8", *SPARSE, method="gossip")
    seen = [estimate.seen.size > 0 for _, estimate in estimates(audited, 1, Vantage((3,), "own"))]
    near = [any(sent.member == 1 and 3 in sent.reached for sent in r.sent[1]) for r in records(audited)]
    assert seen == near
    assert {True, False} == set(seen)


def test_shatter_shows_chunks_and_leaks_less_than_gossip(tmp_path):
    options = {"samples": 32, "features": 60, "lr": 0.2}
    whole = train(tmp_path / "a", "rounds=5", method="gossip", **options).audit("neighbour")
    parts = train(tmp_path / "b", "rounds=5", *SHATTER, method="shatter", **options).audit("neighbour")
    found = [audit.result(NEIGHBOUR, "adaptive", tosses=99) for audit in (whole, parts)]
    assert found[0].visible_share == 1.0
    assert 0.05 < found[1].visible_share < 0.8
    assert found[0].figures["auc"].value > 0.9
    assert found[0].figures["auc"].p_value == 0.01
    assert found[0].figures["auc"].value > found[1].figures["auc"].value


def test_momentum_is_taken_off_where_the_last_round_was_seen(tmp_path):
    audited = train(tmp_path, "local.keep_state=true", "local.momentum=0.9", method="gossip", momentum=0.9)
    kept = estimates(audited, 1, Vantage((3,), "own"), momentum=0.9)
    for (_, before), (_, now) in itertools.pairwise(kept):
        assert now.fresh_update == pytest.approx(now.update - np.float32(0.9) * before.update, abs=1e-6)


def test_a_coalition_hears_what_any_of_it_was_sent(tmp_path):
    audited = train(tmp_path, *SHATTER, method="shatter")
    shares = [audited.audit(f"coalition:{size}").result(parse_observer(f"coalition:{size}"), "dot",
              tosses=9).visible_share for size in range(1, MEMBERS)]  # fmt: skip
    assert shares == sorted(shares)
    assert shares[0] < shares[-1] <= 1.0


def test_observers_that_a_method_does_not_have(tmp_path):
    gossip, eris = train(tmp_path / "a", "rounds=1", method="gossip"), train(tmp_path / "b", "rounds=1")
    for observer in ("server", "broadcast"):
        with pytest.raises(ConfigError, match=f"no {observer}"):
            gossip.audit(observer)
    with pytest.raises(ConfigError, match="no neighbours"):
        eris.audit("neighbour")
    with pytest.raises(InputError, match="do not carry the models"):
        gossip.audit("neighbour", events=[replace(gossip.events[0], models=None)])
