"""DP-SGD on text models: the paper's private methods, with noise on every sample's gradient."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import eris
from eris.data import Dataset, Texts, load
from eris.data.cache import manifest_of
from eris.local.torch_losses import Classification
from eris.local.torch_module import FlatModule
from eris.models import model_by_name
from eris.models.text import tokenizer_of
from eris.models.tokens import LabelledTokens
from eris.privacy.torch_sample_gradients import _without_chance, clipped_sum, way_of

pytest.importorskip("transformers")

METHODS = ["fedavg-dpsgd", "soteriafl", "eris+ldp"]
LOCAL = {"batch": 4, "steps": 2, "lr": 0.05}
PRIVATE = {"unit": "sample", "epsilon": 20.0, "clip": 1.0}


def reviews():
    texts = [f"the film was {'good' if i % 2 else 'bad'} very {'plot' if i % 3 else 'actor'}" for i in range(48)]
    split = Texts(texts, labels=np.arange(48) % 2)
    return Dataset("synthetic-reviews", "made up", ("negative", "positive"), split, split)


def news():
    texts = ["police said the judge was in court" if i % 2 else "the bike race in london" for i in range(24)]
    split = Texts(texts, summaries=["judge court" if i % 2 else "bike race" for i in range(24)])
    return Dataset("synthetic-news", "made up", (), split, split)


def ran(model, data, folder, methods=METHODS, **settings):
    options = {"members": 3, "rounds": 2, "workers": 1, "local": LOCAL, "privacy": PRIVATE, **settings}
    eris.Federation({"name": model[0], "options": model[1]}, data, methods, **options).run(folder, report=False)
    return [json.loads((folder / method / "summary.json").read_text()) for method in methods]


def test_the_private_methods_train_a_classifier(classifier_folder, tmp_path):
    model = "text-classifier", {"source": str(classifier_folder), "length": 12}
    for summary in ran(model, lambda: reviews(), tmp_path / "run"):
        assert "for one sample" in json.dumps(summary, ensure_ascii=False)


def test_the_private_methods_train_a_language_model(language_folder, tmp_path):
    model = "language-model", {"source": str(language_folder), "article": 10, "summary": 4, "generate": 0}
    assert len(ran(model, lambda: news(), tmp_path / "run", ["eris+ldp", "fedavg-dpsgd"])) == 2


def adapted(peft, head):
    """A small causal language model whose base is always the same, with LoRA on it."""
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(7)
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        settings = transformers.LlamaConfig(vocab_size=30, max_position_embeddings=16, **sizes)
        base = transformers.LlamaForCausalLM(settings)
    more = {"modules_to_save": ["lm_head"]} if head else {}
    return peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], **more))


@pytest.mark.parametrize("head", [False, True])
def test_an_adapter_is_trained_with_noise_on_every_sample(head, tmp_path):
    peft = pytest.importorskip("peft")
    words = np.random.default_rng(0).integers(1, 30, size=(48, 10))
    columns = {"input_ids": words, "attention_mask": np.ones_like(words)}
    federation = eris.Federation(
        lambda: adapted(peft, head), (columns, columns), "eris+ldp", loss="next-token", members=3, rounds=2,
        workers=1, local=LOCAL, privacy={**PRIVATE, "per_sample": "auto" if head else "hooks"},
    )  # fmt: skip
    trained = {tensor.name for tensor in federation.task.spec.tensors if tensor.role == "trainable"}
    assert all("lora_" in name or "modules_to_save" in name for name in trained)
    federation.run(tmp_path / "run", report=False)
    assert "for one sample" in (tmp_path / "run" / "summary.json").read_text(encoding="utf-8")


FETCHED = pytest.mark.skipif(not all(map(manifest_of, ("imdb", "minilm-l6"))), reason="eris data get imdb, minilm-l6")


@pytest.mark.slow
@FETCHED
@pytest.mark.parametrize("way", ["ghost", "hooks"])
def test_minilm_is_clipped_as_by_the_loop(way):
    flat = FlatModule(model_by_name("minilm-l6", classes=2))
    assert way_of(flat, Classification()) == "ghost"
    rows = LabelledTokens(load("imdb").train, tokenizer_of("minilm-l6"), 48).take(np.array([0, 20_000, 5]))
    batch = torch.from_numpy(rows[0]), torch.from_numpy(rows[1])
    with _without_chance(flat.module):
        wanted, found = (clipped_sum(each, flat, Classification(), batch, 1.0) for each in ("loop", way))
    torch.testing.assert_close(found.norms, wanted.norms, rtol=1e-5, atol=0)
    torch.testing.assert_close(found.total, wanted.total, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(1500)  # a model of 22.7 million values, made and trained several times
@FETCHED
@pytest.mark.parametrize("method", METHODS)
def test_the_private_methods_train_minilm_on_imdb(method, tmp_path):
    changes = ["data.samples=4", "data.test_samples=20", "data.validation=0", "members=3", "rounds=1"]
    federation = eris.Federation(
        {"name": "minilm-l6", "options": {"length": 48}}, "imdb", method,
        changes=changes, workers=1, local={"batch": 4, "lr": 0.05}, privacy=PRIVATE,
    )  # fmt: skip
    result = federation.run(tmp_path / method, report=False)
    assert 0 <= result[method]["final_accuracy"] <= 1
