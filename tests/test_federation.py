from __future__ import annotations

import numpy as np
import pytest

import eris
from eris.errors import ConfigError, DataError, InputError, MissingExtra
from eris.events import RoundEnded
from eris.local.numpy_task import QuadraticTask
from eris.models import model_by_name
from eris.simulate.run import resume


def test_names_are_enough(tmp_path):
    federation = eris.Federation("lenet5", "mnist-sample", "eris", members=3, changes=["workers=1"])
    assert repr(federation) == "Federation(3 members, eris, lenet5 on mnist-sample)"


def test_a_model_and_arrays_of_ones_own(tmp_path):
    torch = pytest.importorskip("torch")
    seed = eris.public_root(1)
    inputs = (2 * seed.child("x").uniforms(60 * 4) - 1).reshape(60, 4).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(np.int64)
    federation = eris.Federation(
        lambda: torch.nn.Linear(4, 2),
        ((inputs, labels), (inputs, labels)),
        ["fedavg", "eris"],
        members=3,
        rounds=25,
        local={"lr": 0.5, "batch": 5},
    )
    heard = []
    result = federation.run(tmp_path / "run", listeners=[heard.append])
    assert result.finished
    assert result["eris"]["model_digest"] == result["fedavg"]["model_digest"]
    assert result["eris"]["final_accuracy"] > 0.9
    assert sum(isinstance(event, RoundEnded) for event in heard) == 50


def test_what_is_not_two_pairs_of_arrays_is_refused(halves):
    model, inputs, labels, _ = halves
    for data in ((inputs, labels), ((inputs, labels),), inputs, ((inputs,), (inputs,))):
        with pytest.raises(InputError, match="two pairs of arrays"):
            eris.Federation(model, data)
    for odd, words in (([[1.0, 2.0], [3.0]], "sample 1 has 1 values"), (["a", "b"], "holds text, not numbers")):
        with pytest.raises(DataError, match=words):
            eris.Federation(model, ((odd, [0, 1]), (inputs, labels)))


def test_a_network_in_the_place_of_what_makes_it_is_refused(halves):
    model, inputs, labels, _ = halves
    with pytest.raises(InputError, match=r"give a function that makes it: lambda: Linear"):
        eris.Federation(model(), ((inputs, labels), (inputs, labels)))


def test_lists_and_float64_are_trained_as_float32(halves, tmp_path):
    model, inputs, labels, _ = halves
    results = []
    for place, given in enumerate([inputs, inputs.astype(np.float64), inputs.tolist()]):
        pair = (given, labels.astype(np.int32) if place else labels)
        federation = eris.Federation(model, (pair, pair), "eris", members=3, rounds=2)
        results.append(federation.run(tmp_path / str(place), report=False)["eris"]["model_digest"])
    assert len(set(results)) == 1


def test_a_method_that_was_not_run_is_named(tmp_path):
    result = eris.Federation(data="synthetic-clouds", members=3, rounds=1, workers=1).run(tmp_path / "a", report=False)
    with pytest.raises(KeyError, match="fedavg was not run, only eris"):
        result["fedavg"]


@pytest.mark.parametrize("own", ["task", "arrays", "model"])
def test_a_run_with_objects_of_its_own_is_gone_on_with_in_python(own, halves, tmp_path):
    model, inputs, labels, _ = halves
    if own == "task":
        given = {"task": QuadraticTask.synthetic(4, 30, eris.public_root(2))}
    elif own == "arrays":
        given = {"model": model, "data": ((inputs, labels), (inputs, labels))}
    else:
        given = {"model": lambda: model_by_name("mlp", hidden=(2,)), "local": {"steps": 1}}
    eris.Federation(**given, members=4, rounds=1).run(tmp_path / "run", report=False)
    with pytest.raises(ConfigError, match=r"resume it from Python, Federation\(…\).resume"):
        resume(tmp_path / "run")
    assert eris.Federation(**given, members=4, rounds=1).resume(tmp_path / "run", report=False).finished


def test_a_task_of_ones_own(tmp_path):
    task = QuadraticTask.synthetic(4, 30, eris.public_root(2))
    result = eris.Federation(task=task, method="eris+dsc", members=4, rounds=5).run(tmp_path / "run")
    assert result.summaries[0]["rounds"] == 5
    assert eris.Federation(task=task, method="eris+dsc", members=4, rounds=5).resume(tmp_path / "run").finished


