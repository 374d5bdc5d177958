"""`eris run` and `eris init` as a user meets them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import metadata

import pytest
import typer
from typer.testing import CliRunner

from eris.cli import app as whole_app
from eris.cli import init, run
from eris.config import Config, load_config
from eris.errors import CheckpointError, ConfigError, InputError, MissingExtra
from eris.federation import Federation

FAST = ["--set", "data.name=synthetic-clouds", "--set", "members=5", "--set", "rounds=3", "--set", "workers=1"]


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    for verb in (run, init):
        verb.register(app)

    def call(*arguments):
        return CliRunner().invoke(app, list(arguments), catch_exceptions=False)

    return call


def test_a_run_ends_with_a_table_and_a_report(invoke, tmp_path):
    done = invoke("run", *FAST, "--out", "first")
    assert done.exit_code == 0
    for word in ("FedAvg", "ERIS+DSC", "one saw", "20 MB/s", "report: first/report.html"):
        assert word in done.output
    assert (tmp_path / "first" / "report.html").exists()
    assert load_config(tmp_path / "first" / "config.toml").methods == ("fedavg", "eris", "eris+dsc", "eris+masked")


def test_what_a_run_writes(invoke, tmp_path):
    assert invoke("run", *FAST, "--set", "method=eris+dsc", "--out", "one", "--quiet").output == ""
    folder = tmp_path / "one"
    written = {path.name for path in folder.iterdir()}
    assert {"config.toml", "metrics.jsonl", "verdicts.jsonl", "summary.json", "exposure.json"} <= written
    assert {"model.safetensors", "checkpoint"} <= written
    summary = json.loads((folder / "summary.json").read_text())
    for key in (
        "method", "rounds", "finished", "seed", "final_accuracy", "best_accuracy", "best_round", "bytes", "exposure",
        "seconds", "peak_memory_bytes", "versions", "model_digest", "distribution_seconds", "notes",
    ):  # fmt: skip
        assert summary[key] is not None, key
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2]
    for line in lines:
        assert set(line["bytes_up"]) == set(line["bytes_down"]) == {"member", "aggregator"}
        assert {"plan", "train", "aggregate", "step"} <= set(line["seconds"])
        assert 0 <= line["accuracy"] <= 1
        assert line["largest_share"] <= summary["exposure"]["largest_share_per_round"]
    assert summary["final_accuracy"] == lines[-1]["accuracy"]


def test_the_model_file_has_the_digest(invoke, tmp_path):
    import hashlib

    import numpy as np
    from safetensors.numpy import load_file

    invoke("run", *FAST, "--set", "method=eris", "--out", "one", "--quiet")
    tensors = load_file(tmp_path / "one" / "model.safetensors")
    vector = np.concatenate([tensors[name].reshape(-1) for name in ("weight", "bias")]).astype("<f4")
    summary = json.loads((tmp_path / "one" / "summary.json").read_text())
    assert hashlib.sha256(vector.tobytes()).hexdigest() == summary["model_digest"]


def test_the_written_configuration_runs_again_to_the_same_bits(invoke, tmp_path):
    first = json.loads(invoke("run", *FAST, "--set", "method=eris+dsc", "--out", "a", "--json").output)
    again = json.loads(invoke("run", "a/config.toml", "--out", "b", "--json").output)
    assert first["summaries"][0]["model_digest"] == again["summaries"][0]["model_digest"]
    assert again["path"] == "b"


def test_flags_override_the_file(invoke, tmp_path):
    (tmp_path / "my.toml").write_text('method = "eris"\nrounds = 2\nseed = 5\n')
    shown = invoke("run", "my.toml", "--set", "rounds=9", "--show-config").output
    (tmp_path / "shown.toml").write_text(shown)
    config = load_config(tmp_path / "shown.toml")
    assert (config.method, config.rounds, config.seed) == ("eris", 9, 5)
    assert not (tmp_path / "runs").exists()


def test_a_run_has_a_place_of_its_own(invoke, tmp_path):
    invoke("run", *FAST, "--set", "method=eris", "--quiet")
    assert [path.name.split("-", 2)[2] for path in (tmp_path / "runs").iterdir()] == ["eris"]


def test_runs_of_one_second_have_places_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "20260102-030405")
    federation = Federation(data="synthetic-clouds", members=3, rounds=1, workers=1)
    paths = [federation.run(report=False).path for _ in range(3)]
    assert [path.name for path in paths] == [f"20260102-030405-eris{end}" for end in ("", "-2", "-3")]


def test_a_folder_with_a_run_is_not_written_over(invoke):
    invoke("run", *FAST, "--out", "a", "--quiet")
    with pytest.raises(ConfigError, match="already"):
        invoke("run", *FAST, "--out", "a", "--quiet")


def test_replay_finds_the_configuration_beside_the_verdicts(invoke):
    faulty = [*FAST, "--set", "method=eris+dsc", "--set", "faults.link_failure=0.4", "--json"]
    first = json.loads(invoke("run", *faulty, "--out", "a").output)
    again = json.loads(invoke("run", "--replay", "a/verdicts.jsonl", "--json", "--out", "b").output)
    assert first["summaries"][0]["model_digest"] == again["summaries"][0]["model_digest"]


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        (['method=["eris", "nonsense"]'], "method", "no method 'nonsense'"),
        (['method=["eris", "fedavg", "eris"]'], "method", "'eris' is named twice"),
        (['method=["eris", "shatter"]', "faults.link_failure=0.1"], "faults", "their own models"),
        (['method=["eris", "fedavg-dpsgd"]'], "privacy.unit", "no gradients of single samples"),
        (["members=2"], "server.min_contributors", "2 of 2 members"),
        (["server.schedule=cosine"], "server.schedule", "needs the option 'rounds'"),
        (["data.name=mnist-sampel"], "data.name", "did you mean mnist-sample"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_trained_or_written(invoke, tmp_path, changes, key, says):
    asked = [*FAST, *(part for change in changes for part in ("--set", change))]
    for arguments in (["--out", "a"], ["--show-config"]):
        with pytest.raises(ConfigError, match=says) as refused:
            invoke("run", *asked, *arguments)
        assert refused.value.where["key"] == key
    assert not (tmp_path / "a").exists()


def test_what_only_the_model_shows_leaves_no_folder_either(invoke, tmp_path):
    """A graph that four members cannot have is seen when the last method is composed, before the first is trained."""
    asked = [*FAST, "--set", 'method=["eris", "shatter"]', "--set", "baselines.virtual_degree=99", "--out", "a"]
    with pytest.raises(ConfigError) as refused:
        invoke("run", *asked)
    assert refused.value.where["key"] == "options.shatter"
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("how", ["--json", "--quiet"])
def test_the_report_is_written_however_little_is_shown(invoke, tmp_path, how):
    invoke("run", *FAST, "--set", "method=eris", "--out", "a", how)
    assert "<h1>" in (tmp_path / "a" / "report.html").read_text()


def test_without_the_extra_one_line_says_so(invoke, tmp_path, monkeypatch):
    def missing(directory):
        raise MissingExtra("matplotlib", "report", "a plot")

    monkeypatch.setattr("eris.report.write_report", missing)
    done = invoke("run", *FAST, "--set", "method=eris", "--out", "a", "--json")
    assert json.loads(done.stdout)["summaries"][0]["finished"]
    assert done.stderr.splitlines() == [
        "report: not written (a plot needs the package matplotlib: pip install 'eris-fl[report]')"
    ]


def test_a_replay_of_nothing_says_so(invoke):
    with pytest.raises(InputError, match=r"no verdicts here .*nothing\.jsonl"):
        invoke("run", "--replay", "nothing.jsonl")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (["network.compute=2", "network.deadline=1"], "raise it, or lower network.compute"),
        (["faults.link_failure=1.0"], "the simulated faults"),
        (["local.lr=1e38"], "updates were not finite; lower local.lr"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_a_run_in_which_nothing_moved_is_not_told_as_a_success(invoke, tmp_path, changes, why):
    asked = [*FAST, "--set", "method=eris", *(part for change in changes for part in ("--set", change))]
    assert why in invoke("run", *asked, "--out", "a").output
    notes = json.loads((tmp_path / "a" / "summary.json").read_text())["notes"]
    assert len(notes) == 1
    assert "all 5 shards were lost in" in notes[0]
    assert "did not change in them" in (tmp_path / "a" / "report.html").read_text()


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_a_run_that_noise_broke_is_told_of_the_noise(invoke):
    noise = [*FAST, "--set", "method=eris", "--set", "privacy.clip=1.0", "--set", "privacy.noise_multiplier=1e38"]
    with pytest.raises(InputError, match="the noise"):
        invoke("run", *noise, "--out", "a")


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_a_run_that_diverges_under_noise_is_not_told_of_its_learning_rate_alone(invoke):
    noise = ["privacy.clip=1.0", "privacy.noise_multiplier=1e36", "server.max_step=off", "method=eris"]
    asked = [*FAST, "--json", *(part for change in noise for part in ("--set", change))]
    notes = json.loads(invoke("run", *asked, "--out", "a").output)["summaries"][0]["notes"]
    [why] = [note for note in notes if "not a finite number" in note]
    assert why.endswith("lower privacy.noise_multiplier or raise privacy.epsilon, or lower local.lr")


def test_a_run_that_lost_a_shard_on_purpose_says_nothing_of_the_kind(invoke):
    some = [*FAST, "--set", "method=eris", "--set", "faults.aggregator_dropout=0.2", "--json"]
    summary = json.loads(invoke("run", *some, "--out", "a").output)["summaries"][0]
    assert summary["lost_shards"] > 0
    assert summary["notes"] == []


def test_resume_of_no_run_says_so(invoke, tmp_path):
    with pytest.raises(CheckpointError, match="no run in this folder"):
        invoke("run", "--resume", str(tmp_path / "none"))


def test_resume_stands_alone(invoke):
    with pytest.raises(ConfigError, match="folder's own settings"):
        invoke("run", "--resume", "a", "--set", "rounds=3")


def test_noise_is_named_for_what_it_is(invoke, tmp_path):
    noisy = [*FAST, "--set", "method=eris", "--set", "privacy.clip=1.0", "--set", "privacy.noise_multiplier=2.0"]
    done = invoke("run", *noisy, "--out", "a")
    assert "noise reproducible: no privacy claim" in done.output
    assert re.search(r"eris: ε = .* at δ = 1e-05 for one member \(replacement\), 3 rounds", done.output)
    assert "If its noise were secret: ε = " in (tmp_path / "a" / "report.html").read_text()
    summary = json.loads(invoke("run", *noisy, "--out", "b", "--json").output)["summaries"][0]
    assert summary["notes"][0] == "noise reproducible: no privacy claim"
    assert "for one member (replacement), 3 rounds" in summary["privacy"]["text"]


def test_init_writes_what_run_reads(invoke, tmp_path):
    assert invoke("init").exit_code == 0
    assert load_config(tmp_path / "eris.toml") == Config()
    with pytest.raises(ConfigError, match="already"):
        invoke("init")
    assert invoke("init", "--force").exit_code == 0


def test_ctrl_c_ends_cleanly_and_can_be_gone_on_with(tmp_path):
    program = [sys.executable, "-c", "from eris.cli import main; main()", "run"]
    settings = [*FAST, "--set", "rounds=100000", "--set", "method=eris", "--out", str(tmp_path / "a")]
    process = subprocess.Popen(
        [*program, *settings], stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"}
    )
    metrics = tmp_path / "a" / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text().count("\n") > 3):
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; continue with: eris run --resume" in output
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["finished"] is False
    assert summary["rounds"] == metrics.read_text().count("\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "--set", "rouns=3"], "did you mean rounds?"),
        (["init", "nowhere/x.toml"], "nowhere/x.toml: No such file or directory"),
        (["run", *FAST, "--out", "file"], "this is a file"),
        (["run", *FAST[2:], "--set", "model.options.classes=5"], "set model.options.classes = 10 (it is 5)"),
        (["run", *FAST, "--out", "file/below"], "file/below: Not a directory"),
    ],
)
def test_an_error_is_one_sentence_and_exit_code_2(words, says, tmp_path):
    (tmp_path / "file").touch()
    program = [sys.executable, "-c", "from eris.cli import main; main()", *words]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout  # no progress of what was refused


def test_the_version_as_people_ask_for_it():
    done = CliRunner().invoke(whole_app, ["--version"])
    assert done.output == f"eris {metadata.version('eris-fl')}\n"
