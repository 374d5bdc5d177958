"""DP-SGD on text models: the paper's private methods, with noise on every sample's gradient."""

from __future__ import annotations

import json

import numpy as np
import pytest

import eris
from eris.data import Dataset, Texts
from eris.data.cache import manifest_of

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


@pytest.mark.slow
@pytest.mark.skipif(not all(map(manifest_of, ("imdb", "minilm-l6"))), reason="eris data get imdb, minilm-l6")
def test_the_private_methods_train_minilm_on_imdb(tmp_path):
    changes = ["data.samples=4", "data.test_samples=20", "data.validation=0", "members=3", "rounds=1"]
    for method in METHODS:
        federation = eris.Federation(
            {"name": "minilm-l6", "options": {"length": 48}}, "imdb", method,
            changes=changes, workers=1, local={"batch": 4, "lr": 0.05}, privacy=PRIVATE,
        )  # fmt: skip
        result = federation.run(tmp_path / method, report=False)
        assert 0 <= result[method]["final_accuracy"] <= 1