@pytest.fixture
def halves():
    """Sixty samples of four hospitals, and a linear model for them."""
    torch = pytest.importorskip("torch")
    inputs = (2 * eris.public_root(1).uniforms(60 * 4) - 1).reshape(60, 4).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(np.int64)
    hospitals = np.array(["north", "east", "south", "west"])[np.arange(60) % 4]
    return lambda: torch.nn.Linear(4, 2), inputs, labels, hospitals


def test_ids_of_ones_own_stay_whole(halves):
    model, inputs, labels, hospitals = halves
    natural = {"members": 4, "changes": ["data.partition=natural", "data.validation=0"]}
    federation = eris.Federation(model, ((inputs, labels, hospitals), (inputs, labels)), "eris", **natural)
    sets = [{str(hospitals[place]) for place in part} for part in federation.task._places]
    assert sorted(sets, key=min) == [{"east"}, {"north"}, {"south"}, {"west"}]
    with pytest.raises(DataError, match="inputs, labels, ids") as refused:
        eris.Federation(model, ((inputs, labels), (inputs, labels)), "eris", **natural)
    assert refused.value.where["key"] == "data.partition"
    with pytest.raises(DataError, match="different lengths"):
        eris.Federation(model, ((inputs, labels, hospitals[:-1]), (inputs, labels)), "eris", **natural)


def test_arrays_of_ones_own_are_tested_on_as_many_as_asked(halves):
    model, inputs, labels, _ = halves
    data = ((inputs, labels), (inputs, labels))
    few = eris.Federation(model, data, "eris", members=3, changes=["data.test_samples=5"])
    assert (len(few.task._test), len(eris.Federation(model, data, "eris", members=3).task._test)) == (5, 60)


def test_a_natural_partition_of_a_named_set_uses_its_ids(halves, monkeypatch):
    torch = pytest.importorskip("torch")
    import eris.data
    from eris.data import Dataset, Images, mnist_sample

    digits = mnist_sample()
    train = Images(digits.train.pixels, digits.train.labels, (0.1,), (0.3,), np.arange(6000) % 5)
    monkeypatch.setattr(eris.data, "load", lambda name: Dataset("mnist-sample", "here", (), train, digits.test))
    model = lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))  # noqa: E731
    federation = eris.Federation(model, "mnist-sample", "eris", members=5, changes=["data.partition=natural"])
    assert [set((part % 5).tolist()) for part in federation.task._places] == [
        {int(part[0] % 5)} for part in federation.task._places
    ]


def test_a_run_from_python_has_a_report_too(tmp_path, monkeypatch):
    task = QuadraticTask.synthetic(4, 30, eris.public_root(2))
    federation = eris.Federation(task=task, members=4, rounds=2)
    federation.run(tmp_path / "run")
    assert "<h1>" in (tmp_path / "run" / "report.html").read_text()
    federation.run(tmp_path / "quick", report=False)
    assert not (tmp_path / "quick" / "report.html").exists()

    def missing(directory):
        raise MissingExtra("matplotlib", "report", "a plot")

    monkeypatch.setattr("eris.report.write_report", missing)
    with pytest.warns(UserWarning, match="report.html was not written"):
        assert federation.run(tmp_path / "again").finished


@pytest.mark.parametrize("change", ["data.samples=5", "model.name=mlp", "local.lr=0.3"])
def test_a_task_of_ones_own_hears_of_no_other_settings(change):
    task = QuadraticTask.synthetic(4, 30, eris.public_root(2))
    with pytest.raises(ConfigError, match="ready-made") as refused:
        eris.Federation(task=task, members=4, changes=[change])
    assert refused.value.where["key"] == change.partition("=")[0]


def test_mistakes_are_those_of_a_configuration():
    with pytest.raises(ConfigError, match="did you mean rounds"):
        eris.Federation(method="eris", round=3)


def test_a_model_without_data_of_ones_own_needs_no_names(tmp_path):
    torch = pytest.importorskip("torch")
    federation = eris.Federation(
        lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)), "mnist-sample", "eris",
        members=3, rounds=1, changes=["data.samples=20"], local={"steps": 1},
    )  # fmt: skip
    assert federation.run(tmp_path / "run").finished
