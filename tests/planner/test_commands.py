"""`eris plan` and `eris bounds`, as they are typed."""

import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from eris.cli import bounds, plan
from eris.errors import ConfigError, DataError, InputError
from eris.planner import METHODS

FLEET = """
[[peer]]
name = "lab"
upload = "1Gbit/s"
download = "1Gbit/s"
memory = "1GB"
[[peer]]
name = "home"
upload = "2MB/s"
download = "10MB/s"
count = 5
[[peer]]
name = "phone"
upload = "1MB/s"
download = "5MB/s"
aggregate = false
count = 2
"""


@pytest.fixture
def eris(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    app = typer.Typer(rich_markup_mode="markdown")
    plan.register(app)
    bounds.register(app)

    def call(*arguments, code=0):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.stdout

    return call


@pytest.fixture
def fleet(tmp_path):
    path = tmp_path / "fleet.toml"
    path.write_text(FLEET, encoding="utf-8")
    return path


def test_masks_have_their_bytes_their_time_and_nobody_who_sees_alone(eris):
    rows = {row["method"]: row for row in json.loads(eris("plan", "11.7M", "-k", 10, "--json"))["methods"]}
    for plain, masked in (("eris", "eris+masked"), ("eris+dsc", "eris+dsc+masked")):
        one, two = rows[plain], rows[masked]
        assert two["network"] / one["network"] == pytest.approx(1 + 1 / 18, abs=1e-4)  # each shard once more, q to p
        assert two["seconds"] / one["seconds"] == pytest.approx(1 + 1 / 18, abs=1e-4)
        assert [len(row["waits_for"]) for row in (one, two)] == [2, 3]
        assert (one["exposure"]["share"] > 0, two["exposure"]["share"]) == (True, 0.0)
        assert "unmasker" in two["exposure"]["note"]
    assert "ERIS+masked" in eris("plan", "11.7M", "-k", 10)


def test_help_has_examples(eris):
    for verb in ("plan", "bounds"):
        text = eris(verb, "--help")
        assert f"eris {verb} " in text
        assert "Example" in text


def test_the_default_table(eris):
    text = eris("plan", "1.65M", "--keep", "1%")
    for words in ("FedAvg", "33.0 s", "ERIS+DSC", "12.9 MB", "Colluding aggregators see"):
        assert words in text, words
    assert "in the paper" not in text
    assert "Traceback" not in text


def test_a_share_is_not_shown_as_a_measure_of_privacy(eris):
    from eris.cli.planning.notes import SHARE_NOTE

    text = eris("plan", "1.65M")
    number = re.search(rf"^ +(\d+) Exposure: {re.escape(SHARE_NOTE)}", text, re.MULTILINE)[1]
    assert f"Time, memory, exposure {number.translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}" in text
    assert SHARE_NOTE in eris("plan", "1.65M", "--advise", "--exposure", "25%")
    assert "no measure" not in eris("plan", "1.65M", "--json")


def test_numbers_for_programs(eris):
    data = json.loads(eris("plan", "1.65M", "--members", 50, "--aggregators", 10, "--keep", "1%", "--json"))
    assert [entry["method"] for entry in data["methods"]] == list(METHODS)
    fedavg = data["methods"][0]
    assert (fedavg["member_upload"], fedavg["seconds"]) == (6.6e6, 33.0)
    assert data["round"]["members"] == 50
    assert len(data["round"]["aggregators"]) == 10
    assert {"method": "eris", "aggregators": 2, "exposure": 0.2} in data["collusion"]


def test_omega_is_another_way_to_say_keep(eris):
    one = json.loads(eris("plan", "--omega", 19, "--method", "eris+dsc", "--json"))
    two = json.loads(eris("plan", "--keep", "5%", "--method", "eris+dsc", "--json"))
    assert one == two


def test_a_fleet_with_names(eris, fleet):
    data = json.loads(eris("plan", "resnet9", "--fleet", fleet, "--aggregators", "lab,home-2", "--json"))
    assert data["round"]["aggregators"] == ["lab", "home-2"]
    even, fitted = (
        json.loads(eris("plan", "resnet9", "--fleet", fleet, "--method", "eris", "--shards", shards, "--json"))
        for shards in ("even", "capacity")
    )
    assert fitted["methods"][0]["seconds"] < even["methods"][0]["seconds"]


def test_a_file_says_the_options_of_every_method(eris, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        'members = 10\n[model]\nname = "logistic"\n[compression]\nkeep = 0.5\n[options.priprune]\nprune = 0.2\n'
        "[options.cdp-sgd]\nkeep = 0.25\n[options.gossip]\ndegree = 2\n[options.ako]\npartitions = 4\n"
    )
    rows = {row["method"]: row for row in json.loads(eris("plan", file, "--json"))["methods"]}
    assert rows["priprune"]["keep"] == 0.8
    assert rows["priprune-pseudo"]["keep"] == 0.99  # its own default
    assert rows["cdp-sgd"]["keep"] == 0.25
    assert rows["eris+dsc"]["keep"] == 0.5
    assert rows["gossip"]["member_upload"] == 2 * rows["fedavg"]["member_upload"]
    assert rows["ako"]["exposure"]["share"] == 0.25
    (said,) = json.loads(eris("plan", file, "--method", "priprune", "--prune", 0.4, "--json"))["methods"]
    assert said["keep"] == 0.6
    file.write_text("[options.priprune]\nprun = 0.2\n")
    with pytest.raises(ConfigError, match=r"no key options\.priprune\.prun"):
        eris("plan", file)


def test_two_aggregators_a_shard_see_and_hold_twice_as_much(eris):
    once, twice = (
        {row["method"]: row for row in json.loads(eris("plan", "1M", "-k", 10, "--replicas", r, "--json"))["methods"]}
        for r in (1, 2)
    )
    for method in ("eris", "eris+dsc"):
        assert twice[method]["exposure"]["share"] == pytest.approx(2 * once[method]["exposure"]["share"])
        assert twice[method]["memory"] == pytest.approx(2 * once[method]["memory"])
    assert twice["fedavg"] == once["fedavg"]
    assert "two for each shard" in eris("plan", "1M", "-k", 10, "--replicas", 2)


def test_a_relay_is_counted(eris):
    data = json.loads(eris("plan", "1M", "-k", 10, "--relay-rate", "10MB/s", "--json"))
    rows = {row["method"]: row for row in data["methods"]}
    assert rows["eris"]["relayed"] == 2 * 9 * 4_000_000
    assert rows["eris"]["waits_for"][0]["node"] == "relay"
    assert rows["fedavg"]["relayed"] == 0
    text = eris("plan", "1M", "-k", 10, "--relay-rate", "10MB/s")
    assert "relayed at 10.0 MB/s" in text
    assert "Per round the relay receives and passes on: ERIS 72.0 MB" in text


def test_partial_participation(eris):
    data = json.loads(eris("plan", "--members", 20, "--participation", "25%", "--aggregators", 4, "--json"))
    assert (data["round"]["participants"], data["round"]["audience"]) == (5, 20)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--members", 10, "--aggregators", 12), "12 aggregators for 10 members"),
        (("--rate", "0"), "upload rate is 0"),
        (("--rate", "quick"), "rate is 'quick'"),
        (("--method", "fedproks"), "no method 'fedproks'"),
        (("--shards", "odd"), "--shards is 'odd'"),
        (("--omega", "-1"), "ω is -1"),
        (("--participation", "0"), "share is '0'"),
        (("vgg",), "no model is named 'vgg'"),
        (("--panel", "svhn"), "no panel is named 'svhn': .*main-text"),
        (("--rate", "20"), "rate is '20', which would be bytes per second: write 20MB/s"),
        (("--omega", "19", "--keep", "5%"), "--keep and --omega set the same thing"),
        (("--degree", 100), "100 nodes cannot have 100 neighbours"),
        (("--advise", "--collude", 80), "the coalition has 80 of 50 aggregators"),
        (("--collude", 2), "--collude 2 is for advice"),
        (("nowhere.toml",), "no such configuration file"),
        (("--exposure", "110%"), "share is '110%'"),
        (("--replicas", 2, "--aggregators", 1), "2 replicas do not work with 1 shards"),
        (("--replicas", 2, "--shards", "capacity"), "work only with one aggregator per shard"),
        (("--replicas", 2, "--advise"), "work only with one aggregator per shard"),
        (("--replicas", 2, "--panel", "mnist"), "two replicas are neither drawn"),
        (("--relay-rate", "1MB/s", "--panel", "mnist"), "the paper's tables have no relay"),
        (("--relay-rate", "20"), "rate is '20', which would be bytes per second"),
    ],
)
def test_impossible_plans_are_refused(eris, arguments, message):
    with pytest.raises(ConfigError, match=message):
        eris("plan", *arguments)


