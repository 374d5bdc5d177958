"""`eris compare` as a user meets it."""

from __future__ import annotations

import json
import re
import statistics

import pytest
import typer
from typer.testing import CliRunner

from eris.cli import compare, run
from eris.errors import CheckpointError, ConfigError
from eris.methods import METHODS
from eris.simulate.comparison import arm

FAST = ["--set", "data.name=synthetic-clouds", "--set", "members=6", "--set", "workers=1", "--set", "local.lr=0.02"]


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    for verb in (compare, run):
        verb.register(app)

    def call(*arguments):
        return CliRunner(env={"COLUMNS": "120"}).invoke(app, list(arguments), catch_exceptions=False)

    return call


def compared(invoke, *arguments):
    return json.loads(invoke("compare", *arguments, *FAST, "--json").output)


def test_a_table_a_picture_and_numbers(invoke, tmp_path):
    done = invoke("compare", "fedavg", "eris", "shatter", *FAST, "--rounds", "3", "--folds", "2", "--out", "a")
    assert done.exit_code == 0
    for word in ("FedAvg", "Shatter", "accuracy", "±", "compare.json", "compare.png"):
        assert word in done.output
    for name in ("compare.json", "compare.svg", "compare.png"):
        assert (tmp_path / "a" / name).stat().st_size > 1000


def test_methods_share_data_seeds_and_rounds(invoke):
    result = compared(invoke, "fedavg", "eris", "eris:aggregators=2", "--folds", "2", "--rounds", "3", "--out", "a")
    digests = [[fold["digest"] for fold in line["folds"]] for line in result["methods"]]
    assert digests[0] == digests[1] == digests[2]
    assert digests[0][0] != digests[0][1]  # another fold is another partition
    assert [line["label"] for line in result["methods"]] == ["fedavg", "eris", "eris:aggregators=2"]
    assert result["config"]["method"] == ["fedavg", "eris"]
    shares = [line["table"]["exposure"]["mean"] for line in result["methods"]]
    assert shares[0] == 1.0 > shares[2] > shares[1]


