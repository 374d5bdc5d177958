"""What people get wrong with models and data of their own: one line each, the same from `run`, `up` and Python.

Every message is compared word for word, and nothing is left on the disk.
"""

from __future__ import annotations

import importlib
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import eris
from eris.cli import run, up
from eris.errors import ErisError
from tests.cli.processes import eris as command

torch = pytest.importorskip("torch")

PRELUDE = """
import numpy as np
import torch
from torch import nn

x = (np.arange(60 * 4, dtype=np.float32).reshape(60, 4) % 7) / 7
y = x.sum(1)
classes = np.arange(60) % 3
many = np.stack([classes == 0, classes == 1], 1).astype(np.float32)
tokens = np.arange(60 * 5).reshape(60, 5) % 6
pictures = np.resize(x, (60, 1, 4, 4)).astype(np.float32)
masks = (pictures[:, 0] > 0.5).astype(np.int64)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(6, 4), nn.Linear(4, 6)

    def forward(self, tokens):
        return self.head(self.embed(tokens))


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, left, right):
        return self.left(left) + self.right(right)


class Listed:
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, place):
        return self.samples[place]


def both(inputs, targets):
    return (inputs, targets), (inputs[:5], targets[:5])


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def linear(outputs):
    return lambda: nn.Linear(4, outputs)
"""


@dataclass(frozen=True)
class Case:
    """A mistake: a model, data and settings, and the sentence they are answered with."""

    model: str
    data: str
    said: str
    loss: str = "cross-entropy"
    more: str = ""
    kind: type[ErisError] = eris.DataError

    def source(self) -> str:
        return f"{PRELUDE}\n{self.more}\nmodel = {self.model}\ndata = lambda: {self.data}\n"


MIXED = "check that the model accepts such inputs, and that the loss accepts its outputs and the targets"
NUMBERED = "number classes from 0 and give the model as many outputs, or mark labels to ignore with −100"
FILL = "fill in missing values, or leave the sample out"

