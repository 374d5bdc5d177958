import numpy as np
import pytest
import torch

from eris.data import Dataset, Texts
from eris.errors import ConfigError, DataError
from eris.local.torch_work import LocalWork
from eris.models import model_by_name
from eris.models.assembly import divide, torch_task
from eris.models.text import tokenizer_of
from eris.models.tokens import IGNORED, LabelledTokens, SummaryTokens
from eris.seeds import private_root, public_root

pytest.importorskip("transformers")


def reviews(count=40):
    texts = [f"the film was {'good' if i % 2 else 'bad'} very {'plot' if i % 3 else 'actor'}" for i in range(count)]
    split = Texts(texts, labels=np.arange(count) % 2)
    return Dataset("synthetic-reviews", "made up", ("negative", "positive"), split, split)


def news(count=12):
    texts = ["police said the judge was in court" if i % 2 else "the bike race in london" for i in range(count)]
    summaries = ["judge court" if i % 2 else "bike race" for i in range(count)]
    split = Texts(texts, summaries=summaries)
    return Dataset("synthetic-news", "made up", (), split, split)


def trained(task, rounds):
    model, memory = task.initial(public_root(1)), task.memory(0)
    for round in range(rounds):
        model -= task.train(0, model, memory, round=round, seed=private_root(1, 0)).update
    return model


def test_a_classifier_learns(classifier_folder):
    data = reviews()
    task = torch_task(
        data,
        divide(data, 1, public_root(0)),
        "text-classifier",
        {"source": str(classifier_folder), "length": 12},
        work=LocalWork(optimizer="adamw", lr=0.01, batch=8, epochs=5),
    )
    start = task.evaluate(task.initial(public_root(1)))
    end = task.evaluate(trained(task, 2))
    assert end["accuracy"] == 1.0
    assert end["loss"] < start["loss"] / 2
    assert set(end) >= {"accuracy/0", "accuracy/1"}


def test_initial_weights_of_a_configuration_follow_the_seed(classifier_folder):
    data = reviews()
    task = torch_task(data, divide(data, 2, public_root(0)), "text-classifier", {"source": str(classifier_folder)})
    state = torch.get_rng_state()
    assert np.array_equal(task.initial(public_root(1)), task.initial(public_root(1)))
    assert not np.array_equal(task.initial(public_root(1)), task.initial(public_root(2)))
    assert torch.equal(torch.get_rng_state(), state)


def test_weights_in_the_folder_are_used(classifier_folder, tmp_path):
    first = model_by_name("text-classifier", source=str(classifier_folder))
    tokenizer_of(str(classifier_folder)).save_pretrained(tmp_path / "saved")
    first.network.save_pretrained(tmp_path / "saved")
    second = model_by_name("text-classifier", source=str(tmp_path / "saved"))
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])


def test_padding_does_not_change_a_verdict(classifier_folder):
    module = model_by_name("text-classifier", source=str(classifier_folder)).eval()
    short = torch.tensor([[5, 6, 7]])
    padded = torch.tensor([[5, 6, 7, 0, 0, 0]])
    torch.testing.assert_close(module(short), module(padded))


def test_parts_of_a_model_can_be_frozen(classifier_folder):
    data = reviews()
    options = {"source": str(classifier_folder), "freeze": "embeddings, layer.0", "length": 12}
    task = torch_task(data, divide(data, 2, public_root(0)), "text-classifier", options)
    frozen = [tensor.name for tensor in task.spec.tensors if tensor.role == "frozen"]
    assert "network.distilbert.embeddings.word_embeddings.weight" in frozen
    assert any("layer.0" in name for name in frozen)
    assert not any("layer.1" in name for name in frozen)
    with pytest.raises(ConfigError, match="nonsense"):
        model_by_name("text-classifier", source=str(classifier_folder), freeze="nonsense")


def test_a_language_model_learns_to_summarise(language_folder):
    data = news()
    task = torch_task(
        data,
        divide(data, 1, public_root(0)),
        "language-model",
        {"source": str(language_folder), "article": 10, "summary": 4, "generate": 4},
        work=LocalWork(optimizer="adam", lr=0.02, batch=4, epochs=10),
        test_samples=6,
    )
    start = task.evaluate(task.initial(public_root(1)))
    end = task.evaluate(trained(task, 3))
    assert end["loss"] < start["loss"] / 10
    assert start["rouge1"] < 0.5
    assert end["rouge1"] == 1.0
    assert end["accuracy"] == 1.0


def test_a_separator_is_added_to_the_vocabulary(language_folder):
    tokenizer = tokenizer_of(str(language_folder))
    module = model_by_name("language-model", source=str(language_folder))
    assert tokenizer.sep_token_id == len(tokenizer) - 1
    assert module.network.get_input_embeddings().num_embeddings == len(tokenizer)
    assert module(torch.tensor([[3, tokenizer.sep_token_id]])).shape == (1, 2, len(tokenizer))


def test_micro_batches_give_the_same_gradient(classifier_folder):
    data = reviews(20)
    shares = divide(data, 1, public_root(0))

    def update(**work):
        options = {"source": str(classifier_folder), "length": 12}
        task = torch_task(data, shares, "text-classifier", options, work=LocalWork(lr=0.1, **work))
        task._module().module.train = lambda mode=True: task._module().module  # no dropout
        return task.train(0, task.initial(public_root(1)), {}, round=0, seed=private_root(1, 0)).update

    np.testing.assert_allclose(update(micro_batch=3), update(), atol=1e-6)


def test_rows_for_a_language_model(language_folder):
    tokenizer = tokenizer_of(str(language_folder))
    split = Texts(["police said the judge", "bike"], summaries=["court", "race race race"])
    rows = SummaryTokens(split, tokenizer, article=3, summary=2)
    inputs, targets = rows.take(np.array([1, 0]))
    assert inputs.shape == targets.shape == (2, 7)
    words = tokenizer.convert_ids_to_tokens
    assert words(inputs[0])[:5] == ["bike", tokenizer.sep_token, "race", "race", "<end>"]
    assert words(inputs[1])[:6] == ["police", "said", "the", tokenizer.sep_token, "court", "<end>"]
    assert targets[0].tolist()[:2] == [IGNORED] * 2
    assert targets[0].tolist()[2:5] == inputs[0].tolist()[2:5]
    assert targets[0].tolist()[5:] == [IGNORED] * 2


def test_texts_are_cut_and_filled(classifier_folder):
    tokenizer = tokenizer_of(str(classifier_folder))
    split = Texts(["good film", "the plot was very very very bad"], labels=np.array([1, 0]))
    inputs, labels = LabelledTokens(split, tokenizer, 4).take(np.array([0, 1]))
    assert tokenizer.convert_ids_to_tokens(inputs[0]) == ["good", "film", "<pad>", "<pad>"]
    assert tokenizer.convert_ids_to_tokens(inputs[1]) == ["the", "plot", "was", "very"]
    assert labels.tolist() == [1, 0]


def test_what_is_missing_is_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("ERIS_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    data = reviews()
    shares = divide(data, 2, public_root(0))
    with pytest.raises(ConfigError, match="has no tokenizer"):
        torch_task(data, shares, "text-classifier")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        torch_task(data, shares, "text-classifier", {"source": str(tmp_path / "nowhere")})
    with pytest.raises(DataError, match="eris data get minilm-l6"):
        torch_task(data, shares, "minilm-l6")
    with pytest.raises(DataError, match="needs classes"):
        divide(news(), 2, public_root(0), kind="dirichlet")