def test_impossible_fleets_are_refused(eris, fleet, tmp_path):
    with pytest.raises(ConfigError, match="no peer of the fleet is named 'oslo'"):
        eris("plan", "--fleet", fleet, "--aggregators", "lab,oslo")
    with pytest.raises(ConfigError, match="--members is 3, the fleet has 8 peers"):
        eris("plan", "--fleet", fleet, "--members", 3)
    with pytest.raises(ConfigError, match="--relay-rate is for a fleet of equal peers"):
        eris("plan", "--fleet", fleet, "--relay-rate", "1MB/s")
    with pytest.raises(ConfigError, match="only 6 peers may aggregate"):
        eris("plan", "--fleet", fleet, "--aggregators", 7)
    poor = tmp_path / "poor.csv"
    poor.write_text("name,upload,download,memory\na,1MB/s,1MB/s,1KB\nb,1MB/s,1MB/s,1KB\nc,1MB/s,1MB/s,1KB\n")
    with pytest.raises(ConfigError, match=r"the peer offers 0\.0 MB \[peer=a\]"):
        eris("plan", "--fleet", poor, "--method", "eris", "--method", "eris+dsc")
    with pytest.raises(ConfigError, match="no shard sizes fit the memory"):
        eris("plan", "--fleet", poor, "--shards", "capacity")