CASES = {
    "classification: labels out of range": Case(
        "linear(3)",
        "both(x, changed(classes, 17, 3))",
        "the label of sample 17 is 3, not 0 … 2: the model has 3 classes [sample=17, peer=1]: " + NUMBERED,
    ),
    "classification: a negative label": Case(
        "linear(3)",
        "both(x, changed(classes, 17, -1))",
        "the label of sample 17 is -1, not 0 … 2: the model has 3 classes [sample=17, peer=1]: " + NUMBERED,
    ),
    "classification: a label of the test split": Case(
        "linear(3)",
        "((x, classes), (x[:5], classes[:5] + 1))",
        "the label of test sample 2 is 3, not 0 … 2: the model has 3 classes [sample=2]: " + NUMBERED,
    ),
    "classification: labels are numbers": Case(
        "linear(3)",
        "both(x, y)",
        "the model returns N × 3, the labels are float32 N, but cross-entropy takes class numbers [key=local.loss]: "
        'set local.loss = "mse" (numbers) or "bce" (0 or 1)',
        kind=eris.ConfigError,
    ),
    "classification: samples do not fit the model": Case(
        "lambda: nn.Linear(5, 3)",
        "both(x, classes)",
        "the model fails on inputs float32 N × 4: RuntimeError: mat1 and mat2 shapes cannot be multiplied "
        f"(2x4 and 5x3): {MIXED}",
        kind=eris.ModelError,
    ),
    "classification: NaN at sample 17": Case(
        "linear(3)",
        "both(changed(x, (17, 2), np.nan), classes)",
        f"the inputs of sample 17 have a value that is nan [sample=17, peer=1]: {FILL}",
    ),
    "classification: ragged rows": Case(
        "linear(3)",
        "(([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0]], [0, 1]), None)",
        "inputs: sample 1 has 2 values, but sample 0 has 4 [sample=1]: make all samples equally long, "
        "or pad them in a collate function: Federation(…, collate=…)",
    ),
    "classification: bytes where the model takes numbers": Case(
        "linear(3)",
        "both((x * 255).astype(np.uint8), classes)",
        "the model fails on inputs uint8 N × 4: RuntimeError: mat1 and mat2 must have the same dtype, but got Byte "
        f"and Float: {MIXED}",
        kind=eris.ModelError,
    ),
    "regression: the wrong loss": Case(
        "linear(1)",
        "both(x, y)",
        "the model returns N × 1, the labels are float32 N, but cross-entropy takes class numbers [key=local.loss]: "
        'set local.loss = "mse" (numbers) or "bce" (0 or 1)',
        kind=eris.ConfigError,
    ),
    "regression: two answers for one target": Case(
        "linear(2)",
        "both(x, y)",
        "the model returns N × 2, the labels are float32 N, but mse takes one number for each target "
        "[key=local.loss]: make the model return one number for each target",
        loss="mse",
        kind=eris.ConfigError,
    ),
    "regression: an infinite target": Case(
        "linear(1)",
        "both(x, changed(y, 17, np.inf))",
        f"the targets of sample 17 have a value that is inf [sample=17, peer=1]: {FILL}",
        loss="mse",
    ),
    "several labels: labels of 0 and 2": Case(
        "linear(2)",
        "both(x, changed(many, (17, 1), 2))",
        "the label of sample 17 is 2.0, not 0 … 1: bce takes 0 and 1 [sample=17, peer=1]: use 0 and 1, or set "
        'local.loss = "cross-entropy" for class numbers',
        loss="bce",
    ),
    "several labels: three logits for two": Case(
        "linear(3)",
        "both(x, many)",
        "the model returns N × 3, the labels are float32 N × 2, but bce takes one logit for each label "
        "[key=local.loss]: make the model return one logit for each label",
        loss="bce",
        kind=eris.ConfigError,
    ),
    "several labels: a name that the model does not know": Case(
        "Halves",
        "({'left': x[:, :2], 'right': x[:, 2:], 'age': y, 'labels': many}, None)",
        "the samples have left, right, age, but the model's forward takes left, right: leave age out of the samples, "
        "or add it to forward's arguments",
        loss="bce",
    ),
    "several labels: a column of text": Case(
        "Halves",
        "({'left': x[:, :2], 'right': ['a'] * 60, 'labels': many}, None)",
        "right holds text, not numbers: convert it to numbers, or leave it out of the samples",
        loss="bce",
    ),
    "tokens: the wrong loss": Case(
        "Tagger",
        "both(tokens, tokens)",
        "the model returns N × 5 × 6, the labels are int64 N × 5: a label at every place [key=local.loss]: set "
        'local.loss = "tokens", or "next-token" for a language model',
        kind=eris.ConfigError,
    ),
    "tokens: one label a text": Case(
        "Tagger",
        "both(tokens, classes)",
        "the model returns N × 5 × 6, the labels are int64 N, but tokens takes a class number for every place "
        "[key=local.loss]: give labels N × places",
        loss="tokens",
        kind=eris.ConfigError,
    ),
    "tokens: a label out of range": Case(
        "Tagger",
        "both(tokens, changed(tokens, (17, 3), 6))",
        "the label of sample 17 is 6, not 0 … 5: the model has 6 classes [sample=17, peer=1]: " + NUMBERED,
        loss="tokens",
    ),
    "tokens: texts of different lengths": Case(
        "Tagger",
        "(Listed([(list(range(3 + (k == 17))), [0] * (3 + (k == 17))) for k in range(60)]), None)",
        "inputs: sample 17 has 4 values, but sample 55 has 3 [sample=17]: make all samples equally long, "
        "or pad them in a collate function: Federation(…, collate=…)",
        loss="tokens",
    ),
    "next token: classes in the place of a vocabulary": Case(
        "linear(3)",
        "both(x, tokens)",
        "the model returns N × 3, the labels are int64 N × 5, but tokens takes N × places × classes "
        '[key=local.loss]: set local.loss = "cross-entropy"',
        loss="next-token",
        kind=eris.ConfigError,
    ),
    "next token: a token beyond the vocabulary": Case(
        "Tagger",
        "((Listed([row for row in changed(tokens, (17, 3), 6)])), None)",
        "a token of sample 17 is 6, not 0 … 5: the embedding has 6 rows [sample=17, peer=1]: use the model's own "
        "tokenizer, or enlarge the embedding to the tokenizer's vocabulary",
        loss="next-token",
    ),
    "pictures: a mask of another size": Case(
        "lambda: nn.Conv2d(1, 2, 3)",
        "both(pictures, masks)",
        "the model returns N × 2 × 2 × 2, the labels are int64 N × 4 × 4, but cross-entropy takes N × classes and N "
        "[key=local.loss]: make the model return N × classes",
        kind=eris.ConfigError,
    ),
    "pictures: a class that is not there": Case(
        "lambda: nn.Conv2d(1, 2, 3, padding=1)",
        "both(pictures, changed(masks, (17, 2, 2), 255))",
        "the label of sample 17 is 255, not 0 … 1: the model has 2 classes [sample=17, peer=1]: " + NUMBERED,
    ),
    "a loss of one's own: no tensor": Case(
        "linear(1)",
        "both(x, y)",
        "loss returned a float [key=local.loss]: return the loss as a tensor",
        loss="{module}:loss",
        more="def loss(answers, targets): return 1.0",
        kind=eris.ConfigError,
    ),
    "a loss of one's own: no gradient": Case(
        "linear(1)",
        "both(x, y)",
        "the loss has no gradient: compute it from the model's outputs, without detach(), item() or no_grad()",
        loss="{module}:loss",
        more="def loss(answers, targets): return (answers.detach()[:, 0] - targets).abs().mean()",
        kind=eris.ModelError,
    ),
    "a loss of one's own: not finite": Case(
        "linear(1)",
        "both(x, y)",
        "the first loss is inf, although the data are finite: check the initial weights, and look for a logarithm or "
        "a division in the model and the loss",
        loss="{module}:loss",
        more="def loss(answers, targets): return answers.abs().mean() / 0",
        kind=eris.ModelError,
    ),
    "a model: everything frozen": Case(
        "lambda: nn.Linear(4, 3).requires_grad_(False)",
        "both(x, classes)",
        "every tensor of the model is frozen: make at least one trainable: tensor.requires_grad_(True)",
        kind=eris.ModelError,
    ),
    "a model: a tensor without a gradient": Case(
        "Forgetful",
        "both(x, classes)",
        "tensor spare gets no gradient: the loss does not depend on it [tensor=spare]: use the tensor in forward, or "
        "freeze it: spare.requires_grad_(False)",
        more="""
class Forgetful(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = nn.Linear(4, 3), nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.used(x)
""",
        kind=eris.ModelError,
    ),
    "data: an array alone": Case(
        "linear(3)",
        "(x, classes)",
        "data must be two pairs of arrays, one to train and one to test on: "
        "give ((inputs, targets), (test inputs, test targets)), two datasets to train and to test on, "
        "or a function of the member; ids may come third in the first pair",
        kind=eris.InputError,
    ),
    "data: samples that cannot be read": Case(
        "linear(3)",
        "(Listed({}), None)",
        "sample 16 cannot be read: KeyError: 16 [sample=16, peer=0]: try dataset[16] yourself",
        more="Listed.__len__ = lambda self: 60",
    ),
    "data: a sample that cannot be read": Case(
        "linear(3)",
        "(Listed({k: (x[k], 0) for k in range(60) if k != 17}), None)",
        "sample 17 cannot be read: KeyError: 17 [sample=17, peer=1]: try dataset[17] yourself",
        more="Listed.__len__ = lambda self: 60",
    ),
    "data: a sample with other keys": Case(
        "linear(3)",
        "(Listed([{'x': row, ('label' if k != 17 else 'tag'): 0} for k, row in enumerate(x)]), None)",
        "sample 17 has different keys than sample 55 (x, label) [sample=17]: give every sample the same keys",
    ),
}
_NUMBER = itertools.count()


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a case as a module and the settings that name it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(case: Case) -> tuple[str, list[str]]:
        name = f"mistake_{next(_NUMBER)}"
        (tmp_path / f"{name}.py").write_text(case.source())
        loss = case.loss.replace("{module}", name)
        named = {"model.name": f"{name}:model", "data.name": f"{name}:data", "local.loss": loss}
        return name, [f'{key}="{value}"' for key, value in named.items()] + ["members=3", "rounds=2", "method=eris"]

    return write


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_run_is_refused_and_leaves_nothing(case: Case, written: Any, tmp_path: Path) -> None:
    _, changes = written(case)
    app = typer.Typer()
    app.callback()(lambda: None)
    run.register(app)
    words = [word for change in [*changes, "workers=1"] for word in ("--set", change)]
    done = CliRunner().invoke(app, ["run", *words, "--out", "folder", "--quiet"])
    assert isinstance(done.exception, case.kind), done.exception
    assert str(done.exception) == case.said
    assert not (tmp_path / "folder").exists()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_federation_is_refused_before_a_process_is_started(case: Case, written: Any, tmp_path: Path) -> None:
    _, changes = written(case)
    assert _refused_up(changes, case.kind) == case.said
    assert not (tmp_path / "folder").exists()


