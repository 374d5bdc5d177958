"""The whole attack: it uses what it may, finds what it sees, and keeps its level where there is nothing to find."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from eris.audit.attacks.by_name import ATTACKS, attack_by_name
from eris.audit.canaries import toss
from eris.audit.membership import MembershipAudit
from eris.audit.observer import parse_observer
from eris.audit.scoring import ScoreSheet, epsilon, figures
from eris.errors import ConfigError, InputError
from eris.events import RoundStarted, Sent
from eris.methods import METHODS
from eris.seeds import private_root, public_root
from tests.audit.federation import AGGREGATOR, MEMBERS, scrambled, train

ADAPTIVE = "adaptive"


SECRET = ("compression.keep=0.3", "compression.masks=independent")
KEPT = ("local.keep_state=true", "local.momentum=0.9")


@pytest.mark.parametrize("observer", ["aggregator", "coalition:3", "broadcast", "wire"])
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("eris", ()),
        ("eris", ("shards.schedule=redraw",)),
        ("eris", ("shards.replicas=2", "shards.schedule=rotate")),
        ("eris", ("participation=0.8", *KEPT)),
        ("eris", ("server.optimizer=fedadam",)),
        ("eris", ("aggregators=3", "server.optimizer=fednova")),
        ("eris+dsc", ("compression.keep=0.3",)),
        ("eris+dsc", ("compression.keep=0.3", "shards.schedule=rotate", *KEPT)),
        ("eris+dsc", SECRET),
        ("eris+dsc", (*SECRET, "shards.schedule=redraw")),
        ("fedavg", ()),
    ],
    ids=lambda part: part if isinstance(part, str) else " ".join(part) or "-",
)
def test_what_is_not_seen_changes_no_score_by_a_bit(tmp_path, method, changes, observer):
    """Of no attack, whatever any member sent to others."""
    momentum = 0.9 if KEPT[1] in changes else 0.0
    audited = train(tmp_path, "rounds=4", *changes, method=method, momentum=momentum)
    honest = audited.audit(observer, views=1)
    victim, who = 2, parse_observer(observer)
    events = scrambled(audited.events, honest, victim, who, supports=SECRET[1] in changes)
    again = audited.audit(observer, views=1, events=events)
    first, second = honest.scores(who), again.scores(who)
    for name in first:
        assert first[name][victim].tobytes() == second[name][victim].tobytes(), name
    assert set(first) == {name for name in ATTACKS if name != "spv"}


def test_masks_that_everybody_knows_show_no_more_than_where_values_were_kept(tmp_path):
    audited = train(tmp_path, *SECRET, method="eris+dsc")
    who, scores = AGGREGATOR, []
    honest = MembershipAudit(audited.composition, audited.problem, [who], views=1, masks_known=True)
    again = MembershipAudit(audited.composition, audited.problem, [who], views=1, masks_known=True)
    for audit, events in ((honest, audited.events), (again, scrambled(audited.events, honest, 2, who))):
        for event in events:
            audit(event)
        scores.append({name: part[2].tobytes() for name, part in audit.scores(who).items()})
    assert scores[0] == scores[1]


def test_what_is_seen_does_change_the_scores(tmp_path):
    """Otherwise the test above could not fail."""
    audited = train(tmp_path)
    honest = audited.audit("aggregator", views=1)
    events = scrambled(audited.events, honest, 2, AGGREGATOR)
    wider = [audited.audit("wire", views=1, events=given).scores(parse_observer("wire")) for given in (events, None)]
    for name in wider[0]:
        assert not np.array_equal(wider[0][name][2], wider[1][name][2]), name


def test_who_sees_everything_finds_the_canaries(tmp_path):
    audited = train(tmp_path, "rounds=6", method="fedavg", samples=32, features=200)
    result = audited.audit("server").result(parse_observer("server"), ADAPTIVE, tosses=199)
    assert result.figures["auc"].value > 0.95
    assert result.figures["auc"].p_value == 1 / 200
    assert result.figures["auc"].low > 0.8
    assert result.epsilon["lower_bound"] > 0.5
    assert result.visible_share == 1.0
    assert len(result.by_round) == 6


def test_the_adaptive_attack_beats_the_published_one_and_sharding_weakens_it(tmp_path):
    audited = train(tmp_path, "rounds=6", samples=32, features=60, lr=0.05)
    audit = audited.audit("aggregator", "coalition:4", "broadcast")
    found = {
        (text, name): audit.result(parse_observer(text), name, tosses=19).figures["auc"].value
        for text in ("aggregator", "coalition:4", "broadcast")
        for name in ("adaptive", "paper")
    }
    assert found["coalition:4", "adaptive"] > found["aggregator", "adaptive"] + 0.05
    assert found["aggregator", "adaptive"] > found["broadcast", "adaptive"]
    assert found["coalition:4", "adaptive"] > found["coalition:4", "paper"] + 0.1


def test_all_colluding_aggregators_score_as_a_server(tmp_path):
    """For victims that aggregate nothing, bit for bit."""
    few, server = train(tmp_path / "a", "aggregators=3"), train(tmp_path / "b", method="fedavg")
    joint = few.audit("coalition:3", views=1).scores(parse_observer("coalition:3"))
    alone = server.audit("server").scores(parse_observer("server"))
    for name in joint:
        for victim in (3, 4):
            assert joint[name][victim].tobytes() == alone[name][victim].tobytes(), name


def test_all_colluding_against_one_that_aggregates_score_as_a_server_would(tmp_path):
    """The victim's own shard is what is left of the published mean when all others take their parts off."""
    audited = train(tmp_path, "aggregators=5", "rounds=4")
    joint = audited.audit("coalition:5", views=1).scores(parse_observer("coalition:5"))
    whole = train(tmp_path / "b", "rounds=4", method="fedavg").audit("server").scores(parse_observer("server"))
    for name in ("whitened", "regression", "dot"):
        for victim in range(5):
            assert joint[name][victim][-1] == pytest.approx(whole[name][victim][-1], abs=0.02), name


