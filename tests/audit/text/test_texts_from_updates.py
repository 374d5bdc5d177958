"""Words out of gradients: what has to be found is found, and where nothing is to be had nothing is claimed."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from eris.audit.text.pursuit import pursued_tokens
from eris.audit.text.relu_layer import recovered_inputs
from eris.audit.text.row_space import degrees_of_freedom, row_space
from eris.audit.text.run import TextPlan, audit_text
from eris.audit.text.search import TokenSearch
from eris.audit.text.span import SeenGradient, tokens_in_span
from eris.audit.text.victim import TinyTransformer, flat_gradient, spans_of, victim_by_name
from eris.errors import ConfigError
from eris.seeds import public_root
from eris.shards.plan import contiguous, scattered


@pytest.fixture(scope="module")
def victim():
    return victim_by_name("tiny")


def drawn(victim, length, number=0):
    return public_root(7).child("text", number).integers(victim.vocabulary, count=length)


def seen_of(victim, text, coordinates=None):
    gradient = flat_gradient(victim, text)
    seen = np.ones(gradient.size, bool)
    if coordinates is not None:
        seen[:] = False
        seen[coordinates(gradient.size)] = True
    return SeenGradient(gradient, seen)


@pytest.mark.parametrize("length", [1, 8, 40])
def test_a_server_reads_every_word(victim, length):
    text = drawn(victim, length)
    assert np.array_equal(tokens_in_span(victim, seen_of(victim, text), length), text)


def test_a_shard_of_whole_rows_is_enough_and_too_few_rows_are_not(victim):
    first = spans_of(victim.trained())["layers.0.query.weight"].start
    text = drawn(victim, 8)

    def rows(count):
        return lambda _: np.arange(first + 64 * 64, first + 64 * 64 + 64 * count)  # of the keys' weight

    assert np.array_equal(tokens_in_span(victim, seen_of(victim, text, rows(8)), 8), text)
    assert (tokens_in_span(victim, seen_of(victim, text, rows(4)), 8) == text).mean() < 1


def test_scattered_entries_are_enough(victim):
    text = drawn(victim, 8)
    seen = seen_of(victim, text, lambda n: scattered(n, 8, public_root(1)).coordinates(0))
    assert (tokens_in_span(victim, seen, 8) == text).mean() > 0.8


def test_noise_hides_the_words(victim):
    text = drawn(victim, 8)
    seen = seen_of(victim, text)
    noise = np.random.default_rng(0).standard_normal(seen.values.size).astype(np.float32)
    loud = SeenGradient(seen.values + 0.1 * np.linalg.norm(seen.values) * noise, seen.seen)
    assert (tokens_in_span(victim, loud, 8) == text).mean() < 0.3


def test_what_nobody_saw_says_nothing(victim):
    text = drawn(victim, 8)
    nothing = seen_of(victim, text, lambda n: np.arange(n - 10, n))
    assert tokens_in_span(victim, nothing, 8) is None


def test_adapters_show_the_words_too():
    adapted = victim_by_name("tiny", lora=16)
    assert {name.rsplit(".", 1)[1] for name in adapted.trained()} == {"down", "up"}
    found = []
    for number in range(3):
        text = drawn(adapted, 6, number)
        found.append((tokens_in_span(adapted, seen_of(adapted, text), 6) == text).mean())
    assert np.mean(found) > 0.9
    # As many tokens as the adapter's rank fill its whole space: nothing can be told apart any more.
    assert tokens_in_span(adapted, seen_of(adapted, drawn(adapted, 16)), 16) is None


def test_a_search_finds_words_from_a_shard():
    torch.manual_seed(1)
    small = TinyTransformer(vocabulary=60, width=32, heads=2, layers=1, context=8)
    text = drawn(small, 4)
    seen = seen_of(small, text, lambda n: scattered(n, 4, public_root(2)).coordinates(1))
    found = TokenSearch(steps=120).tokens(small, seen, 4, public_root(3))
    assert (found == text).mean() >= 0.75


def test_a_row_space_is_completed_from_twice_its_freedom():
    generator = np.random.default_rng(3)
    whole = generator.standard_normal((256, 8)) @ generator.standard_normal((8, 256))
    mask = generator.random(whole.shape) < 1 / 8
    assert mask.sum() > 2 * degrees_of_freedom(256, 256, 8)
    basis = row_space(np.where(mask, whole, 0), mask, rank=8)
    assert np.abs(whole - whole @ basis.T @ basis).max() < 1e-4
    assert row_space(np.where(mask, whole, 0), mask, rank=40) is None  # fewer entries than freedom


def test_pursuit_needs_no_whole_space(victim):
    text = drawn(victim, 4)
    seen = seen_of(victim, text)
    place = spans_of(victim.trained())["layers.0.value.weight"]
    values, mask = seen.matrix(place, (64, 64))
    mask &= np.random.default_rng(1).random(mask.shape) < 0.15
    assert mask.sum() < 2.5 * degrees_of_freedom(64, 64, 4)
    assert (pursued_tokens(victim, np.where(mask, values, 0), mask, 4) == text).mean() >= 0.75


@pytest.mark.parametrize("batch", [1, 2, 4, 8])
def test_a_relu_layer_gives_its_whole_batch_away(batch):
    generator = np.random.default_rng(batch)
    torch.manual_seed(batch)
    inputs = generator.standard_normal((batch, 40))
    layer, head = torch.nn.Linear(40, 120).double(), torch.nn.Linear(120, 5).double()
    targets = torch.from_numpy(generator.integers(5, size=batch))
    torch.nn.functional.cross_entropy(head(torch.relu(layer(torch.from_numpy(inputs)))), targets).backward()
    half = slice(0, 60)  # a shard of whole rows
    for part in (slice(None), half):
        weight, bias = layer.weight.grad.numpy()[part], layer.bias.grad.numpy()[part]
        found = recovered_inputs(weight, bias, batch, public_root(1))
        assert found is not None
        assert max(np.abs(found - row).max(axis=1).min() for row in inputs) < 1e-6


def test_the_map_has_every_point_once(tmp_path):
    plan = TextPlan(aggregators=(1, 4), tokens=(4,), plans=("contiguous", "random"), keeps=(1.0, 0.5), texts=2)
    found = audit_text(plan, tmp_path)
    points = [(one["aggregators"], one["plan"], one["keep"]) for one in found]
    assert points == [
        (1, "server", 1.0), (1, "server", 0.5), (4, "contiguous", 1.0), (4, "contiguous", 0.5), (4, "random", 1.0),
        (4, "random", 0.5),
    ]  # fmt: skip
    assert found[0]["recovered"]["value"] == found[0]["exact"] == 1.0
    assert found[0]["chance"] == pytest.approx(1 / 500)
    assert found[3]["sees"] == pytest.approx(0.125, abs=0.01)
    assert json.loads((tmp_path / "text.json").read_text())["results"] == found
    assert contiguous(10, 2).shards == 2


def test_what_cannot_be_is_refused(invoke):
    for words, match in (
        (("--attack", "guess"), "attack on texts"),
        (("--plan", "wild"), "no plan"),
        (("--tokens", "four"), "not a list of numbers"),
        (("--keep", "2"), "out of range"),
    ):
        with pytest.raises(ConfigError, match=match):
            invoke("audit", "text", *words)


def test_the_command_ends_with_a_table_and_a_file(invoke, tmp_path):
    done = invoke("audit", "text", "--aggregators", "1,8", "--tokens", "4", "--texts", "2", "--out", "here")
    assert done.exit_code == 0
    for words in ("contiguous", "Chance: 0.20%", "here/text.json"):
        assert words in done.output
    assert (tmp_path / "here" / "text.json").exists()
