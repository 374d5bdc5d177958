"""Sights from the events of a run: an observer's coordinates and no others, with what was done to them undone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from eris.audit.observer import Observer, Vantage, parse_observer, partners_of
from eris.audit.reconstruction import Handling, LocalSteps, reconstruction_attack
from eris.audit.reconstruction.attack_setup import attack_setup
from eris.audit.reconstruction.collect import CAPTURED, ObservationCollector, collect
from eris.compose import compose
from eris.config import load_config
from eris.errors import ConfigError, InputError
from eris.events import RoundStarted, Sent, ShardPublished
from eris.methods import with_defaults
from eris.seeds import public_root
from eris.simulate.run import run
from eris.tasks import build_task

SMALL = (
    "members=4", "rounds=3", "workers=1", "data.samples=1", "data.validation=0.0", "data.test_samples=10",
    "model.name=eris.audit.reconstruction.small_networks:SigmoidPerceptron", "model.options={hidden=6}",
    "local.batch=full", "local.lr=0.1", "local.momentum=0.0",
)  # fmt: skip


def config(*changes):
    return load_config(changes=[*SMALL, *changes])


def seen_by(observer, *changes, rounds=1):
    scene = collect(config(*changes), [parse_observer(observer)], victims=4, rounds=rounds)
    return {collected.victim: collected for collected in scene.observations}


@pytest.fixture(scope="module")
def server():
    return seen_by("server", "method=fedavg")


def test_the_server_sees_the_update_that_the_member_made(server):
    task = build_task(config("method=fedavg").model_dump(mode="json", exclude_none=True))
    made = attack_setup(config("method=fedavg"), [parse_observer("server")], pictures=4)
    for victim, collected in server.items():
        assert collected.share == 1.0
        assert collected.observation.local == LocalSteps(lr=0.1)
        images = made.originals[victim]
        assert images.min() >= 0
        assert images.max() <= 1
        assert made.labels[victim].shape == (task.samples(victim),)


def test_an_aggregator_has_a_part_of_the_same_values_and_a_coalition_of_all_has_them_all(server):
    for victim, collected in seen_by("aggregator", "method=eris", "aggregators=2").items():
        assert collected.share == pytest.approx(0.5, abs=0.001)
        assert np.array_equal(
            collected.observation.values, server[victim].observation.values[collected.observation.seen]
        )
    together = seen_by("coalition:2", "method=eris", "aggregators=2")
    for victim in (2, 3):  # the first two aggregate themselves: their own shard stays at home
        assert np.array_equal(together[victim].observation.values, server[victim].observation.values)
        assert np.array_equal(together[victim].observation.seen, server[victim].observation.seen)


def test_shifted_compression_is_undone():
    exact = seen_by("server", "method=fedavg")
    shifted = seen_by("aggregator", "method=eris+dsc", "aggregators=2", "compression.keep=0.5")
    for victim, collected in shifted.items():
        whole = exact[victim].observation.values
        assert collected.share == pytest.approx(0.25, abs=0.01)
        assert collected.observation.values == pytest.approx(whole[collected.observation.seen], rel=1e-5, abs=1e-9)


def test_a_reference_that_was_seen_to_grow_is_undone_too():
    changes = ("method=eris+dsc", "aggregators=1", "compression.keep=1.0", "server.min_contributors=1")
    later = seen_by("wire", *changes, rounds=3)
    plain = seen_by("wire", "method=eris", "aggregators=1", "server.min_contributors=1", rounds=3)
    for victim in (1, 2, 3):  # the first one is the aggregator
        assert later[victim].share == plain[victim].share == 1.0
        assert later[victim].observation.values == pytest.approx(plain[victim].observation.values, rel=1e-3, abs=1e-6)


def test_clipping_and_noise_are_known():
    (collected, *_) = seen_by("aggregator", "method=eris", "privacy.clip=0.5", "privacy.noise_multiplier=0.1").values()
    assert collected.observation.handling == Handling(clip=0.5, noise=pytest.approx(0.1 * 2 * 0.5))
    private = ("method=fedavg-dpsgd", "privacy.unit=sample", "privacy.clip=0.5", "privacy.epsilon=10")
    (collected, *_) = seen_by("server", *private).values()
    assert collected.observation.handling.sample_clip == 0.5
    assert collected.observation.handling.noise > 0


def test_what_priprune_withheld_is_not_taken_for_zero():
    for collected in seen_by("server", "method=priprune", "baselines.prune=0.01").values():
        assert (collected.observation.values != 0).all()
        assert 0.5 < collected.observation.seen.size / 4780 < 1


def test_through_broadcasts_alone_there_is_the_mean_of_all_others():
    for collected in seen_by("broadcast", "method=eris").values():
        assert collected.share == 0.0
        assert collected.observation.seen.size == 784 * 6 + 6 + 70
        assert collected.observation.local.samples == 3


def test_a_run_can_be_gone_on_from():
    model = np.full(784 * 6 + 6 + 70, 0.01, np.float32)
    scene = collect(config("method=eris"), [parse_observer("aggregator")], victims=1, model=model)
    assert np.array_equal(scene.model, model)


def test_what_the_attacks_have_no_model_of_is_refused():
    with pytest.raises(ConfigError, match="their own models"):
        seen_by("wire", "method=gossip")
    with pytest.raises(ConfigError, match="gradient steps"):
        seen_by("aggregator", "method=eris", "local.optimizer=adam")
    with pytest.raises(ConfigError, match="plain gradients"):
        seen_by("aggregator", "method=eris", "local.send=gradient", "local.estimator=saga")
    with pytest.raises(ConfigError, match="earlier round"):
        seen_by("aggregator", "method=eris", rounds=4)
    with pytest.raises(InputError, match="no pictures"):
        collect(load_config(changes=["data.name=synthetic-clouds"]), [parse_observer("aggregator")], victims=1)


def test_pictures_come_out_of_what_a_pair_sees_and_none_out_of_the_bytes_under_pads():
    """One aggregator of masked shards tries the bytes that it received: they lie where the pair's values do."""
    observers = [parse_observer("aggregator"), parse_observer("pair")]
    made = attack_setup(config("method=eris+masked", "aggregators=1"), observers, pictures=4)
    found = {(each.observer, each.victim): each.observation for each in made.observations}
    assert {victim for observer, victim in found if observer == CAPTURED} == {1, 2, 3}  # 0 aggregates, 1 unmasks
    errors = {"pair": [], CAPTURED: []}
    for victim in (2, 3):
        assert np.array_equal(found[CAPTURED, victim].seen, found["pair", victim].seen)
        assert not np.array_equal(found["aggregator", victim].values, found[CAPTURED, victim].values)
        for observer, kept in errors.items():
            recovered = reconstruction_attack("rank-one").recover(
                found[observer, victim], made.public, seed=public_root(1)
            )
            kept.append(float(np.mean((recovered.images - made.originals[victim]) ** 2)))
    assert max(errors["pair"]) < 1e-3
    assert min(errors[CAPTURED]) > 0.02


