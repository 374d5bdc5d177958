"""The audit of a real run: one peer's own events give what the simulated run gives, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from eris.audit.attacks.by_name import ATTACKS
from eris.audit.canaries import plant_in
from eris.audit.inference import OnePlace
from eris.audit.membership import MembershipAudit
from eris.audit.peer_events import PeerEvents
from eris.compose import compose
from eris.config import load_config
from eris.local.numpy_task import Descent, LogisticTask
from eris.methods import with_defaults
from eris.seeds import public_root
from eris.simulate.run import run
from tests.peer.town import town

CASES = {
    "plain": ("method=eris",),
    "compressed": ("method=eris+dsc", "compression.keep=0.5"),
    "replicas": ("method=eris", "shards.replicas=2"),
    "masked": ("method=eris+masked",),
    "masked, compressed": ("method=eris+dsc+masked", "compression.keep=0.5"),
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_an_audit_at_a_real_peer_comes_to_the_scores_of_the_simulated_one(tmp_path, changes):
    """Of masked shards a peer keeps no contribution: what it can audit is the broadcasts."""
    few = ["data.name=synthetic-clouds", "members=4", "rounds=3", "workers=1", "server.min_contributors=1"]
    config = load_config(changes=[*few, *changes])
    config = with_defaults(config, config.methods[0])
    masked = "masked" in config.methods[0]
    place = OnePlace("broadcast" if masked else "aggregator")

    tried = ("whitened", "cosine" if masked else "adaptive")

    def problem():
        whole = LogisticTask.synthetic(
            4, public_root(5).child("real"), samples=24, features=12, descent=Descent(config.local.lr)
        )
        return plant_in(whole, config.seed)

    def audited(planted):
        counts = [planted.task.samples(member) for member in range(4)]
        composition = compose(config, planted.task.spec, counts)
        attacks = [ATTACKS[name] for name in tried]
        return MembershipAudit(composition, planted, [place], views=1, attacks=attacks), composition.recipe

    planted = problem()
    simulated, _ = audited(planted)
    run(config, tmp_path / "run", task=planted.task, listeners=[simulated])
    (watcher,) = simulated.places[place][0][0].estimator.vantage.peers
    real, recipe = audited(problem())
    with town(tmp_path / "town", config) as federation:
        for number, name in enumerate(federation.names):
            listeners = [PeerEvents(recipe, real)] if number == watcher else []
            federation.start(name, federation.node(name, task=problem().task, listeners=listeners).run)
        federation.wait()
    expected, found = simulated.scores(place), real.scores(place)
    for attack in tried:
        for member in range(4):
            assert np.isfinite(found[attack][member]).all()
            assert np.array_equal(found[attack][member], expected[attack][member])
    assert all(found["whitened"][member].std() > 0 for member in range(4) if member != watcher)
    assert masked or real.result(place, "whitened", tosses=19).figures["auc"].value > 0.5