def _refused_up(changes: list[str], kind: type[ErisError]) -> str:
    """Return what `eris up` says to these settings."""
    app = typer.Typer()
    app.callback()(lambda: None)
    up.register(app)
    words = [word for change in changes for word in ("--set", change)]
    done = CliRunner().invoke(app, ["up", *words, "--out", "folder"])
    assert isinstance(done.exception, kind), done.exception
    return str(done.exception)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_python_says_the_same(case: Case, written: Any, tmp_path: Path) -> None:
    name, _ = written(case)
    module = importlib.import_module(name)
    loss = case.loss if ":" not in case.loss else module.loss
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(case.kind) as refused:
        eris.Federation(module.model, module.data, "eris", members=3, rounds=2, loss=loss)
    assert str(refused.value) == case.said
    assert "\n" not in case.said
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == before


def test_a_factory_that_returns_three(written: Any) -> None:
    name, changes = written(Case("lambda: 3", "both(x, classes)", ""))
    fix = "give a class or a function that returns a torch.nn.Module"
    said = f"the function that makes the model returned 3, not a network: {fix}"
    module = importlib.import_module(name)
    with pytest.raises(eris.ModelError) as refused:
        eris.Federation(module.model, module.data, "eris", members=3)
    assert str(refused.value) == said
    with pytest.raises(eris.ModelError) as refused:
        eris.Federation(f"{name}:model", f"{name}:data", "eris", members=3, workers=1).run("folder")
    assert str(refused.value) == said
    assert _refused_up(changes, eris.ModelError) == said
    assert not Path("folder").exists()