def test_bytes_under_pads_are_attacked_once_whoever_else_looks():
    """Where everybody aggregates, the unmasker of a pair has bytes of another shard under pads, too."""
    observers = [parse_observer(name) for name in ("aggregator", "pair", "coalition:2")]
    made = attack_setup(config("method=eris+masked", "aggregators=4"), observers, pictures=4)
    victims = [each.victim for each in made.observations if each.observer == CAPTURED]
    assert sorted(victims) == sorted(set(victims))
    assert victims


NOWHERE = Vantage((), "none")


@dataclass(frozen=True)
class At(Observer):
    """An observer at one chosen place."""

    place: Vantage = NOWHERE

    def vantages(self, *args, **facts):
        return [self.place]


@pytest.mark.parametrize("aggregators", [1, 4])  # with four the unmasker aggregates a masked shard itself
def test_an_unmasker_has_what_is_broadcast_to_it_and_no_value_of_one_member(aggregators):
    chosen = config("method=eris+masked", f"aggregators={aggregators}")
    partners = partners_of(chosen, "eris+masked")
    for victim in (2, 3):
        place = Observer("unmasker").vantages(
            victim, range(aggregators), 4, public_root(1), limit=1, partners=partners
        )[0]
        assert place.peers[0] in {peer for unmaskers in partners.values() for peer in unmaskers}
        listener, observers = Vantage(place.peers, "none"), []
        for kind, where in (("unmasker", place), ("broadcast", listener)):
            observers.append(At(kind, place=where))
        scene = collect(chosen, observers, victims=4)
        found = {each.observer: each for each in scene.observations if each.victim == victim}
        assert found["unmasker"].share == found["broadcast"].share == 0.0
        unmasker, broadcast = found["unmasker"].observation, found["broadcast"].observation
        assert unmasker.local == broadcast.local
        for name in ("model", "seen", "values"):
            assert np.array_equal(getattr(unmasker, name), getattr(broadcast, name))
        assert unmasker.seen.size


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """Every event of a short run, with arrays of its own."""
    kept = []
    chosen = with_defaults(config("method=eris+dsc", "aggregators=2", "compression.keep=0.5"), "eris+dsc")
    run(chosen, tmp_path_factory.mktemp("run") / "run", listeners=[lambda event: kept.append(_copied(event))])
    return chosen, kept