@pytest.mark.slow
def test_the_null_keeps_its_level(tmp_path):
    """Over 200 audits whose coins were tossed after the training, about 5 % reject at 5 %, whatever the figure."""
    rejected, refuted = Counter(), Counter()
    for pipeline in range(200):
        audited = train(tmp_path / str(pipeline), "rounds=2", seed=pipeline, samples=16, features=6)
        scores = audited.audit("aggregator", views=2).scores(AGGREGATOR)
        seed = public_root(1000 + pipeline)
        coins = [toss(private_root(1000 + pipeline, member), 8) for member in range(MEMBERS)]
        for name in ("adaptive", "paper"):
            sheet = ScoreSheet.of(scores[name], seed)
            for figure, found in figures(sheet, coins, seed, tosses=99).items():
                rejected[name, figure] += found.p_value <= 0.05
            refuted[name] += epsilon(sheet, coins, delta=1e-5)["lower_bound"] > 0
    assert all(2 <= count <= 21 for count in rejected.values()), rejected
    assert all(count <= 21 for count in refuted.values()), refuted


def test_a_leak_is_not_taken_for_chance(tmp_path):
    """The same pipelines with the coins they were trained with: otherwise the test above could not fail."""
    rejected = 0
    for pipeline in range(10):
        audited = train(tmp_path / str(pipeline), "rounds=2", seed=pipeline, samples=16, features=40)
        audit = audited.audit("aggregator", views=2)
        rejected += audit.result(AGGREGATOR, ADAPTIVE, tosses=99).figures["auc"].p_value <= 0.05
    assert rejected >= 9


def test_members_that_are_away_are_not_guessed_at(tmp_path):
    audited = train(tmp_path, "participation=0.6", "rounds=5")
    audit = audited.audit("aggregator")
    missing = [record.round for record in audited.records() if 0 not in record.sent]
    assert missing
    taken = audit.scores(AGGREGATOR)
    alone, summed = taken["paper"][0], taken["loss"][0]
    assert np.isnan(alone[missing]).all()
    assert not np.isnan(np.delete(alone, missing, axis=0)).any()
    for round in missing:  # whoever adds up has heard nothing new
        before = summed[round - 1] if round else np.zeros_like(summed[0])
        assert np.array_equal(summed[round], before)
    result = audit.result(AGGREGATOR, ADAPTIVE, tosses=19)
    for figure in result.figures.values():
        assert np.isfinite([figure.value, figure.chance, figure.chance_95, figure.p_value]).all()
    assert 0 < result.figures["auc"].low < result.figures["auc"].value < result.figures["auc"].high < 1
    paper = audit.result(AGGREGATOR, "paper", tosses=19)
    assert np.isfinite(paper.by_round).all()


