"""FedProx and SCAFFOLD, added through the doors: against plain loops that share no code with them."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from eris.compose import check_settings
from eris.config import load_config
from eris.errors import ConfigError
from eris.events import RoundStarted
from eris.local.numpy_task import Descent, QuadraticTask
from eris.seeds import public_root
from eris.simulate.run import run
from tests.simulate.setting import settings

K, N, STEPS, LR = 6, 24, 5, 0.2


def task(samples=True, steps=STEPS):
    seed = public_root(3)
    centres = (4 * seed.child("centres").uniforms(K * N) - 2).reshape(K, N)
    curvatures = (0.2 + 2 * seed.child("curvatures").uniforms(K * N)).reshape(K, N)
    counts = [1 + 3 * k for k in range(K)] if samples else None
    return QuadraticTask(centres, curvatures=curvatures, samples=counts, steps=steps, descent=Descent(LR))


def trained(tmp_path, method, problem, *changes, rounds=60):
    """Run a method and return its summary, and the model that every round began with."""
    config = load_config(changes=[f"method={method}", f"members={K}", f"rounds={rounds}", f"local.lr={LR}", *changes])
    models = []

    def listen(event):
        if isinstance(event, RoundStarted):
            models.append(event.model.copy())

    return run(config, tmp_path, task=problem, listeners=[listen]).summaries[0], models


def plain_scaffold(problem, start, rounds):
    """SCAFFOLD as its paper writes it (option II, everybody takes part, weights by samples), in float64."""
    x, c = start.astype(np.float64), np.zeros(N)
    own = np.zeros((K, N))
    weights = np.array([problem.samples(k) for k in range(K)], float)
    weights /= weights.sum()
    for _ in range(rounds):
        moved, changed = np.zeros(N), np.zeros(N)
        for k in range(K):
            y = x.copy()
            for _ in range(STEPS):
                y -= LR * (problem.curvatures[k] * (y - problem.centres[k]) - own[k] + c)
            new = own[k] - c + (x - y) / (STEPS * LR)
            moved += weights[k] * (x - y)
            changed += weights[k] * (new - own[k])
            own[k] = new
        x, c = x - moved, c + changed
    return x


def test_scaffold_is_scaffold(tmp_path):
    problem = task()
    _, models = trained(tmp_path / "a", "scaffold", problem, rounds=12)
    for rounds in (1, 2, 5, 11):
        np.testing.assert_allclose(models[rounds], plain_scaffold(problem, models[0], rounds), atol=2e-5)


def test_scaffold_finds_the_optimum_that_drift_hides_from_fedavg(tmp_path):
    drifting, _ = trained(tmp_path / "a", "eris", task(), rounds=150)
    corrected, _ = trained(tmp_path / "b", "scaffold", task(), rounds=150)
    assert drifting["final_loss"] > corrected["final_loss"]
    optimum = task().evaluate(task().optimum().astype(np.float32))["loss"]
    assert corrected["final_loss"] == pytest.approx(optimum, abs=1e-5)
    assert drifting["final_loss"] > optimum + 1e-3


@pytest.mark.parametrize(
    "changes",
    [["participation=0.5"], ["faults.link_failure=0.2"], ["faults.aggregator_dropout=0.3", "participation=0.7"]],
    ids=str,
)
def test_whoever_is_missing_the_optimum_is_the_same(changes, tmp_path):
    """c = Σ w_k c_k must hold on every coordinate through every loss, or the fixed point moves."""
    summary, _ = trained(tmp_path, "scaffold", task(), *changes, "server.min_contributors=1", rounds=600)
    optimum = task().evaluate(task().optimum().astype(np.float32))["loss"]
    assert summary["final_loss"] == pytest.approx(optimum, abs=1e-4)


@pytest.mark.parametrize("method", ["fedprox", "scaffold"])
def test_exact_for_any_number_of_aggregators(method, tmp_path):
    found = []
    for number, shards in enumerate([[1], [2], [K], [3, "shards.schedule=redraw"], [2, "shards.replicas=2"]]):
        changes = [f"aggregators={shards[0]}", *shards[1:]]
        summary, models = trained(tmp_path / str(number), method, task(), *changes, rounds=8)
        found.append((summary["model_digest"], models))
    assert len({digest for digest, _ in found}) == 1
    for _, models in found[1:]:
        for one, other in zip(found[0][1], models, strict=True):
            assert np.array_equal(one, other)


def test_a_held_member_stays_nearer(tmp_path):
    """μ = 0 is eris, bit for bit; the update of a quadratic member with μ is known in closed form."""
    eris, models = trained(tmp_path / "a", "eris", task(), rounds=3)
    zero, _ = trained(tmp_path / "b", "fedprox", task(), "options.fedprox.mu=0", rounds=3)
    assert zero["model_digest"] == eris["model_digest"]
    problem, mu = task(), 0.7
    _, held = trained(tmp_path / "c", "fedprox", problem, f"options.fedprox.mu={mu}", rounds=3)
    x = models[0].astype(np.float64)
    moved = np.zeros(N)
    shares = np.array([problem.samples(k) for k in range(K)], float)
    for share, h, centre in zip(shares / shares.sum(), problem.curvatures, problem.centres, strict=True):
        y = x.copy()
        for _ in range(STEPS):
            y -= LR * (h * (y - centre) + mu * (y - x))
        moved += share * (x - y)
    np.testing.assert_allclose(held[1], x - moved, atol=1e-5)
    assert np.abs(held[1] - x).sum() < np.abs(models[1] - x).sum()


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (["privacy.clip=1.0"], "privacy.clip"),
        (["privacy.clip=1.0", "privacy.noise_multiplier=1.0"], "privacy.clip"),
        (["privacy.epsilon=10"], "privacy.epsilon"),
        (["local.optimizer=adam"], "local.optimizer"),
        (["local.keep_state=true"], "local.keep_state"),
        (["local.send=gradient"], "local.send"),
        (["local.cohort=2"], "local.cohort"),
        (["server.optimizer=fednova"], "server.optimizer"),
        (["server.rule=median"], "server.rule"),
    ],
)
def test_scaffold_is_refused_where_it_was_not_derived(changes, key):
    with pytest.raises(ConfigError) as told:
        check_settings(settings(*changes, method="scaffold"))
    assert told.value.where["key"] == key


def test_dsc_is_no_part_of_scaffold(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no method 'scaffold\+dsc'.*did you mean scaffold"):
        check_settings(settings(method="scaffold+dsc"))


class Uncorrectable:
    """A task whose gradients nobody gets hold of."""

    def __init__(self):
        self._task = task()

    def __getattr__(self, name):
        if name == "corrected":
            raise AttributeError(name)
        return getattr(self._task, name)


@pytest.mark.parametrize("method", ["fedprox", "scaffold"])
def test_a_task_that_takes_no_corrections_is_told_so(method, tmp_path):
    with pytest.raises(ConfigError, match="Uncorrectable cannot be corrected") as told:
        trained(tmp_path, method, Uncorrectable())
    assert told.value.where["key"] == "local.correction"


def pull(strength: float):
    """Return a correction of one's own: towards zero."""

    def correct(gradient, weights, start, memory):
        del start, memory
        gradient += strength * weights

    return correct