@pytest.mark.parametrize("observer", ["aggregator", "broadcast"])
@pytest.mark.parametrize("name", ["boxed", "dlg", "idlg", "inverting-gradients", "rank-one"])
def test_no_attack_changes_by_a_bit_when_all_that_is_invisible_changes(events, observer, name):
    if observer == "broadcast" and name == "rank-one":
        pytest.skip("a mean of three is no matrix of rank one")
    chosen, honest = events
    public = attack_setup(chosen, [parse_observer("aggregator")], pictures=1).public
    recovered = []
    for seed in (None, 1):
        observation = _observation(
            chosen, honest if seed is None else _scrambled(chosen, honest, observer, seed), observer
        )
        options = {} if name == "rank-one" else {"steps": 4, "restarts": 1}
        recovered.append(reconstruction_attack(name, **options).recover(observation, public, seed=public_root(1)))
    assert np.array_equal(recovered[0].images, recovered[1].images)
    assert np.array_equal(recovered[0].labels, recovered[1].labels)
    assert recovered[0].loss == recovered[1].loss or name == "rank-one"


def test_what_is_visible_does_change_the_sight(events):
    chosen, honest = events
    first = _observation(chosen, honest, "aggregator")
    second = _observation(chosen, _scrambled(chosen, honest, "broadcast", 1), "aggregator")
    assert np.array_equal(first.seen, second.seen)
    assert not np.array_equal(first.values, second.values)


def _observation(chosen, events, observer):
    """Return what is seen of member 3 in the last round; it is no aggregator."""
    task = build_task(chosen.model_dump(mode="json", exclude_none=True))
    collector = ObservationCollector(
        compose(chosen, task.spec, [1] * 4), [1] * 4, [parse_observer(observer)], [3], last=2
    )
    for event in events:
        collector(event)
    (collected,) = collector.observations
    return collected.observation


def _scrambled(chosen, events, observer, seed):
    """Change every value that member 3 sent and that the observer does not see; what is published stays."""
    task = build_task(chosen.model_dump(mode="json", exclude_none=True))
    composition = compose(chosen, task.spec, [1] * 4)
    looking = parse_observer(observer)
    audit = composition.recipe.public.child("audit")
    vantage = looking.vantages(3, composition.aggregators, 4, audit, limit=1, server=False)[0]
    generator, assignment, changed = np.random.default_rng(seed), (), []
    for event in events:
        if isinstance(event, RoundStarted):
            assignment = event.assignment
        if isinstance(event, Sent) and event.member == 3:
            view = vantage.view(event, composition.recipe.layout(event.round), assignment)
            support = np.arange(task.spec.n_trainable) if event.support is None else event.support
            hidden = ~np.isin(support, view.coordinates)
            values = event.values.copy()
            values[hidden] = generator.standard_normal(int(hidden.sum()))
            event = replace(event, values=values)
        changed.append(event)
    return changed


def _copied(event):
    if isinstance(event, Sent):
        return replace(event, values=event.values.copy(), buffers=event.buffers.copy())
    if isinstance(event, RoundStarted):
        return replace(event, model=event.model.copy())
    if isinstance(event, ShardPublished) and event.values is not None:
        return replace(event, values=event.values.copy())
    return event