def test_a_method_that_does_not_fit_is_marked(eris, tmp_path):
    tight = tmp_path / "tight.csv"
    tight.write_text("name,upload,download,memory\n" + "".join(f"p{k},1MB/s,1MB/s,1MB\n" for k in range(8)))
    text = eris("plan", "1M", "--fleet", tight, "--keep", "1%")
    assert "offers less memory than it needs" in text


def test_as_printed(eris):
    text = eris("plan", "--as-printed", "--panel", "cnn-dailymail")
    for cell in ("36.4 GB", "936.0 s", "37.44 GB", "236.34 s"):
        assert cell in text
    assert "role alone" in text
    data = json.loads(eris("plan", "--panel", "main-text", "--json"))
    assert list(data) == ["cnn-dailymail", "cifar-10"]
    assert data["cifar-10"][-1]["time"] == "0.33 s"
    own = json.loads(eris("plan", "62K", "--as-printed", "--keep", "3.3%", "--json"))["62K"]
    assert {entry["quantity"] for entry in own[-1].pop("differences")} == {"download", "total", "time", "node"}
    assert own[-1] == {
        "method": "ERIS+DSC", "compression": "3.3%", "upload": "8.02 KB", "download": "243.04 KB",
        "total": "251.06 KB", "time": "0.01 s",
    }  # fmt: skip


def test_where_the_paper_differs_is_said_beside_its_own_table(eris):
    text = eris("plan", "1.65M", "--as-printed", "--keep", "1%")
    for words in ("Upload of a node 12.9 MB, in the paper 6.47 MB", "as sparse as the uploads"):
        assert words in text, words


def test_advice(eris, fleet):
    text = eris("plan", "resnet9", "--fleet", fleet, "--advise", "--round-time", 5, "--exposure", "30%", "--collude", 2)
    for words in ("What binds", "aggregators", "Colluding aggregators would see", "any 2 together"):
        assert words in text, words
    data = json.loads(eris("plan", "resnet9", "--fleet", fleet, "--round-time", 5, "--json"))
    assert data["met"]
    assert data["round_time"] <= 5.05
    assert sum(data["round"]["shard_sizes"]) == 1_652_682
    assert data["limits"]


def test_advice_says_that_the_relay_binds(eris):
    assert "What binds: the relay." in eris("plan", "1M", "-k", 6, "--relay-rate", "1MB/s", "--advise")


def test_names_with_brackets_are_printed_whole(eris, tmp_path):
    peers = tmp_path / "peers.csv"
    rows = ("phone[b],1MB/s,1MB/s", "oslo[a],20MB/s,20MB/s", "bergen[c],3MB/s,3MB/s")
    peers.write_text("\n".join(("name,upload,download", *rows)), encoding="utf-8")
    spec = tmp_path / "[draft].json"
    spec.write_text('{"tensors": [{"name": "w", "shape": [1000000]}]}', encoding="utf-8")
    assert "phone[b] ↑" in eris("plan", "1M", "--fleet", peers, "--aggregators", "oslo[a]", "--method", "eris")
    assert "phone[b])" in eris("plan", "1M", "--fleet", peers, "--advise")
    assert "[draft]" in eris("plan", spec)
    assert "[draft].json, as the paper's tables count" in eris("plan", spec, "--as-printed")


