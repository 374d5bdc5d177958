"""The search on LoRA adapters: words come out of what was seen of A and B, and of nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from eris.audit.text.run import TextPlan, audit_text
from eris.audit.text.search import TokenSearch
from eris.audit.text.span import SeenGradient, tokens_in_span
from eris.audit.text.victim import (
    Encoder,
    TinyTransformer,
    flat_gradient,
    gradients_of_each,
    spans_of,
    train_before,
)
from eris.models import text as text_models
from eris.seeds import public_root
from eris.shards.plan import scattered

LENGTH, TEXTS = 4, 3
SEARCH = TokenSearch(steps=40, sweeps=2)


def adapted():
    torch.manual_seed(1)
    return TinyTransformer(vocabulary=200, width=32, heads=2, layers=1, context=16, lora=8)


@pytest.fixture(scope="module")
def victim():
    return adapted()


def text_of(number):
    return public_root(11).child("text", number).integers(200, count=LENGTH)


def everything(values):
    return np.ones(values.size, bool)


def shard(values, *, shards=4, number=1):
    seen = np.zeros(values.size, bool)
    seen[scattered(values.size, shards, public_root(2)).coordinates(number)] = True
    return seen


def recovered(victim, seen_of, change=lambda values: values):
    """Return the mean share of tokens found at their places, from changed values of several texts."""
    shares = []
    for number in range(TEXTS):
        text, values = text_of(number), flat_gradient(victim, text_of(number))
        found = SEARCH.tokens(victim, SeenGradient(change(values), seen_of(values)), LENGTH, public_root(3))
        shares.append((found == text).mean())
    return np.mean(shares)


def test_a_server_reads_the_words(victim):
    assert recovered(victim, everything) > 0.8


def test_one_scattered_shard_of_four_is_enough_for_the_search_and_not_for_the_span_check(victim):
    assert recovered(victim, shard) > 0.8
    values = flat_gradient(victim, text_of(0))
    assert tokens_in_span(victim, SeenGradient(values, shard(values)), LENGTH) is None


def test_what_was_not_seen_is_not_used(victim):
    def hidden_spoiled(values):
        return np.where(shard(values), values, np.float32(1e3))

    text = text_of(0)
    values = flat_gradient(victim, text)
    plain = SEARCH.tokens(victim, SeenGradient(values, shard(values)), LENGTH, public_root(3))
    spoiled = SEARCH.tokens(victim, SeenGradient(hidden_spoiled(values), shard(values)), LENGTH, public_root(3))
    assert np.array_equal(plain, spoiled)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda values: np.roll(values, 5), id="values at wrong coordinates"),
        pytest.param(
            lambda values: np.random.default_rng(0).standard_normal(values.size, dtype=np.float32), id="noise alone"
        ),
    ],
)
def test_the_wrong_values_give_no_words_away(victim, change):
    assert (
        recovered(victim, everything, change) <= 0.15
    )  # one token of twelve; two by chance: less than once in 500 times


def test_another_text_is_found_from_another_texts_update(victim):
    values = flat_gradient(victim, text_of(1))
    found = SEARCH.tokens(victim, SeenGradient(values, everything(values)), LENGTH, public_root(3))
    assert (found == text_of(0)).mean() <= 0.2
    assert (found == text_of(1)).mean() >= 0.8


def test_in_a_first_round_the_down_half_says_nothing_and_later_it_does(victim):
    def down_only(victim, values):
        seen = np.zeros(values.size, bool)
        for name, place in spans_of(victim.trained()).items():
            seen[place] = name.endswith(".down")
        return SeenGradient(values, seen)

    text = text_of(0)
    first = down_only(victim, flat_gradient(victim, text))
    assert not first.values[first.seen].any()
    assert SEARCH.tokens(victim, first, LENGTH, public_root(3)) is None

    later = adapted()
    train_before(later, 20, public_root(5))
    second = down_only(later, flat_gradient(later, text))
    assert second.values[second.seen].any()
    assert (SEARCH.tokens(later, second, LENGTH, public_root(3)) == text).mean() >= 0.8


def test_gradients_taken_together_are_those_taken_alone(victim):
    texts = np.stack([text_of(number) for number in range(3)])
    tokens = torch.from_numpy(texts)
    targets = torch.nn.functional.one_hot(tokens, 200).float()
    together = gradients_of_each(victim, victim.table.detach()[tokens], targets)
    for number, text in enumerate(texts):
        alone = flat_gradient(victim, text)
        np.testing.assert_allclose(
            np.concatenate([part[number].numpy().ravel() for part in together]), alone, atol=1e-6
        )


def test_the_map_searches_adapters_of_a_later_round(tmp_path):
    plan = TextPlan(lora=8, attacks=("search",), aggregators=(1,), tokens=(3,), texts=2, steps_before=5)
    (found,) = audit_text(plan, tmp_path)
    assert found["recovered"]["value"] >= 0.8
    assert found["chance"] == pytest.approx(1 / 500)


@pytest.fixture
def encoder(monkeypatch):
    """An encoder with adapters by PEFT, fresh and small, in the place of MiniLM."""
    pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(2)
    settings = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=16, initializer_range=0.2, num_labels=2,
    )  # fmt: skip
    network = torch.nn.Module()
    network.network = transformers.BertForSequenceClassification(settings)
    monkeypatch.setattr(text_models, "TextClassifier", lambda *, source: network)
    return Encoder("small", lora=8)


def test_adapters_that_peft_made_give_words_away_to_both_attacks(encoder):
    assert all(".lora_A." in name or ".lora_B." in name for name in encoder.trained())
    text = public_root(4).integers(100, count=3)
    values = flat_gradient(encoder, text)
    seen = SeenGradient(values, everything(values))
    assert np.array_equal(tokens_in_span(encoder, seen, 3), text)
    assert (SEARCH.tokens(encoder, seen, 3, public_root(3)) == text).mean() > 0.6
