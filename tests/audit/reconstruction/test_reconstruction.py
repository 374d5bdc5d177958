"""The whole audit, as a user meets it: files, a sheet of pictures, going on after an interruption, a finished run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eris.audit.reconstruction import Recovered
from eris.audit.reconstruction.defence import methods_of, small_preset
from eris.audit.reconstruction.run import RANDOM, ReconstructionPlan, audit_reconstruction
from eris.audit.reconstruction.scores import scored
from eris.audit.side_by_side import in_processes
from eris.config import load_config
from eris.errors import ConfigError, InputError
from eris.simulate.run import run

SMALL = (
    "members=4", "rounds=1", "workers=1", "data.samples=1", "data.validation=0.0", "data.test_samples=10",
    "model.name=eris.audit.reconstruction.small_networks:SigmoidPerceptron", "model.options={hidden=24}",
    "local.batch=full", "local.lr=0.1", "local.momentum=0.0",
)  # fmt: skip
CHANGES = [part for change in SMALL[1:] for part in ("--set", change)]


def plan(*changes, **facts):
    defences = methods_of(load_config(changes=[*SMALL, "method=['fedavg', 'eris']", "aggregators=2", *changes]))
    return ReconstructionPlan(defences, attacks=("rank-one",), pictures=2, candidates=20, **facts)


def test_every_defence_is_attacked_in_both_modes_and_against_chance(tmp_path):
    report = audit_reconstruction(plan(), tmp_path)
    rows = {(result["defence"], result["mode"]): result for result in report.results}
    assert list(rows) == [
        ("fedavg", "mask-aware"),
        ("eris A=2", "mask-aware"),
        ("eris A=2", "zero-filled"),
        (RANDOM, "mask-aware"),
    ]
    assert rows["fedavg", "mask-aware"]["recovered"]["rate"] == 1
    assert rows["eris A=2", "mask-aware"]["recovered"]["rate"] == 1
    assert rows["eris A=2", "mask-aware"]["share"] == pytest.approx(0.5, abs=0.01)
    assert rows["eris A=2", "zero-filled"]["recovered"]["rate"] == 0
    assert rows[RANDOM, "mask-aware"]["identified"]["rate"] == 0
    assert rows["fedavg", "mask-aware"]["identified"] == {
        "rate": 1.0,
        "low": pytest.approx(0.158, abs=0.001),
        "high": 1.0,
        "chance": 0.05,
        "candidates": 20,
    }
    assert rows["fedavg", "mask-aware"]["labels"]["rate"] == 1
    written = json.loads((tmp_path / "reconstruction.json").read_text())
    assert [row["mse"] for row in written["results"]] == [row["mse"] for row in report.results]
    assert len(written["found"]) == 8


def test_an_interrupted_audit_goes_on_where_it_was(tmp_path):
    def interrupted(done, total, what):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit_reconstruction(plan(), tmp_path, notice=interrupted)
    files = sorted((tmp_path / "pictures").iterdir())
    assert len(files) == 3
    times = [file.stat().st_mtime_ns for file in files]
    report = audit_reconstruction(plan(), tmp_path)
    assert [file.stat().st_mtime_ns for file in files] == times
    again = audit_reconstruction(plan(), tmp_path / "afresh")
    for one, other in zip(report.entries, again.entries, strict=True):
        assert np.array_equal(one.scores.images, other.scores.images)
        assert one.scores.scores == other.scores.scores


def test_two_processes_come_to_the_same(tmp_path):
    alone = audit_reconstruction(plan(), tmp_path / "alone")
    with in_processes(2) as each:
        together = audit_reconstruction(plan(), tmp_path / "together", each=each)
    assert len(list((tmp_path / "together/pictures").iterdir())) == len(alone.entries)
    for one, other in zip(alone.entries, together.entries, strict=True):
        assert one.job == other.job
        assert np.array_equal(one.scores.images, other.scores.images)
        assert one.scores.scores == other.scores.scores


def test_results_of_other_settings_are_not_mixed(tmp_path):
    audit_reconstruction(plan(), tmp_path)
    with pytest.raises(ConfigError, match="other settings"):
        audit_reconstruction(plan("seed=2"), tmp_path)
    with pytest.raises(ConfigError, match="other settings"):
        audit_reconstruction(plan(told=True), tmp_path)


def test_the_command_ends_with_a_table_a_file_and_a_sheet_of_pictures(invoke, tmp_path):
    done = invoke("audit", "reconstruction", *CHANGES, "--attack", "rank-one", "--images", "2", "--out", "found",
                  "--batch", "1")  # fmt: skip
    assert done.exit_code == 0
    for word in ("ERIS A=8", "found/reconstruction.json", "found/reconstruction.png"):
        assert word in done.output
    assert (tmp_path / "found" / "reconstruction.png").read_bytes().startswith(b"\x89PNG")


def test_a_finished_run_is_gone_on_from(invoke, tmp_path):
    config = load_config(changes=[*SMALL, "method=eris", "aggregators=2", "rounds=2", "local.lr=1.0"])
    run(config, tmp_path / "run")
    done = invoke("audit", "reconstruction", "run", "--attack", "rank-one", "--json", "--out", "found",
                  "--mode", "mask-aware", "--observer", "coalition:2", "--images", "3")  # fmt: skip
    results = json.loads(done.stdout)["results"]
    assert [(result["defence"], result["pictures"]) for result in results] == [("eris A=2", 3), (RANDOM, 3)]
    assert results[0]["recovered"]["rate"] == 1
    started = json.loads(invoke("audit", "reconstruction", "run/config.toml", "--attack", "rank-one", "--json",
                                "--out", "first", "--mode", "mask-aware", "--images", "3").stdout)  # fmt: skip
    assert started["results"][0]["mse"] != results[0]["mse"]


def test_ctrl_c_says_how_to_go_on(invoke, monkeypatch):
    def interrupted(*arguments, **facts):
        raise KeyboardInterrupt

    monkeypatch.setattr("eris.audit.reconstruction.run.audit_reconstruction", interrupted)
    done = invoke("audit", "reconstruction", *CHANGES, "--out", "found")
    assert done.exit_code == 130
    assert "--out found continues" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mode", "sideways"), "mask-aware, zero-filled or both"),
        (("--option", "steps"), "--option steps=2000"),
        (("--attack", "psychic"), "no attack"),
        (("--option", "stepss=3"), "the attack boxed has no option 'stepss': use one of steps, restarts"),
        (("--option", "steps=many"), "option steps is 'many'"),
        (("nowhere.toml",), "no such configuration"),
    ],
)
def test_what_is_wrong_is_said(invoke, arguments, words):
    with pytest.raises(ConfigError, match=words):
        invoke("audit", "reconstruction", *arguments, "--out", "found")


def test_a_folder_without_a_model_is_no_finished_run(invoke, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text('method = "eris"\n')
    with pytest.raises(ConfigError, match="finished model"):
        invoke("audit", "reconstruction", "run", "--out", "found")


def test_recovered_pictures_are_put_beside_the_originals_they_are_most_like():
    pictures = np.random.default_rng(1).random((4, 1, 12, 12)).astype(np.float32)
    order = [2, 0, 3, 1]
    finding = scored(pictures, np.arange(4), Recovered(pictures[order], np.arange(4)[order]), 0.0)
    assert finding.scores["mse"] == [0.0] * 4
    assert finding.labels["recovered"] == [0, 1, 2, 3]
    more = scored(pictures[:2], np.arange(2), Recovered(pictures, np.arange(4)), 0.0)
    assert more.images.shape == pictures[:2].shape


def test_the_preset_is_about_pictures_of_one_member_each():
    labels = [defence.label for defence in small_preset()]
    assert len(set(labels)) == len(labels)
    with pytest.raises(InputError, match="no pictures"):
        audit_reconstruction(
            ReconstructionPlan(methods_of(load_config(changes=["data.name=synthetic-clouds", "method=eris"]))), None
        )


def test_the_presets_rows_keep_what_their_labels_say():
    (asked,) = small_preset(["method=eris+dsc", "aggregators=3"])
    assert (asked.label, asked.config.methods, asked.config.aggregators) == ("eris+dsc A=3", ("eris+dsc",), 3)
    every = {defence.label: defence.config for defence in small_preset(["data.samples=2", "local.lr=0.2"])}
    assert "ERIS A=8, batch 4" not in every
    assert {config.data.samples for config in every.values()} == {2}
    for label, config in every.items():
        assert label.startswith("FedAvg") == (config.methods == ("fedavg",))
    for change in ("aggregators=3", "privacy.epsilon=1", "privacy={epsilon=1.0}"):
        with pytest.raises(ConfigError, match="differ in"):
            small_preset([change])


@pytest.mark.parametrize(
    ("changes", "observer"),
    [(['method=["eris", "gossip"]'], "aggregator"), (['method=["fedavg", "eris"]'], "server")],
    ids=["method", "observer"],
)
def test_what_cannot_be_attacked_is_refused_before_anything_is_trained(invoke, monkeypatch, changes, observer):
    def trained(*arguments, **facts):
        raise AssertionError("something was trained")

    monkeypatch.setattr("eris.audit.reconstruction.run.attack_setup", trained)
    options = [part for change in changes for part in ("--set", change)]
    with pytest.raises(ConfigError):
        invoke("audit", "reconstruction", *options, "--observer", observer, "--out", "found")


def test_progress_is_seen_where_output_is_piped(invoke):
    chosen = ["--set", "method=eris", "--attack", "rank-one", "--images", "1"]
    done = invoke("audit", "reconstruction", *CHANGES, *chosen, "--out", "found")
    assert done.exit_code == 0
    assert "0/1 training eris A=" in done.stderr  # the first at once, then one every ten seconds
    assert "training" not in done.stdout


@pytest.mark.slow
def test_idlg_recovers_most_of_fifty_pictures_from_the_full_view(tmp_path):
    changes = ("members=50", "data.samples=1", "method=fedavg", "workers=1", "rounds=1", "data.validation=0.0",
               "model.name=eris.audit.reconstruction.small_networks:SigmoidLeNet", "local.batch=full",
               "local.lr=0.1", "local.momentum=0.0", "data.test_samples=10")  # fmt: skip
    chosen = ReconstructionPlan(
        methods_of(load_config(changes=changes)), attacks=("idlg",), modes=("mask-aware",), pictures=50
    )
    (full, random) = audit_reconstruction(chosen, tmp_path).results
    assert full["recovered"]["rate"] >= 0.8
    assert random["recovered"]["rate"] == 0
