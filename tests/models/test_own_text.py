"""Models of the transformers library, given as they are."""

from __future__ import annotations

import numpy as np
import pytest

import eris
from eris.errors import DataError
from eris.tasks import build_task

transformers = pytest.importorskip("transformers")

WORDS = np.random.default_rng(0).integers(1, 50, size=(60, 12))
MASK = np.ones_like(WORDS)
MASK[:, 10:] = 0
TEXTS = {"input_ids": WORDS, "attention_mask": MASK}


def encoder(head):
    sizes = {"vocab_size": 50, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 32}
    return lambda: getattr(transformers, f"DistilBertFor{head}")(transformers.DistilBertConfig(**sizes, num_labels=2))


def decoder():
    sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=1))


def ran(model, columns, folder, **settings):
    local = {"optimizer": "adamw", "lr": 0.01, "steps": 4, "batch": 10}
    federation = eris.Federation(model, (columns, columns), "eris", members=3, rounds=2, local=local, **settings)
    federation.run(folder, report=False)
    return federation.task.evaluate(_final(folder, federation.task.spec))


def _final(folder, spec):
    from safetensors.numpy import load_file

    return spec.flatten(load_file(folder / "model.safetensors"))


def test_texts_are_classified(tmp_path):
    labelled = {**TEXTS, "labels": (WORDS[:, 0] > 25).astype(np.int64)}
    figures = ran(encoder("SequenceClassification"), labelled, tmp_path / "own")
    assert 0 <= figures["accuracy"] <= 1
    theirs = ran(encoder("SequenceClassification"), labelled, tmp_path / "theirs", loss="model")
    assert theirs["loss"] == pytest.approx(figures["loss"], rel=1e-5)
    assert set(theirs) == {"loss", "validation_loss"}  # no figure that we did not work out


def test_words_are_tagged(tmp_path):
    tags = {**TEXTS, "labels": np.where(MASK == 0, -100, WORDS % 2)}
    figures = ran(encoder("TokenClassification"), tags, tmp_path / "run", loss="tokens")
    assert figures["loss"] < 0.7
    assert set(figures) == {"loss", "accuracy", "validation_loss", "validation_accuracy"}


def test_a_language_model_reads_its_own_tokens(tmp_path):
    figures = ran(decoder, TEXTS, tmp_path / "run", loss="next-token")
    assert figures["perplexity"] == pytest.approx(np.exp(figures["loss"]), rel=1e-6)
    assert 10 < figures["perplexity"] < 60


def test_texts_that_are_too_long_are_refused_before_the_first_round():
    long = {name: np.tile(column, (1, 4)) for name, column in TEXTS.items()}
    with pytest.raises(DataError) as refused:
        eris.Federation(decoder, (long, long), "eris", members=3, loss="next-token")
    assert str(refused.value) == (
        "a sample has 48 tokens, but the model has only 32 positions: truncate samples to 32 tokens (for a built-in "
        "text data set: model.options.length = 32)"
    )


def test_tokens_beyond_the_vocabulary_are_refused_with_their_sample():
    words = WORDS.copy()
    words[17, 4] = 77
    labelled = {"input_ids": words, "attention_mask": MASK, "labels": np.zeros(60, np.int64)}
    with pytest.raises(DataError, match=r"a token of sample 17 is 77, not 0 … 49: the embedding has 50 rows"):
        eris.Federation(encoder("SequenceClassification"), (labelled, labelled), "eris", members=3)


def test_a_classifier_by_name_says_which_option_is_too_long(classifier_folder, monkeypatch):
    import eris.data
    from eris.config import load_config
    from eris.data import Dataset, Texts

    split = Texts(["good film", "bad plot"] * 6, np.array([0, 1] * 6))
    monkeypatch.setattr(eris.data, "load", lambda name: Dataset("imdb", "here", ("bad", "good"), split, split))
    options = f'model.options={{source = "{classifier_folder}"}}'
    config = load_config(changes=["method=eris", "members=3", "data.name=imdb", "model.name=text-classifier", options])
    with pytest.raises(
        DataError, match=r"a sample has 128 tokens, but the model has only 64 positions.*model.options.length = 64"
    ):
        build_task(config.model_dump(mode="json", exclude_none=True))