def test_models_and_settings_of_runs_can_be_planned(eris, tmp_path):
    assert json.loads(eris("plan", "mlp", "--json"))["round"]["values"] == 785 * 64 + 65 * 10
    assert json.loads(eris("plan", "logistic", "--json"))["round"]["values"] == 785 * 10
    file = tmp_path / "run.toml"
    file.write_text(
        'members = 12\naggregators = 4\nparticipation = 0.5\n[model]\nname = "logistic"\noptions = {inputs = 99}\n'
        '[compression]\nkeep = 0.25\nmasks = "independent"\n'
    )
    round = json.loads(eris("plan", file, "--json"))["round"]
    assert (round["values"], round["members"], len(round["aggregators"]), round["participants"]) == (1000, 12, 4, 6)
    assert (round["keep"], round["masks"]) == (0.25, "independent")
    own = json.loads(eris("plan", file, "--members", 6, "--keep", "10%", "--json"))["round"]
    assert (own["members"], len(own["aggregators"]), own["keep"]) == (6, 6, 0.1)
    file.write_text('members = 3\n[data]\nname = "synthetic-quadratic"\n')
    assert json.loads(eris("plan", file, "--method", "eris", "--json"))["round"]["values"] == 100


def test_advice_that_cannot_be_given_has_an_exit_code_of_its_own(eris, fleet):
    text = eris("plan", "resnet9", "--fleet", fleet, "--advise", "--round-time", 0.001, code=25)
    assert "No plan reaches the target for round time" in text
    assert "Even with all 6 possible aggregators" in text
    data = json.loads(eris("plan", "resnet9", "--fleet", fleet, "--round-time", 0.001, "--json", code=25))
    assert data["missed"] == ["round_time"]


def test_plots(eris, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "time.svg"
    eris("plan", "10M", "--rate", "100Mbit/s", "--plot", path, "--figure", "clients")
    assert "ERIS+DSC" in path.read_text(encoding="utf-8")


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def values(text, section):
    return {key: entry["value"] for key, entry in json.loads(text)[section].items()}


def test_reference_values(eris):
    text = eris("bounds", "--members", 50, "--omega", 19, "--masks", "independent", "--beta", 0.1, "--json")
    utility = values(text, "utility")
    assert utility["first_step"] == pytest.approx(0.03726780, abs=6e-9)
    assert utility["highest_step"] == pytest.approx(0.11111111, abs=6e-9)
    assert utility["residual_paper"] == pytest.approx(0.01886682, abs=6e-9)
    assert utility["gamma2"] > utility["gamma2_paper"]
    printed = values(
        eris("bounds", "--masks", "independent", "--gamma2", 48 / 1024, "--gap", 5, "--target", 0.05, "--json"),
        "utility",
    )
    assert printed["rounds"] == pytest.approx(8618.72, abs=0.005)


def test_shared_masks_count_as_one_member(eris):
    shared = values(eris("bounds", "--json"), "utility")
    secret = values(eris("bounds", "--masks", "independent", "--json"), "utility")
    assert secret["first_step"] == pytest.approx(math.sqrt(50) * shared["first_step"])


def test_leakage_and_collusion(eris):
    arguments = ("bounds", "--model", "lenet5", "--omega", 30, "--rounds", 120, "--snr", 0.01, "--json")
    one = values(eris(*arguments), "leakage")
    assert one["coordinates"] == pytest.approx(4777.24, abs=0.005)
    assert one["nats"] == pytest.approx(23.77, abs=0.005)
    two = values(eris(*arguments, "--collude", 2), "leakage")
    assert two["nats"] == pytest.approx(2 * one["nats"])
    assert two["aggregators_needed"] == 100
    weighted = values(eris(*arguments, "--shards", "3,1,1"), "leakage")
    assert weighted["coordinates"] == pytest.approx(61_706 * 120 / 31 * 3 / 5)


def test_every_flaw_stands_beside_its_number(eris):
    data = json.loads(eris("bounds", "--json"))
    assert "(m−b)G²/(mb)" in data["utility"]["gamma2_paper"]["flaws"][0]
    assert len(data["leakage"]["nats"]["flaws"]) == 4
    assert data["utility"]["gamma"]["flaws"] == []
    text = eris("bounds")
    for words in ("X₁ = D⊕N", "there may be none", "artefact", "rows cannot be compared", "C_max = ∞"):
        assert words in " ".join(text.split()), words


def test_deterministic_work_prints_infinity(eris):
    for extra in (("--deterministic",), ("--batch", 64)):
        text = eris("bounds", *extra)
        assert "∞" in text
        assert "vacuous" in text
    assert json.loads(eris("bounds", "--deterministic", "--json"))["leakage"]["nats"]["infinite"]


def test_capacity_from_transcripts(eris, tmp_path):
    draw = np.random.default_rng(3).normal
    path = tmp_path / "transcripts.npz"
    np.savez(path, members=draw(size=(30, 4)) * 2, redraws=draw(size=(30, 4)))
    found = json.loads(eris("bounds", "--transcripts", path, "--json"))["leakage"]["capacity"]
    assert found["value"] == pytest.approx(math.log(2), abs=0.5)
    assert "30 redraws" in found["remark"]
    np.savez(path, members=np.ones((3, 4)))
    with pytest.raises(DataError, match="redraws"):
        eris("bounds", "--transcripts", path)
    with pytest.raises(DataError, match="cannot be read"):
        eris("bounds", "--transcripts", tmp_path / "none.npz")


def test_no_step_is_said_so(eris):
    text = " ".join(eris("bounds", "--gamma1", 50, "--gamma3", 5, "--theta", 0.1).split())
    assert "none: 8cαΓ₃L² > 1" in text
    assert "no step is allowed" in text
    assert "not allowed by the theorem" in " ".join(eris("bounds", "--step", 0.5).split())


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text(
        'method = "eris"\nmembers = 4\naggregators = 4\n[local]\nbatch = "full"\nlr = 0.1\nmomentum = 0.0\n'
    )
    lines = [
        {"round": t, "train_loss": 1.5 * 0.49**t, "gradient_norm_squared": 9 * 0.49**t} for t in range(6)
    ]  # gradient descent on 3x²/2
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "summary.json").write_text(json.dumps({"method": "eris", "parameters": 1234}))
    return folder


