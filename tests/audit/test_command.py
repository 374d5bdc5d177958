"""`eris audit` as a user meets it, on made-up data that trains in no time."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eris.audit.canaries import plant_in
from eris.audit.membership_sweep import SIZES, SWEEPS, configurations
from eris.config import load_config
from eris.errors import ConfigError, InputError
from eris.methods import with_defaults
from eris.peer.federation_file import FederationFile
from eris.seeds import public_root
from eris.tasks import build_task

FEW = ["data.name=synthetic-clouds", "data.samples=16", "members=5", "rounds=2", "workers=1"]
FAST = [part for change in FEW for part in ("--set", change)]
ONE = [*FAST, "--seeds", "1", "--processes", "1"]


def test_an_audit_ends_with_a_table_a_file_and_a_picture(invoke, tmp_path):
    done = invoke("audit", "membership", *ONE, "--out", "first", "--views", "2")
    assert done.exit_code == 0
    for word in ("first/membership.json", "first/membership.png", "no guarantee"):
        assert word in done.output
    written = json.loads((tmp_path / "first" / "membership.json").read_text())
    assert [trial["method"] for trial in written["trials"]] == ["fedavg", "eris", "eris+dsc", "eris+masked"]
    for trial in written["trials"]:
        assert [result["attack"] for result in trial["results"]] == ["whitened", "paper"]
        for result in trial["results"]:
            assert result["figures"]["auc"]["chance"] == pytest.approx(0.5, abs=0.03)
    assert (tmp_path / "first" / "membership.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "first" / "runs" / "eris" / "summary.json").exists()
    with pytest.raises(ConfigError, match="other settings"):
        invoke("audit", "membership", *ONE, "--out", "first", "--views", "3")


def test_several_observers_and_one_attack_as_json(invoke):
    chosen = ["--set", "method=eris", "--observer", "coalition:2", "--observer", "broadcast", "--attack", "paper"]
    done = invoke("audit", "membership", *ONE, *chosen, "--out", "second", "--json")
    (trial,) = json.loads(done.stdout)["trials"]
    assert [(r["observer"], r["attack"]) for r in trial["results"]] == [
        ("coalition:2", "paper"),
        ("broadcast", "paper"),
    ]
    assert trial["results"][0]["visible_share"] == pytest.approx(0.4, abs=0.02)
    assert trial["results"][1]["visible_share"] == 0.0


def test_several_seeds_end_with_means_and_intervals_over_them(invoke, tmp_path):
    options = [*FAST, "--set", "method=eris", "--views", "1", "--seeds", "3", "--processes", "1", "--out", "many"]
    done = invoke("audit", "membership", *options)
    assert done.exit_code == 0
    for phrase in (
        "Mean over 3 seeds (a claim needs 10), 9 to 11",
        "Attack: whitened, the best of",
        "not measurable",
    ):
        assert phrase in done.output
    written = json.loads((tmp_path / "many" / "membership.json").read_text())
    assert [trial["seed"] for trial in written["trials"]] == [9, 10, 11]
    (together,) = written["over_seeds"]
    auc = together["results"][0]["figures"]["auc"]
    values = [trial["results"][0]["figures"]["auc"]["value"] for trial in written["trials"]]
    assert auc["values"] == values
    assert len(set(values)) > 1
    assert auc["value"] == pytest.approx(np.mean(values))
    reach = 4.30265 * np.std(values, ddof=1) / np.sqrt(3)
    assert (auc["low"], auc["high"]) == pytest.approx((max(0, auc["value"] - reach), min(1, auc["value"] + reach)))
    pooled = together["results"][0]["pooled_auc"]
    assert pooled["low"] < pooled["value"] < pooled["high"]
    assert pooled["value"] == pytest.approx(auc["value"], abs=0.05)
    widths = [
        figure["high"] - figure["low"] for figure in (t["results"][0]["figures"]["auc"] for t in written["trials"])
    ]
    assert pooled["high"] - pooled["low"] < min(widths)  # three times as many members
    bounds = [trial["results"][0]["epsilon"]["lower_bound"] for trial in written["trials"]]
    assert together["results"][0]["epsilon"]["values"] == bounds
    again = json.loads(invoke("audit", "membership", *options, "--json").stdout)  # from what lies there
    assert again["over_seeds"] == written["over_seeds"]
    assert (tmp_path / "many" / "runs" / "seed-9" / "eris" / "scores.npz").exists()


def test_one_run_is_called_one_run(invoke):
    done = invoke("audit", "membership", *ONE, "--set", "method=eris", "--views", "1", "--out", "one")
    assert "One run (seed 1)" in done.output
    assert "Mean over" not in done.output


def test_a_finished_run_gives_its_settings(invoke, tmp_path):
    from eris.simulate.run import run

    run(load_config(changes=[*FEW, "method=eris", "aggregators=3"]), tmp_path / "finished")
    done = invoke("audit", "membership", "finished", "--seeds", "1", "--out", "third", "--json", "--views", "1")
    written = json.loads((tmp_path / "third" / "membership.json").read_text())
    assert done.exit_code == 0
    assert written["settings"]["aggregators"] == 3
    assert [trial["method"] for trial in written["trials"]] == ["eris"]


def test_a_run_of_real_processes_gives_its_settings_too(invoke, tmp_path):
    """What eris up trains, eris run trains to the same bits."""
    config = with_defaults(load_config(changes=[*FEW, "method=eris"]), "eris")
    peers = [f"peer-{number}" for number in range(5)]
    federation = FederationFile({"name": "local", "coordinator": "127.0.0.1:1", "peers": peers}, config)
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "FEDERATION.toml").write_text(federation.dump())
    options = ["--views", "1", "--seeds", "1", "--json", "--out"]
    found = json.loads(invoke("audit", "membership", "real", "--set", "rounds=1", *options, "a").stdout)
    assert found["trials"][0]["results"][0]["rounds"] == 1
    named = json.loads(invoke("audit", "membership", "real/FEDERATION.toml", "--set", "rounds=1", *options, "b").stdout)
    assert named["trials"] == found["trials"]
    with pytest.raises(ConfigError, match="no run in this folder"):
        invoke("audit", "membership", ".", *options, "c")


def test_a_run_with_canaries_is_attacked_again_without_training(invoke, tmp_path):
    one = [*ONE, "--set", "method=eris", "--json", "--views", "2"]
    first = invoke("audit", "membership", *one, "--all-attacks", "--out", "first")
    trained = tmp_path / "first" / "runs" / "eris" / "metrics.jsonl"
    before = trained.stat().st_mtime_ns
    again = invoke("audit", "membership", "first/runs/eris", "--out", "second", "--json")
    assert json.loads(again.stdout)["trials"] == json.loads(first.stdout)["trials"]
    other = invoke("audit", "membership", "first/runs/eris", "--out", "third", "--json", "--attack", "dot")
    assert [r["attack"] for r in json.loads(other.stdout)["trials"][0]["results"]] == ["dot", "paper"]
    assert trained.stat().st_mtime_ns == before
    assert not (tmp_path / "second" / "runs").exists()
    invoke("audit", "membership", *one, "--out", "few")
    with pytest.raises(ConfigError, match="dot did not observe this training, only paper, whitened did"):
        invoke("audit", "membership", "few/runs/eris", "--out", "fourth", "--attack", "dot")


def test_five_seeds_are_the_default_and_side_by_side_they_come_to_the_same(invoke, tmp_path):
    options = ["audit", "membership", *FAST, "--set", "method=eris", "--views", "1", "--json", "--out"]
    found = json.loads(invoke(*options, "both", "--processes", "2").stdout)
    assert [trial["seed"] for trial in found["trials"]] == [9, 10, 11, 12, 13]
    assert json.loads(invoke(*options, "one", "--processes", "1").stdout)["trials"] == found["trials"]


def test_the_same_audit_twice_is_the_same(invoke):
    options = ["audit", "membership", *ONE, "--set", "method=eris", "--json", "--views", "1", "--out"]
    assert json.loads(invoke(*options, "a").stdout)["trials"] == json.loads(invoke(*options, "b").stdout)["trials"]


def test_observers_that_a_later_method_does_not_have_are_refused_before_anything_is_trained(invoke, tmp_path):
    for methods, observer in (
        ('["fedavg", "eris"]', "server"),
        ('["eris", "gossip"]', "broadcast"),
        ('["gossip", "eris"]', "neighbour"),
    ):
        with pytest.raises(ConfigError):
            invoke("audit", "membership", *ONE, "--set", f"method={methods}", "--observer", observer, "--out", "none")
        assert not (tmp_path / "none").exists()


def test_data_without_samples_is_refused(invoke):
    changes = ["data.name=synthetic-quadratic", "data.samples=0", "data.test_samples=0", "local.epochs=1"]
    quadratic = [part for change in changes for part in ("--set", change)]
    with pytest.raises(InputError, match="no samples"):
        invoke("audit", "membership", *ONE, *quadratic, "--out", "none")


@pytest.mark.parametrize("what", [("membership",), ("sweep", "rotation"), ("sweep", "gaussianity")])
def test_whoever_interrupts_is_told_how_to_go_on(invoke, monkeypatch, what):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    for place in ("eris.audit.membership_run.run", "eris.audit.gaussianity.run"):
        monkeypatch.setattr(place, interrupted)
    done = invoke("audit", *what, *(ONE if what == ("membership",) else FAST), "--out", "here")
    assert done.exit_code == 130
    assert "the same command with --out here continues" in done.output


def test_a_sweep_draws_its_axis(invoke, tmp_path):
    done = invoke("audit", "sweep", "collusion", *FAST, "--out", "swept", "--views", "1")
    assert done.exit_code == 0
    written = json.loads((tmp_path / "swept" / "sweep-collusion.json").read_text())
    assert [point["label"] for point in written["points"]] == ["1", "2", "3", "5"]  # fewer and fewer
    seen = [point["results"][0]["visible_share"] for point in written["points"]]
    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(0.2, abs=0.02)
    assert (tmp_path / "swept" / "sweep-collusion.png").exists()


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("size", SIZES)
def test_every_sweep_has_settings_that_can_be(name, size):
    points = configurations(SWEEPS[name], SIZES[size])
    assert points
    assert all(len(config.methods) == 1 for _, config in points)


def test_unknown_names_are_refused(invoke):
    for arguments in (("nothing",), ("blocks", "--size", "huge"), ("blocks", "--attack", "none")):
        with pytest.raises(ConfigError):
            invoke("audit", "sweep", *arguments)
    with pytest.raises(ConfigError, match="no observer"):
        invoke("audit", "membership", "--observer", "somebody")


def test_torch_tasks_can_be_asked_about_single_samples():
    changes = ["members=2", "data.samples=12", "data.test_samples=10", "data.validation=0.0"]
    task = build_task(load_config(changes=changes).model_dump(mode="json", exclude_none=True))
    problem = plant_in(task, seed=1)
    model = task.initial(public_root(1))
    losses, gradients = problem.probe.sample_losses(0, model), problem.probe.sample_gradients(0, model)
    assert losses.shape == (6,)
    assert gradients.shape == (6, task.spec.n_trainable)
    assert problem.task.samples(0) == 6 + problem.canaries.coins[0].sum()
    # The mean of the single gradients is the gradient of the mean, which one full-batch step takes.
    step = np.float32(1e-2)
    direction = gradients.mean(axis=0)
    ahead = model.copy()
    ahead[: direction.size] -= step * direction
    after = problem.probe.sample_losses(0, ahead).mean()
    assert after - losses.mean() == pytest.approx(-step * float(direction @ direction), rel=0.1)
