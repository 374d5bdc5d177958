"""Data as people have them: columns, samples by number, members with their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import eris
from eris.errors import DataError
from eris.local.own_examples import Columns, Items, JoinedExamples, split_sample
from eris.local.torch_examples import Chosen, DrawnSamples, HeldSamples, count_of, leaves, tensors_at

X = np.arange(40, dtype=np.float32).reshape(10, 4)
Y = np.arange(10) % 3


class Pairs(torch.utils.data.Dataset):
    targets = Y.tolist()

    def __len__(self):
        return 10

    def __getitem__(self, place):
        return torch.from_numpy(X[place]), int(Y[place])


class Hub:
    """What a `datasets.Dataset` does, as far as we ask: rows as dictionaries, columns by name."""

    column_names = ("input_ids", "attention_mask", "label")

    def __len__(self):
        return 10

    def __getitem__(self, key):
        if isinstance(key, str):
            return [self[place][key] for place in range(10)]
        return {"input_ids": [key, 1, 0], "attention_mask": [1, 1, 0], "label": key % 2}


def test_a_torch_dataset():
    inputs, targets = Items(Pairs()).take(np.array([3, 1]))
    assert np.array_equal(inputs, X[[3, 1]])
    assert targets.tolist() == [0, 1]
    assert targets.dtype == np.int64
    assert Items(Pairs()).labels.tolist() == Y.tolist()


def test_a_dataset_of_the_hub():
    inputs, targets = Items(Hub()).take(np.array([4, 5]))
    assert list(inputs) == ["input_ids", "attention_mask"]
    assert inputs["input_ids"].tolist() == [[4, 1, 0], [5, 1, 0]]
    assert targets.tolist() == [0, 1]
    assert Items(Hub()).labels.tolist() == [0, 1] * 5


def test_a_list_of_samples_and_what_puts_them_together():
    texts = [[1, 2], [3], [4, 5, 6]]

    def padded(samples):
        width = max(map(len, samples))
        return torch.tensor([sample + [0] * (width - len(sample)) for sample in samples])

    examples = Items(texts, padded)
    assert [leaf.shape for _, leaf in leaves(tensors_at(examples, np.array([0, 1])))] == [(2, 2), (2, 2)]
    assert [leaf.shape for _, leaf in leaves(tensors_at(examples, np.array([1, 2])))] == [(2, 3), (2, 3)]
    with pytest.raises(DataError, match="sample 1 has 1 values, but sample 0 has 2"):
        Items(texts).take(np.array([0, 1]))


def test_what_is_a_target():
    assert split_sample((1, 2)) == (1, 2)
    assert split_sample((1, 2, 3)) == ((1, 2), 3)
    assert split_sample([7]) == (7, 7)
    assert split_sample({"x": 1, "y": 2}) == ({"x": 1}, 2)
    assert split_sample({"x": 1, "z": 2}) == ({"x": 1, "z": 2}, {"x": 1, "z": 2})


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_a_text_is_its_own_target_but_for_its_padding(kind):
    ids, mask = kind([[5, 6, 0], [7, 8, 9]]), kind([[1, 1, 0], [1, 1, 1]])
    inputs, targets = split_sample({"input_ids": ids, "attention_mask": mask})
    assert inputs["input_ids"].tolist() == [[5, 6, 0], [7, 8, 9]]
    assert targets.tolist() == [[5, 6, -100], [7, 8, 9]]


def test_columns_know_their_classes():
    assert Columns({"x": X, "label": Y}).labels.tolist() == Y.tolist()
    assert Columns({"x": X, "y": X[:, 0]}).labels is None
    with pytest.raises(DataError, match="different lengths"):
        Columns({"x": X, "y": Y[:5]})


def test_splits_one_after_another():
    joined = JoinedExamples([Columns({"x": X[:3], "y": Y[:3]}), Columns({"x": X[3:], "y": Y[3:]})])
    assert len(joined) == 10
    for places in ([1, 2], [4, 9], [2, 3, 0]):
        inputs, targets = joined.take(np.array(places))
        assert np.array_equal(inputs["x"], X[places])
        assert targets.tolist() == Y[places].tolist()
    assert [joined.origin(place) for place in (2, 3, 9)] == [2, 0, 6]


def test_held_and_drawn_samples_are_the_same_batches():
    examples, places = Items(Pairs()), np.array([7, 2, 5, 0])
    held, drawn = HeldSamples(tensors_at(examples, places)), DrawnSamples(examples, places)
    assert len(held) == len(drawn) == 4
    for chosen in (None, np.array([2, 0]), torch.tensor([3])):
        for one, other in zip(leaves(held.at(chosen)), leaves(drawn.at(chosen)), strict=True):
            assert torch.equal(one[1], other[1])
    assert count_of(Chosen(examples, places).take(np.array([1, 2]))) == 2


def federation(data, **settings):
    return eris.Federation(
        lambda: torch.nn.Linear(4, 3),
        data,
        "eris",
        members=2,
        rounds=3,
        local={"lr": 0.01, "batch": 2},
        server={"min_contributors": 1},
        **settings,
    )


def test_the_same_samples_however_they_come(tmp_path):
    """Arrays, columns, a dataset and a list give the same bits."""
    columns = {"input": X, "labels": Y}
    listed = [{"input": row, "label": int(label)} for row, label in zip(X, Y, strict=True)]
    digests = set()
    for number, part in enumerate([(X, Y), columns, Pairs(), listed]):
        done = federation((part, part)).run(tmp_path / str(number), report=False)
        digests.add(done["eris"]["model_digest"])
    assert len(digests) == 1


def test_members_with_data_of_their_own(tmp_path):
    asked = []

    def own(member):
        asked.append(member)
        return (X[member::2], Y[member::2]), (X, Y)

    task = federation(own).task
    assert asked == [0, 1]
    assert [task.samples(member) for member in range(2)] == [4, 4]
    for member in range(2):
        assert set(task.examples(member)[0][:, 0].tolist()) <= set(X[member::2, 0].tolist())
    with pytest.raises(eris.ConfigError, match="every member has its own data"):
        federation(own, changes=["data.partition=dirichlet"])


def test_classes_of_a_dataset_can_be_divided_by():
    task = federation((Pairs(), None), changes=["data.partition=label-skew", "data.classes_per_member=1"]).task
    for member in range(2):
        assert len(set(Y[task.places(member)].tolist())) == 1


@pytest.mark.parametrize("form", [None, "torch", "numpy"])
def test_a_real_dataset_of_the_hugging_face_library(form, tmp_path):
    """The same bits as the arrays that it was made of, however it hands out its rows."""
    datasets = pytest.importorskip("datasets", reason="the datasets library is not installed here")

    def made(part):
        table = datasets.table.InMemoryTable.from_pydict({"input": X[part].tolist(), "label": Y[part].tolist()})
        return datasets.Dataset(table, fingerprint="rows").with_format(form)

    everything = slice(None)
    rows = federation((made(everything), made(everything))).run(tmp_path / "rows", report=False)
    arrays = federation(((X, Y), (X, Y))).run(tmp_path / "arrays", report=False)
    assert rows["eris"]["model_digest"] == arrays["eris"]["model_digest"]