def test_short_names_axes_seeds_and_a_front(invoke, tmp_path):
    arms = ["--arm", "ERIS, 2 aggregators: eris, aggregators=2", "--arm", "FedAvg: fedavg"]
    over = ["--over", "data.samples=8,16", "--over", "local.lr=0.02,0.2", "--front", "accuracy,upload"]
    result = compared(invoke, *arms, *over, "--folds", "2", "--seeds", "2", "--rounds", "2", "--out", "a")
    assert [point["at"] for point in result["points"]] == [
        {"data.samples": samples, "local.lr": lr} for samples in ("8", "16") for lr in ("0.02", "0.2")
    ]
    for point in result["points"]:
        assert [line["label"] for line in point["methods"]] == ["ERIS, 2 aggregators", "FedAvg"]
        assert all(len(line["table"]["accuracy"]["values"]) == 4 for line in point["methods"])
        assert point["front"]["front_axes"] == ["accuracy", "upload"]
        assert point["front"]["front"]
        digests = [[fold["digest"] for fold in line["folds"]] for line in point["methods"]]
        assert digests[0] == digests[1]
        assert len(set(digests[0])) == 4
    lines = (tmp_path / "a" / "compare.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + 4 * 2
    assert (tmp_path / "a" / "data.samples=8-local.lr=0.02" / "fold-1-seed-1" / "FedAvg" / "summary.json").exists()


def test_folds_vary_the_initial_model_unless_read_as_the_paper_does(invoke, tmp_path):
    compared(invoke, "fedavg", "--folds", "2", "--rounds", "2", "--out", "a")
    compared(invoke, "fedavg", "--folds", "2", "--rounds", "2", "--out", "b", "--reading", "paper")
    config = {
        (out, fold): (tmp_path / out / f"fold-{fold}" / "fedavg" / "config.toml").read_text(encoding="utf-8")
        for out in "ab"
        for fold in (0, 1)
    }
    seeds = {place: int(re.search(r"^seed = (\d+)", text, re.M).group(1)) for place, text in config.items()}
    assert seeds == {("a", 0): 1, ("a", 1): 2, ("b", 0): 1, ("b", 1): 1}
    assert 'accounting = "per-round"' in config["b", 0]


def test_the_table_does_not_wrap(invoke):
    long = "eris:server.optimizer=fedadam,server.optimizer_options={lr=0.05}"
    done = invoke("compare", "fedavg", long, *FAST, "--rounds", "2", "--out", "a")
    rows = [line.strip() for line in done.output.splitlines() if " B " in line]
    assert [row.split()[0] for row in rows] == ["FedAvg", "eris:server.optimizer=fed…"]
    assert all("%" in row for row in rows)


def test_ctrl_c_says_how_to_go_on(invoke, monkeypatch):
    def interrupted(*arguments, **facts):
        raise KeyboardInterrupt

    monkeypatch.setattr("eris.simulate.comparison.Comparison.run", interrupted)
    done = invoke("compare", "fedavg", *FAST)
    assert done.exit_code == 130
    assert re.search(r"the same command with --out runs/\S+-compare continues", done.output)


def test_the_list_for_programs(invoke):
    found = json.loads(invoke("compare", "--list", "--json").output)
    assert {each["name"]: each["summary"] for each in found} == {name: m.summary for name, m in METHODS.items()}


def test_the_numbers_are_those_of_the_runs(invoke, tmp_path):
    result = compared(invoke, "eris+dsc", "--folds", "3", "--rounds", "4", "--out", "a")
    line = result["methods"][0]
    summaries = [
        json.loads((tmp_path / "a" / fold["path"] / "summary.json").read_text(encoding="utf-8"))
        for fold in line["folds"]
    ]
    accuracies = [summary["best_accuracy"] for summary in summaries]
    assert line["table"]["accuracy"] == {
        "mean": statistics.fmean(accuracies), "std": statistics.stdev(accuracies), "values": accuracies,
        "reach": pytest.approx(4.302653 * statistics.stdev(accuracies) / 3**0.5),  # Student's t
    }  # fmt: skip
    uploads = [summary["bytes"]["up_per_member_round"] for summary in summaries]
    assert line["table"]["upload"]["mean"] == statistics.fmean(uploads)
    assert line["curve"]["uploaded"][-1] == pytest.approx(4 * statistics.fmean(uploads))
    assert len(line["curve"]["accuracy"]["mean"]) == len(line["curve"]["round"]) == 4
    again = invoke("run", f"a/{line['folds'][1]['path']}/config.toml", "--out", "b", "--json")
    assert json.loads(again.output)["summaries"][0]["model_digest"] == line["folds"][1]["digest"]


def test_stop_where_fedavg_is_best(invoke, tmp_path):
    """With a step this large the loss soon rises again."""
    options = ["--rounds", "fedavg-best", "--set", "rounds=12", "--set", "local.lr=2.0", "--set", "data.samples=5"]
    result = json.loads(
        invoke(
            "compare",
            "eris",
            "fedavg",
            "gossip",
            *FAST,
            *options,
            "--folds",
            "2",
            "--out",
            "a",
            "--reading",
            "paper",
            "--json",
        ).output
    )
    assert result["stop"] == "fedavg-best"
    best = []
    for fold in range(2):
        lines = (tmp_path / "a" / f"fold-{fold}" / "fedavg" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        losses = [json.loads(text)["loss"] for text in lines]
        assert len(losses) == 12
        best.append(losses.index(min(losses)) + 1)
    assert result["rounds"] == best
    assert min(best) < 12
    for line in result["methods"]:
        assert [fold["rounds"] for fold in line["folds"]] == best


def test_the_same_again_goes_on_and_changes_nothing(invoke, tmp_path):
    first = compared(invoke, "fedavg", "ako", "--rounds", "3", "--out", "a")
    marked = tmp_path / "a" / "fold-0" / "ako" / "metrics.jsonl"
    before = marked.read_text(encoding="utf-8")
    more = compared(invoke, "fedavg", "ako", "eris", "--rounds", "3", "--out", "a")
    assert marked.read_text(encoding="utf-8") == before
    assert more["methods"][:2] == first["methods"]
    with pytest.raises(CheckpointError, match="another configuration"):
        compared(invoke, "fedavg", "--rounds", "5", "--out", "a")


def test_a_file_names_methods_and_settings(invoke, tmp_path):
    (tmp_path / "my.toml").write_text('method = ["eris", "priprune"]\nrounds = 2\n')
    result = compared(invoke, "my.toml", "--out", "a")
    assert [line["method"] for line in result["methods"]] == ["eris", "priprune"]
    chosen = compared(invoke, "fedavg", "my.toml", "--out", "b")
    assert [line["method"] for line in chosen["methods"]] == ["fedavg"]
    assert chosen["rounds"] == [2]


def test_noise_says_what_it_costs(invoke):
    done = invoke("compare", "fedavg-ldp", *FAST, "--rounds", "2", "--out", "a")
    assert "fedavg-ldp: ε = 9.99 at δ = 1e-05 for one member (replacement), 2 rounds" in done.output
    assert "noise reproducible" in done.output


def test_without_an_accuracy_there_is_no_picture(invoke, tmp_path):
    done = invoke("compare", "fedavg", "--set", "data.name=synthetic-quadratic", "--set", "rounds=2", "--out", "a")
    assert "no accuracy to draw" in done.output
    assert (tmp_path / "a" / "compare.json").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fedavgg"], "did you mean fedavg"),
        (["eris:aggregators"], "no setting after the colon"),
        (["eris", "eris"], "named twice"),
        (["eris:rouns=3"], "did you mean rounds"),
        (["eris:rounds=3"], "sets rounds, which all methods share"),
        (["a.toml", "b.toml"], "2 configuration files"),
        (["eris", "--rounds", "many"], "use a number, or fedavg-best"),
        (["--arm", "eris"], "write --arm"),
        (["--arm", "one: eris", "--arm", "one: fedavg"], "named twice"),
        (["eris", "--over", "data.samples"], "write --over"),
        (["eris", "--over", "data.samples=8,8"], "a value twice"),
        (["eris", "--over", "data.sample=8,16"], "did you mean"),
        (["eris", "--front", "accuracy,beauty"], "name two of"),
        (["eris", "--front", "accuracy,leak"], "needs an attack"),
        (["eris", "--reading", "his"], "no reading"),
    ],
)
def test_refused(invoke, arguments, says):
    with pytest.raises(ConfigError, match=says):
        invoke("compare", *arguments, *FAST, "--out", "a")


def test_what_cannot_be_is_refused_before_anything_runs(invoke, tmp_path):
    with pytest.raises(ConfigError, match="6 nodes cannot have 9"):
        invoke("compare", "fedavg", "gossip:baselines.degree=9", *FAST, "--out", "a")
    assert not (tmp_path / "a" / "fold-0").exists()


def test_a_task_that_cannot_be_is_refused_before_anything_runs(invoke, tmp_path):
    with pytest.raises(ConfigError, match="no gradients of single samples"):
        invoke("compare", "eris", "fedavg-dpsgd", *FAST, "--rounds", "3", "--out", "a")
    assert not (tmp_path / "a").exists()


def test_every_method_is_listed(invoke):
    lines = invoke("compare", "--list").output.splitlines()
    assert [line.split()[0] for line in lines] == list(METHODS)
    assert all(len(line.split()) > 3 for line in lines)


def test_settings_of_one_method():
    assert arm("eris:shards.capacities=[1.0,2.0],server.rule=median").changes == (
        "shards.capacities=[1.0,2.0]",
        "server.rule=median",
    )
