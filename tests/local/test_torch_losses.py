"""Losses by name against plain formulas, answers of several kinds, and metrics of one's own."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from eris.errors import ConfigError
from eris.local.torch_losses import loss_names, objective_of
from eris.local.torch_objective import logits_of, outputs_of


class Answers(nn.Module):
    """Answers with what it was given to answer with."""

    def __init__(self, answers):
        super().__init__()
        self.answers = answers

    def forward(self, x):
        return self.answers[: len(x)] if isinstance(self.answers, torch.Tensor) else self.answers


def scored(loss, answers, targets, **options):
    score = objective_of(loss, **options).score(Answers(answers), torch.zeros(len(targets), 1), targets)
    return {**score.means(), **score.by_class()}


def normal(*shape):
    return torch.from_numpy(np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32))


def test_regression():
    answers, targets = normal(5, 1), normal(5)
    figures = scored("mse", answers, targets)
    assert figures == pytest.approx(
        {"loss": ((answers[:, 0] - targets) ** 2).mean().item(), "mae": (answers[:, 0] - targets).abs().mean().item()}
    )
    assert scored("mse", answers, targets[:, None]) == pytest.approx(figures)
    assert scored("mse", answers[:, 0], targets[:, None]) == pytest.approx(figures)


def test_whole_numbers_are_numbers_to_a_regression():
    assert scored("mse", torch.tensor([1.5, 2.0]), torch.tensor([1, 2]))["mae"] == 0.25


def test_several_labels():
    logits = torch.tensor([[2.0, -1, 1], [1, 1, -1], [-1, -1, -1]])
    labels = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0]])
    figures = scored("bce", logits, labels)
    assert figures["loss"] == pytest.approx(
        functional.binary_cross_entropy_with_logits(logits, labels.float()).item(), rel=1e-6
    )
    assert figures["f1"] == pytest.approx(2 * 3 / (4 + 4))
    assert figures["f1_macro"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert "accuracy" not in figures  # with several labels nearly all are absent, and it would flatter


def test_one_label_has_an_accuracy():
    figures = scored("bce", torch.tensor([[3.0], [-1.0], [2.0]]), torch.tensor([1, 0, 0]))
    assert (figures["accuracy"], figures["f1"]) == pytest.approx((2 / 3, 2 / 3))


def test_labels_of_places_and_those_that_do_not_count():
    logits = normal(2, 3, 4)
    labels = torch.tensor([[0, 1, -100], [2, -100, -100]])
    flat, wanted = logits[labels != -100], labels[labels != -100]
    figures = scored("tokens", logits, labels)
    assert figures["loss"] == pytest.approx(functional.cross_entropy(flat, wanted).item(), rel=1e-6)
    assert figures["accuracy"] == pytest.approx((flat.argmax(1) == wanted).double().mean().item())


def test_the_next_token_and_its_perplexity():
    logits, tokens = normal(2, 4, 5), torch.tensor([[0, 1, 2, 3], [4, 3, 2, -100]])
    loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=-100).item()
    figures = scored("next-token", logits, tokens)
    assert figures["loss"] == pytest.approx(loss, rel=1e-6)
    assert figures["perplexity"] == pytest.approx(math.exp(loss), rel=1e-6)


def test_perplexity_of_parts_is_that_of_the_whole():
    objective, logits, tokens = objective_of("next-token"), normal(4, 4, 5), torch.arange(16).reshape(4, 4) % 5
    inputs = torch.zeros(4, 1)
    whole = objective.score(Answers(logits), inputs, tokens).means()
    parts = [objective.score(Answers(logits[p]), inputs[p], tokens[p]) for p in (slice(0, 1), slice(1, 4))]
    assert (parts[0] + parts[1]).means() == pytest.approx(whole)


def test_pictures_have_an_overlap():
    logits = torch.zeros(1, 2, 2, 2)
    logits[0, 1] = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])  # the upper half is said to be class 1
    figures = scored("cross-entropy", logits, torch.tensor([[[1, 0], [0, -100]]]))
    assert figures["accuracy"] == pytest.approx(2 / 3)
    assert figures["iou"] == pytest.approx((1 / 2 + 1 / 2) / 2)


@pytest.mark.parametrize("loss", [name for name in loss_names() if name != "model"])
def test_losses_of_single_samples_are_those_of_batches_of_one(loss):
    answers = {"cross-entropy": normal(4, 3), "mse": normal(4, 2), "bce": normal(4, 2)}.get(loss, normal(4, 3, 5))
    targets = {"cross-entropy": torch.tensor([0, 2, 1, 1]), "mse": normal(4, 2), "bce": (normal(4, 2) > 0).float()}
    wanted = targets.get(loss, torch.tensor([[0, 1, 2], [4, 3, -100], [1, 1, 1], [0, 0, 4]]))
    objective, module = objective_of(loss), Answers(answers)
    losses = objective.losses(module, torch.zeros(4, 1), wanted)
    single = [objective.mean(answers[k : k + 1], wanted[k : k + 1]) for k in range(4)]
    torch.testing.assert_close(losses, torch.stack(single))


def test_answers_of_the_transformers_library():
    logits, labels = normal(3, 4), torch.tensor([0, 1, 2])
    assert scored("cross-entropy", SimpleNamespace(logits=logits, loss=None), labels) == scored(
        "cross-entropy", logits, labels
    )
    for answer in ({"logits": logits}, (logits, None), [logits], {"anything": logits}):
        assert logits_of(answer) is logits
    with pytest.raises(ConfigError, match="returns a str, which is not a tensor and has no logits"):
        logits_of("logits")


class OwnMind(nn.Module):
    def forward(self, x, labels=None):
        return SimpleNamespace(loss=None if labels is None else ((x[:, 0] - labels) ** 2).mean(), logits=x)


def test_a_model_with_a_loss_of_its_own():
    x, y = normal(4, 1), normal(4)
    objective = objective_of("model", {"largest": lambda outputs, targets: outputs.logits.max()})
    figures = objective.score(OwnMind(), x, y).means()
    assert figures == pytest.approx({"loss": ((x[:, 0] - y) ** 2).mean().item(), "largest": x.max().item()})
    assert objective.score(OwnMind(), {"x": x}, y).means() == pytest.approx(figures)
    with pytest.raises(ConfigError, match="has no loss"):
        objective.mean(SimpleNamespace(logits=x), y)


def test_a_loss_and_metrics_of_ones_own():
    answers, targets = normal(5, 2), normal(5, 2)
    mine = {"worst": lambda a, t: (a - t).abs().max(), "share": lambda a, t: ((a > t).sum().item(), a.numel())}
    figures = scored(lambda a, t: (a - t).abs().mean(1), answers, targets, metrics=mine)
    assert figures == pytest.approx(
        {
            "loss": (answers - targets).abs().mean().item(),
            "worst": (answers - targets).abs().max().item(),
            "share": (answers > targets).double().mean().item(),
        }
    )
    with pytest.raises(ConfigError, match="metric bad returned a str"):
        scored("mse", answers, targets, metrics={"bad": lambda a, t: "good"})
    with pytest.raises(ConfigError, match="returned a float"):
        objective_of(lambda a, t: 1.0).mean(answers, targets)


def test_an_unknown_loss_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"no loss is named 'crossentropy'.*use one of cross-entropy, mse, bce"):
        objective_of("crossentropy")


class Named(nn.Module):
    def forward(self, left, right):
        return left - right


class Whole(nn.Module):
    def forward(self, batch):
        return batch["left"] + batch["right"]


def test_how_a_network_is_asked():
    left, right = normal(3), normal(3)
    by_name = {"right": right, "left": left}
    assert torch.equal(outputs_of(Named(), by_name), left - right)
    assert torch.equal(outputs_of(Named(), (left, right)), left - right)
    assert torch.equal(outputs_of(Whole(), by_name), left + right)