def test_a_correction_of_ones_own_by_its_path(tmp_path):
    options = [f"local.correction={__name__}:pull", "local.correction_options={strength=5.0}"]
    plain, models = trained(tmp_path / "a", "eris", task(), rounds=2)
    pulled, other = trained(tmp_path / "b", "eris", task(), *options, rounds=2)
    assert np.abs(other[1]).sum() < np.abs(models[1]).sum()
    assert plain["bytes"] == pulled["bytes"]


def test_networks_are_corrected_too(tmp_path):
    """A linear network in torch: μ = 0 is eris, a large μ holds members; SCAFFOLD trains, exactly for any A."""

    def digest(number, method, *changes):
        small = ["model.name=logistic", "data.samples=20", "data.test_samples=50", "local.steps=3", "workers=1"]
        config = load_config(changes=[*small, f"method={method}", "members=4", "rounds=3", *changes])
        return run(config, tmp_path / str(number)).summaries[0]["model_digest"]

    eris = digest(0, "eris")
    assert digest(1, "fedprox", "options.fedprox.mu=0") == eris
    assert digest(2, "fedprox", "options.fedprox.mu=1") != eris
    one = digest(3, "scaffold", "aggregators=1")
    assert digest(4, "scaffold", "aggregators=4") == one != eris


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedprox", "scaffold"])
def test_real_processes_end_in_the_same_bits(method, tmp_path):
    common = [
        "data.name=synthetic-clouds",
        f"method={method}",
        "members=4",
        "rounds=4",
        "local.epochs=3",
        "local.batch=5",
    ]
    words = [word for change in common for word in ("--set", change)]
    for verb, folder in (("run", "simulated"), ("up", "processes")):
        command = [sys.executable, "-m", "eris", verb, *words, "--out", folder]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=250, capture_output=True)
    simulated = json.loads((tmp_path / "simulated" / "summary.json").read_text())["model_digest"]
    assert json.loads((tmp_path / "processes" / "outcome.json").read_text())["model_digest"] == simulated
