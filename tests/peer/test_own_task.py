"""A learning problem of the user's own: found by its path, asked about one peer only, and explained when it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eris import Federation
from eris.errors import ConfigError, DataError, SpecError, TaskError
from eris.local.numpy_task import LogisticTask
from eris.methods import method_by_name
from eris.peer.own_task import TaskOfAll, task_for
from eris.peer.preflight import examine_task
from eris.protocol.floor import Floor
from eris.seeds import private_root, public_root
from eris.simulate.run import check
from eris.tasks import TASKS, as_asked
from tests.peer.town import settings, town

MODULE = '''
import numpy as np
from eris import LocalResult, ModelSpec


class Slope:
    """Knows the data of its own peer and nothing else."""

    def __init__(self, config, peer):
        self.peer, self.rate = peer, config.local.lr
        self.points = np.full(4, peer, np.float32)
        self.spec = ModelSpec.flat(4)

    def samples(self, member):
        assert member == self.peer
        return 10 * (member + 1)

    def initial(self, seed):
        return np.zeros(4, np.float32)

    def memory(self, member):
        assert member == self.peer
        return {}

    def train(self, member, model, memory, *, round, seed):
        assert member == self.peer
        return LocalResult(np.float32(self.rate) * (model - self.points), self.samples(member))

    def evaluate(self, model):
        return {"loss": float(np.sum((model - self.points) ** 2))}


def broken(config, peer):
    raise RuntimeError("no such disk")


def elsewhere(config, peer):
    open("patients.csv")


def nothing(config, peer):
    return object()
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "slopes.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "slopes", raising=False)
    return "slopes"


def test_peers_that_know_only_their_own_data_train_one_model(module: str, tmp_path: Path) -> None:
    config = settings("members=3", "rounds=3", "local.lr=0.5")
    with town(tmp_path / "town", config) as place:
        nodes = [place.node(name, task=task_for("slopes:Slope", config, k)) for k, name in enumerate(place.names)]
        for node in nodes:
            place.start(node.settings.name, node.run)
        place.wait()
    assert len({node.model_digest() for node in nodes}) == 1
    mean = (0 * 10 + 1 * 20 + 2 * 30) / 60  # weighted by what each said it has
    assert np.allclose(nodes[0].member.replica.model, mean * (1 - 0.5**3))


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("slopes", ConfigError, "write package.module:name"),
        ("slopes:Missing", ConfigError, "module 'slopes' has no 'Missing'"),
        ("valleys:Task", ConfigError, "'valleys:Task' cannot be imported"),
        ("slopes:broken", TaskError, "failed: RuntimeError: no such disk"),
        ("slopes:elsewhere", TaskError, r"failed: FileNotFoundError: .*'patients\.csv'"),
        ("slopes:nothing", TaskError, "has no spec, samples, initial, memory, train, evaluate"),
    ],
)
def test_what_is_wrong_with_a_task_is_said(module: str, path: str, kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        task_for(path, settings("members=3"), 0)


def test_a_rehearsal_finds_what_the_first_round_would(module: str, tmp_path: Path) -> None:
    with town(tmp_path / "town", settings("members=3", "aggregators=2")) as place:
        federation = place.federation()
        well = list(examine_task(federation, "slopes:Slope", Floor(min_contributors=1), 2, tmp_path))
        assert [(finding.what, finding.well) for finding in well] == [("task", True), ("disk", True), ("floor", True)]
        assert "the largest share another sees is 50.0%" in well[-1].text
        strict = list(examine_task(federation, "slopes:Slope", Floor(max_share=0.4), 2, tmp_path))
        assert (strict[-1].what, strict[-1].well) == ("floor", False)
        assert [f.what for f in examine_task(federation, "slopes:broken", Floor(), 2, tmp_path)] == ["task"]


def test_a_torch_task_of_a_peer_is_tried_out_before_it_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    (tmp_path / "gap.py").write_text(
        "import numpy as np\n"
        "from torch import nn\n"
        "from eris.data import ArrayExamples\n"
        "from eris.local.torch_task import TorchTask\n"
        "x = np.ones((9, 4), np.float32)\n"
        "x[7, 1] = np.nan\n"
        "def task(config, peer):\n"
        "    return TorchTask(lambda: nn.Linear(4, 2), ArrayExamples(x, np.zeros(9, np.int64)), [np.arange(9)] * 5)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DataError, match=r"the inputs of sample 7 have a value that is nan \[sample=7, peer=3\]"):
        task_for("gap:task", settings(), 3)


def test_a_simulation_asks_every_members_task_about_its_own_member(module: str, tmp_path: Path) -> None:
    """By `eris run --task` in workers, by `Federation(task=…)` in this process: the same bits."""
    words = ["--set", "method=eris", "--set", "members=3", "--set", "rounds=3", "--set", "local.lr=0.5"]
    command = [sys.executable, "-m", "eris", "run", "--task", "slopes:Slope", *words, "--out", "here", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=True)
    (summary,) = json.loads(done.stdout)["summaries"]
    slope = TASKS.find("slopes:Slope")
    alone = Federation(task=slope, members=3, rounds=3, local={"lr": 0.5}).run(tmp_path / "there", report=False)
    assert summary["model_digest"] == alone["eris"]["model_digest"]
    assert 'name = "own"' in (tmp_path / "here" / "config.toml").read_text()


def test_members_tasks_must_have_one_model(module: str) -> None:
    task = TaskOfAll(lambda config, peer: LogisticTask.synthetic(3, public_root(1), features=4 + peer), settings())
    with pytest.raises(SpecError, match=r"the task of member 1 has model spec \w+…, but the one here is \w+…"):
        task.samples(1)


def test_gradients_of_members_tasks_are_corrected_where_they_can_be(module: str) -> None:
    config = settings("members=3", "method=fedprox")
    made = TaskOfAll(lambda config, peer: LogisticTask.synthetic(3, public_root(1), epochs=3), config)
    model, seed = made.initial(public_root(1)), private_root(1, 1)
    plain = made.train(1, model, {}, round=0, seed=seed).update
    pulled = as_asked(method_by_name("fedprox").completed(config), made).train(1, model, {}, round=0, seed=seed).update
    assert not np.array_equal(plain, pulled)
    with pytest.raises(ConfigError, match="the method corrects local gradients, but Slope cannot be corrected"):
        as_asked(method_by_name("fedprox").completed(config), TaskOfAll("slopes:Slope", config))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "--task", "slopes:Slope", "--resume", "gone"], "there is no run in this folder"),
        (["up", "--task", "slopes:Slope", "--flower", "."], "--task and --flower each give a learning problem"),
    ],
)
def test_options_that_do_not_go_together(module: str, words: list[str], sentence: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "eris", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_of_a_flower_app_says_so_where_flower_is_not_named() -> None:
    with pytest.raises(ConfigError) as told:
        check(settings("data.name=flower", "model.name=quickstart@0123456789abcdef"))
    assert str(told.value) == "this run trains a Flower app [key=data.name]: give its folder again: --flower DIR"
