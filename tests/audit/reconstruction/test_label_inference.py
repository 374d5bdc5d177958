"""Labels from the last layer: exact for one sample, counted for a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eris.audit.reconstruction import LocalSteps, UpdateObservation, reconstruction_attack
from eris.audit.reconstruction.label_inference import infer_labels, open_labels
from eris.seeds import public_root
from tests.audit.reconstruction.small_world import difference, digits, observation_of, world
from tests.audit.reconstruction.test_rounds_together import rounds_of

SEED = public_root(2)


@pytest.mark.parametrize("aggregators", [1, 4, 16])
def test_one_sample_gives_its_label_away(aggregators):
    public, (pictures, labels) = world(), digits(20)
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        observation = observation_of(public, picture[None], [label], aggregators=aggregators, seed=number)
        assert infer_labels(observation, public, 1, seed=SEED).tolist() == [label]


@pytest.mark.parametrize("seen_part", ["weight", "bias"])
def test_either_part_of_the_last_layer_is_enough(seen_part):
    public, (pictures, labels) = world(), digits(10)
    place = public.spec.slices[f"fc2.{seen_part}"]
    for picture, label in zip(pictures, labels, strict=True):
        whole = observation_of(public, picture[None], [label])
        part = UpdateObservation(whole.model, whole.seen[place], whole.values[place])
        assert infer_labels(part, public, 1, seed=SEED).tolist() == [label]


def test_a_label_whose_row_is_hidden_is_none_of_those_that_show():
    public, (pictures, labels) = world(), digits(10)
    last = public.spec.slices["fc2.weight"].start
    for picture, label in zip(pictures, labels, strict=True):
        whole = observation_of(public, picture[None], [label])
        hidden = sorted({int(label), (int(label) + 1) % 10})
        rows = (whole.seen - last) // 32
        shown = (whole.seen >= last) & (rows < 10) & ~np.isin(rows, hidden)
        part = UpdateObservation(whole.model, whole.seen[shown], whole.values[shown])
        assert infer_labels(part, public, 1, seed=SEED)[0] in hidden


@pytest.mark.parametrize("aggregators", [1, 4])
def test_a_batch_gives_most_of_its_labels_away(aggregators):
    public, (pictures, labels) = world(), digits(80)
    right = 0
    for start in range(0, 80, 8):
        part = slice(start, start + 8)
        observation = observation_of(public, pictures[part], labels[part], aggregators=aggregators, seed=start)
        found = infer_labels(observation, public, 8, seed=SEED)
        assert len(found) == 8
        right += 8 - _missing(labels[part], found)
    assert right >= 0.85 * 80  # of a guess by chance, about half


def test_most_labels_show_after_several_steps():
    public, (pictures, labels) = world(), digits(8)
    local = LocalSteps(lr=0.1, steps=4, samples=8, batch=8)
    observation = observation_of(public, pictures, labels, local=local)
    assert (
        _missing(labels, infer_labels(observation, public, 8, seed=SEED)) <= 2
    )  # the steps blur it; by chance, about four


def test_of_several_rounds_the_first_counts():
    """The model comes to know the pictures, so a later round shows fewer labels than the first."""
    pictures, labels = digits(40)
    missing = {"together": 0, "last": 0}
    for start in range(0, 40, 4):
        part = slice(start, start + 4)
        together = rounds_of(pictures[part], labels[part], count=3, aggregators=1)
        first, last = together.earlier[0], replace(together, earlier=())
        found = infer_labels(together, world().at(together.model), 4, seed=SEED)
        assert np.array_equal(found, infer_labels(first, world().at(first.model), 4, seed=SEED))
        missing["together"] += _missing(labels[part], found)
        missing["last"] += _missing(labels[part], infer_labels(last, world().at(last.model), 4, seed=SEED))
    assert missing["together"] < missing["last"]


def _missing(true, found) -> int:
    return int(np.maximum(np.bincount(true, minlength=10) - np.bincount(found, minlength=10), 0).sum())


def test_every_label_that_is_open_is_tried():
    """Nothing is seen of the label's row, nor of two others: the match says which of the three it is."""
    public, (pictures, labels), recovered = world(), digits(3), []
    weight, bias = (public.spec.slices[f"fc2.{part}"] for part in ("weight", "bias"))
    for picture, label in zip(pictures, labels, strict=True):
        hidden = sorted({(int(label) - 2) % 10, (int(label) - 1) % 10, int(label)})
        whole = observation_of(public, picture[None], [label])
        shown = np.ones(public.n, bool)
        for row in hidden:
            shown[weight.start + 32 * row : weight.start + 32 * (row + 1)] = shown[bias.start + row] = False
        part = UpdateObservation(whole.model, whole.seen[shown], whole.values[shown])
        assert open_labels(part, public).tolist() == hidden
        assert open_labels(whole, public).tolist() == [label]
        found = reconstruction_attack("gauss-newton", restarts=2).recover(part, public, seed=SEED)
        assert found.labels.tolist() == [label]
        recovered.append(difference(picture, found.images) < 1e-6)
    assert any(recovered)  # a search may end in a local minimum