def test_a_member_without_samples(written: Any) -> None:
    some = "def of(member): return x[: 9 * (member != 2)], classes[: 9 * (member != 2)]"
    name, changes = written(Case("linear(3)", "0", "", more=some))
    module = importlib.import_module(name)
    said = "member 2 has no samples [key=members, peer=2]: give it some, or leave it out"
    with pytest.raises(eris.DataError) as refused:
        eris.Federation(module.model, module.of, "eris", members=3)
    assert str(refused.value) == said
    named = [change.replace(f"{name}:data", f"{name}:of") for change in changes]
    with pytest.raises(eris.DataError) as refused:
        eris.Federation(changes=[*named, "workers=1"]).run("folder")
    assert str(refused.value) == said
    assert _refused_up(named, eris.DataError) == said
    assert not Path("folder").exists()


def test_members_have_samples_of_their_own_numbers(written: Any) -> None:
    """A sample's number is that of its member's own data."""
    name, _ = written(Case("linear(3)", "0", ""))
    module = importlib.import_module(name)

    def of(member: int) -> Any:
        return (module.changed(module.x, (17, 0), float("nan")) if member == 2 else module.x), module.classes

    with pytest.raises(eris.DataError, match=r"the inputs of sample 17 have a value that is nan \[sample=17, peer=2\]"):
        eris.Federation(module.model, of, "eris", members=3)


def test_at_home_the_same_is_said(written: Any) -> None:
    """What `eris join --task` builds is tried out too."""
    from eris.config import load_config
    from eris.tasks import task_at_home

    name, _ = written(CASES["classification: NaN at sample 17"])
    module = importlib.import_module(name)
    (train, test) = module.data()
    with pytest.raises(eris.DataError, match="the inputs of sample 17 have a value that is nan"):
        task_at_home(load_config(changes=["method=eris"]), module.model, train, test)


def test_worker_processes_say_the_same(written: Any, tmp_path: Path) -> None:
    case = CASES["classification: NaN at sample 17"]
    _, changes = written(case)
    words = [word for change in [*changes, "workers=2"] for word in ("--set", change)]
    said = command("run", *words, "--out", "folder", cwd=tmp_path, code=17)
    assert f"error: {case.said}" in said
    assert not (tmp_path / "folder").exists()


def test_a_federation_of_processes_says_the_same(written: Any, tmp_path: Path) -> None:
    case = CASES["regression: the wrong loss"]
    _, changes = written(case)
    words = [word for change in changes for word in ("--set", change)]
    said = command("up", *words, "--out", "folder", cwd=tmp_path, code=2)
    assert f"error: {case.said}" in said
    assert not (tmp_path / "folder").exists()


AT_HOME = """
from eris.tasks import task_at_home


def at_home(config, peer):
    own = changed(x, (17, 2), np.nan) if peer == 1 else x
    return task_at_home(config, linear(3), (own, classes))
"""


def test_a_task_at_home_names_the_peer_that_has_the_sample(written: Any, tmp_path: Path) -> None:
    name, _ = written(Case("linear(3)", "0", "", more=AT_HOME))
    module = importlib.import_module(name)
    said = f"the inputs of sample 17 have a value that is nan [sample=17, peer=1]: {FILL}"
    with pytest.raises(eris.DataError) as refused:
        eris.Federation(task=module.at_home, members=3, rounds=2).run(tmp_path / "folder")
    assert str(refused.value) == said
    assert not (tmp_path / "folder").exists()


@pytest.mark.slow
def test_a_federation_with_a_task_at_home_says_so_and_can_be_tried_again(written: Any, tmp_path: Path) -> None:
    name, _ = written(Case("linear(3)", "0", "", more=AT_HOME))
    words = ["up", "--task", f"{name}:at_home", "--peers", "3", "--set", "rounds=2", "--out", "folder"]
    said = command(*words, cwd=tmp_path, code=20)
    assert f"the inputs of sample 17 have a value that is nan [sample=17, peer=1]: {FILL}" in said
    (tmp_path / f"{name}.py").write_text((tmp_path / f"{name}.py").read_text().replace("peer == 1", "peer == 9"))
    assert "all 3 peers have the same model" in command(*words, cwd=tmp_path)