def test_a_result_is_plain_data(tmp_path):
    import json

    result = train(tmp_path).audit("aggregator").result(AGGREGATOR, ADAPTIVE, tosses=19)
    plain = json.loads(json.dumps(result.plain(), allow_nan=False))
    assert plain["observer"] == "aggregator"
    assert plain["canaries"] == 12 * MEMBERS
    assert set(plain["figures"]["auc"]) == {"value", "chance", "chance_95", "p_value", "low", "high"}
    assert {"unit", "adjacency", "delta", "rounds", "confidence"} <= set(plain["epsilon"])


def test_an_update_of_zeros_scores_nothing_and_is_guessed_all_the_same(tmp_path):
    audited = train(tmp_path)
    events = [replace(e, values=np.zeros_like(e.values)) if isinstance(e, Sent) else e for e in audited.events]
    events = [replace(e, values=np.zeros_like(e.values)) if hasattr(e, "contributors") else e for e in events]
    audit = audited.audit("wire", events=events)
    scores = audit.scores(parse_observer("wire"))
    for name in ("calibrated", "dot", "cosine", "regression"):
        assert not scores[name][0].any(), name
    result = audit.result(parse_observer("wire"), "dot", tosses=19)
    assert result.epsilon["guesses"] == MEMBERS * (5 + 3)


def test_events_without_the_model_are_refused(tmp_path):
    audited = train(tmp_path)
    with pytest.raises(InputError, match="do not carry the model"):
        audited.audit("aggregator", events=[replace(audited.events[0], model=None)])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_audited(tmp_path, method):
    audited = train(tmp_path, "rounds=2", "local.batch=full", method=method)
    result = audited.audit("aggregator", "wire").result(AGGREGATOR, ADAPTIVE, tosses=19)
    assert 0 <= result.figures["auc"].value <= 1
    seen = result.visible_share
    blind = METHODS[method].trusted or "masked" in method  # an aggregator alone reads nothing of a masked shard
    assert seen == 0 if blind else 0 < seen <= 1


class Alignment:
    """An attack of one's own: products with the gradients, added up."""

    name, needs, cumulative = "alignment", frozenset({"gradients"}), True

    def score(self, seen, memory):
        memory["sum"] = memory.get("sum", 0.0) + seen.products
        return memory["sum"]


def test_an_attack_of_ones_own_is_registered_and_heard(tmp_path, monkeypatch):
    monkeypatch.setitem(ATTACKS, "alignment", Alignment())
    audited = train(tmp_path, method="fedavg", samples=32, features=200)
    who = parse_observer("server")
    whole, first = audited.audit("server"), audited.audit("server", events=[])
    result = whole.result(who, "alignment", tosses=99)
    assert result.figures["auc"].value > 0.8
    assert result.figures["auc"].p_value == 0.01
    half = next(at for at, event in enumerate(audited.events) if isinstance(event, RoundStarted) and event.round == 2)
    for event in audited.events[:half]:
        first(event)
    second = audited.audit("server", events=[])
    second.remember(first.memory())  # what an attack keeps is in the checkpoint
    for event in audited.events[half:]:
        second(event)
    for name, members in whole.scores(who).items():
        for one, other in zip(members, second.scores(who)[name], strict=True):
            assert one.tobytes() == other.tobytes(), name


def test_an_attack_by_losses_builds_no_gradients(tmp_path):
    audited = train(tmp_path)

    def refused(member, model):
        raise AssertionError("a gradient was built")

    audited.problem.probe.sample_gradients = refused
    audit = MembershipAudit(
        audited.composition, audited.problem, [AGGREGATOR], attacks=[ATTACKS["loss"], ATTACKS["paper"]]
    )
    for event in audited.events:
        audit(event)
    assert set(audit.scores(AGGREGATOR)) == {"loss", "paper"}
    with pytest.raises(ConfigError, match="was not part of this audit: use one of loss, paper"):
        audit.result(AGGREGATOR, "dot")


def test_attacks_have_names():
    assert attack_by_name("paper").cumulative is False
    with pytest.raises(ConfigError, match="adaptive"):
        attack_by_name("nothing")