def test_from_a_finished_run(eris, run):
    text = eris("bounds", "--from", run, "--json")
    evidence, utility = values(text, "evidence"), values(text, "utility")
    assert evidence["smoothness"] == pytest.approx(3)
    assert (utility["smoothness"], utility["step"]) == (pytest.approx(3), 0.1)
    assert utility["measured"] == pytest.approx(sum(9 * 0.49**t for t in range(6)) / 6)
    assert utility["ratio"] >= 1  # full gradients, constants of the run: the bound must hold
    assert json.loads(text)["utility"]["ratio"]["remark"] == ""
    assert values(text, "leakage")["capacity"] is None
    given = values(eris("bounds", "--from", run, "--smoothness", 7, "--snr", 1, "--json"), "utility")
    assert given["smoothness"] == 7


def test_an_empty_run_is_honest(eris, run, tmp_path):
    (run / "metrics.jsonl").write_text("")
    (run / "summary.json").write_text("{}")
    text = " ".join(eris("bounds", "--from", run).split())
    assert "missing: no gradient norms" in text
    assert "not recorded" in text
    with pytest.raises(ConfigError, match="is not a folder"):
        eris("bounds", "--from", tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="there are no results of a run"):
        eris("bounds", "--from", empty)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--masks", "public"), "masks are 'public'"), (("--shards", "a,b"), "--shards is 'a,b'"),
     (("--collude", 99), "99 of 50 aggregators"), (("--beta", 0), "beta is 0"),
     (("--step", -1), "step λ is -1"), (("--aggregators", 0), "--aggregators is 0"),
     (("--omega", 19, "--keep", "5%"), "set the same thing"), (("--batch", 99), "batch is 99")],
)  # fmt: skip
def test_bad_questions_are_refused(eris, arguments, message):
    with pytest.raises(ConfigError, match=message):
        eris("bounds", *arguments)


# ── the documents ─────────────────────────────────────────────────────────────────────────────────────────────────────

DOCS = Path(__file__).parents[2] / "docs"


def documented(page):
    blocks = re.findall(r"^```\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("eris ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.mark.parametrize("arguments", documented("planner.md") + documented("bounds.md"), ids=" ".join)
def test_every_command_of_the_documents_works(eris, fleet, run, tmp_path, arguments):
    files = {"fleet.toml": fleet, "runs/digits": run, "time.png": tmp_path / "time.png"}
    assert eris(*(files.get(word, word) for word in arguments))


def test_the_program_of_the_document_runs():
    (program,) = re.findall(r"```python\n(.*?)```", (DOCS / "planner.md").read_text(encoding="utf-8"), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
