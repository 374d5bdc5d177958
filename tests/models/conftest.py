import json

import pytest

TEXT = "good bad film actor plot story the a was is very not police hunt bike london race court judge said"
WORDS = TEXT.split()


def tiny_tokenizer(folder, *, separator):
    """A tokenizer of whole words, made on the spot."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    special = ["<pad>", "<unk>", "<end>", *(["<sep>"] if separator else [])]
    words = {word: number for number, word in enumerate([*special, *WORDS])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<end>"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, **names, **({"sep_token": "<sep>"} if separator else {})
    )
    tokenizer.save_pretrained(folder)
    return len(words)


@pytest.fixture
def classifier_folder(tmp_path):
    """A tiny DistilBERT: configuration and tokenizer, no weights."""
    folder = tmp_path / "distilbert"
    count = tiny_tokenizer(folder, separator=True)
    configuration = {
        "model_type": "distilbert",
        "vocab_size": count,
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 32,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(configuration))
    return folder


@pytest.fixture
def language_folder(tmp_path):
    """A tiny GPT-Neo: configuration and tokenizer, no weights and no separator token."""
    folder = tmp_path / "gpt-neo"
    count = tiny_tokenizer(folder, separator=False)
    configuration = {
        "model_type": "gpt_neo",
        "vocab_size": count,
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "attention_types": [[["global", "local"], 1]],
        "max_position_embeddings": 64,
        "window_size": 8,
        "bos_token_id": 2,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(configuration))
    return folder
