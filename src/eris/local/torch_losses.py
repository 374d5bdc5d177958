"""The losses that have a name, each with the figures that go with it.

| name | model's outputs | targets | figures besides the loss |
|---|---|---|---|
| ``cross-entropy`` | N × classes (× places) | class numbers N (× places) | accuracy, by class too; pictures: `iou` |
| ``mse`` | N, N × 1 or N × values | numbers of that shape | `mae`, the mean absolute error |
| ``bce`` | N, N × 1 or N × labels | 0 or 1 of that shape | `f1`; several labels: `f1_macro`; one: accuracy |
| ``tokens`` | N × places × classes | class numbers N × places | accuracy |
| ``next-token`` | N × places × vocabulary | the tokens themselves N × places | accuracy, `perplexity` |
| ``model`` | has a `.loss` | passed to the network as `labels` | none |
| a function | whatever it takes | whatever it takes | none |

The label −100 is ignored everywhere. To report anything else, write your own metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.errors import ConfigError
from eris.local.torch_examples import Nest, leaves
from eris.local.torch_objective import (
    IGNORED,
    Limits,
    Metric,
    Misfit,
    Score,
    Sums,
    Supervised,
    accuracy_of,
    logits_of,
    outputs_of,
)

__all__ = [
    "Classification",
    "ModelLoss",
    "MultiLabel",
    "NextToken",
    "OwnLoss",
    "Regression",
    "TokenClassification",
    "loss_names",
    "objective_of",
]

_SAY = "set local.loss = "


class Classification(Supervised):
    """Cross-entropy of logits (N × classes, or N × classes × places) with class numbers."""

    def mean(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        return functional.cross_entropy(logits_of(outputs), targets)

    def losses(self, module: nn.Module, inputs: Nest, targets: Tensor) -> Tensor:
        """Return the cross-entropy of each sample."""
        return _by_sample(functional.cross_entropy(logits_of(outputs_of(module, inputs)), targets, reduction="none"))

    def count(self, outputs: Any, targets: Tensor) -> Score:
        """Return summed cross-entropy and, for each class, how many were right."""
        logits = logits_of(outputs)
        losses = functional.cross_entropy(logits, targets, reduction="none")
        classes, guesses = logits.shape[1], logits.argmax(1)
        counted = targets != IGNORED
        sums = {
            "hits": torch.bincount(targets[guesses == targets], minlength=classes),
            "totals": torch.bincount(targets[counted], minlength=classes),
        }
        if targets.ndim > 1:
            sums["guessed"] = torch.bincount(guesses[counted], minlength=classes)
        return Score(losses.double().sum().item(), int(counted.sum()), sums, _of_classes)

    def misfit(self, outputs: Any, targets: Nest) -> Misfit | None:
        """Refuse real numbers, several labels per sample, and a label at every place of a sequence."""
        logits, labels = logits_of(outputs), _tensor(targets)
        answers = f"the model returns {_shape(logits)}, the labels are {_kind(labels)} {_shape(labels)}"
        if labels.is_floating_point():
            return Misfit(
                f"{answers}, but cross-entropy takes class numbers", _SAY + '"mse" (numbers) or "bce" (0 or 1)'
            )
        if logits.ndim >= 2 and logits.shape[1] > 1 and labels.shape == logits.shape[:1] + logits.shape[2:]:
            return None
        if labels.shape == logits.shape:
            return Misfit(f"{answers}: several labels per sample", _SAY + '"bce"')
        if logits.ndim == 3 and labels.shape == logits.shape[:2]:
            fix = _SAY + '"tokens", or "next-token" for a language model'
            return Misfit(f"{answers}: a label at every place", fix)
        if logits.numel() == len(labels):
            return Misfit(f"{answers}: one output per sample, no classes", _SAY + '"bce" (0 or 1) or "mse" (numbers)')
        return Misfit(f"{answers}, but cross-entropy takes N × classes and N", "make the model return N × classes")

    def limits(self, outputs: Any) -> Limits:
        """Class numbers must be smaller than the number of logits."""
        classes = logits_of(outputs).shape[1]
        return Limits(0, classes - 1, f"the model has {classes} classes")


class Regression(Supervised):
    """The mean squared error."""

    def mean(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the mean over samples and values."""
        return functional.mse_loss(*_alike(outputs, targets))

    def losses(self, module: nn.Module, inputs: Nest, targets: Tensor) -> Tensor:
        """Return the squared error of each sample."""
        return _by_sample(functional.mse_loss(*_alike(outputs_of(module, inputs), targets), reduction="none"))

    def count(self, outputs: Any, targets: Tensor) -> Score:
        """Return summed squared and absolute errors."""
        answers, wanted = _alike(outputs, targets)
        errors = (answers - wanted).double()
        sums = {"absolute": errors.abs().sum(), "values": torch.tensor(errors.numel())}
        return Score(
            (errors * errors).sum().item(),
            errors.numel(),
            sums,
            lambda sums: {"mae": sums["absolute"].item() / sums["values"].item()},
        )

    def misfit(self, outputs: Any, targets: Nest) -> Misfit | None:
        """Refuse shapes that would be broadcast against each other."""
        return _not_alike(outputs, targets, "mse", "one number for each target")


class MultiLabel(Supervised):
    """Binary cross-entropy of logits with labels that are 0 or 1, one or several per sample."""

    def mean(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the mean over samples and labels."""
        return functional.binary_cross_entropy_with_logits(*_alike(outputs, targets))

    def losses(self, module: nn.Module, inputs: Nest, targets: Tensor) -> Tensor:
        """Return the cross-entropy of each sample."""
        pair = _alike(outputs_of(module, inputs), targets)
        return _by_sample(functional.binary_cross_entropy_with_logits(*pair, reduction="none"))

    def count(self, outputs: Any, targets: Tensor) -> Score:
        """Return the summed loss and, for each label, how often it was predicted correctly, predicted, and true."""
        logits, wanted = _alike(outputs, targets)
        losses = functional.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        given, true = (logits > 0).reshape(len(logits), -1), (wanted > 0.5).reshape(len(wanted), -1)
        sums = {
            "found": (given & true).sum(0),
            "given": given.sum(0),
            "true": true.sum(0),
            "right": (given == true).sum(0),
            "samples": torch.tensor(len(given)),
        }
        return Score(losses.double().sum().item(), losses.numel(), sums, _of_labels)

    def misfit(self, outputs: Any, targets: Nest) -> Misfit | None:
        """Refuse shapes that would be broadcast against each other."""
        return _not_alike(outputs, targets, "bce", "one logit for each label")

    def limits(self, outputs: Any) -> Limits:
        """Labels must be 0 or 1."""
        del outputs
        return Limits(0, 1, "bce takes 0 and 1", 'use 0 and 1, or set local.loss = "cross-entropy" for class numbers')


class TokenClassification(Supervised):
    """Cross-entropy at every place of a sequence: logits N × places × classes, labels N × places."""

    def mean(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the mean over all places that have a label."""
        logits, labels = self._pairs(outputs, targets)
        return functional.cross_entropy(logits, labels, ignore_index=IGNORED)

    def losses(self, module: nn.Module, inputs: Nest, targets: Tensor) -> Tensor:
        """Return the mean over the places of each sample."""
        logits, labels = self._pairs(outputs_of(module, inputs), targets)
        losses = functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
        rows, counted = losses.view(len(targets), -1), (labels != IGNORED).view(len(targets), -1)
        return rows.sum(1) / counted.sum(1).clamp(min=1)

    def count(self, outputs: Any, targets: Tensor) -> Score:
        """Return sums over the places that have a label."""
        logits, labels = self._pairs(outputs, targets)
        losses = functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
        counted = labels != IGNORED
        sums = {"hits": (logits.argmax(1) == labels)[counted].sum()[None], "totals": counted.sum()[None]}
        total = losses.double().sum()
        return Score(total.item(), int(counted.sum()), {**sums, "loss": total}, self._figures)

    def misfit(self, outputs: Any, targets: Nest) -> Misfit | None:
        """Refuse anything but a class number for every place."""
        logits, labels = logits_of(outputs), _tensor(targets)
        answers = f"the model returns {_shape(logits)}, the labels are {_kind(labels)} {_shape(labels)}"
        if logits.ndim != 3:
            return Misfit(f"{answers}, but tokens takes N × places × classes", _SAY + '"cross-entropy"')
        if labels.shape != logits.shape[:2] or labels.is_floating_point():
            return Misfit(f"{answers}, but tokens takes a class number for every place", "give labels N × places")
        return None

    def limits(self, outputs: Any) -> Limits:
        """Class numbers must be smaller than the number of logits."""
        classes = logits_of(outputs).shape[-1]
        return Limits(0, classes - 1, f"the model has {classes} classes")

    def _pairs(self, outputs: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
        return logits_of(outputs).flatten(0, 1), targets.flatten()

    def _figures(self, sums: Sums) -> dict[str, float]:
        return accuracy_of(sums)


class NextToken(TokenClassification):
    """The loss of a causal language model: at every place it predicts the next token."""

    def _pairs(self, outputs: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
        return logits_of(outputs)[:, :-1].flatten(0, 1), targets[:, 1:].flatten()

    def _figures(self, sums: Sums) -> dict[str, float]:
        count = sums["totals"].sum().item()
        each = sums["loss"].item() / count if count else math.nan
        return {**accuracy_of(sums), "perplexity": math.exp(min(each, 700.0))}


class ModelLoss(Supervised):
    """The loss that a network computes itself when it is given the targets as `labels`."""

    def answers(self, module: nn.Module, inputs: Nest, targets: Nest) -> Any:
        """Call the network with the labels."""
        named = inputs if isinstance(inputs, Mapping) else {}
        places = () if named else inputs if isinstance(inputs, tuple) else (inputs,)
        return module(*places, **named, labels=targets)

    def mean(self, outputs: Any, targets: Nest) -> Tensor:
        """Return the loss that the network computed."""
        del targets
        loss = getattr(outputs, "loss", None)
        if not isinstance(loss, Tensor):
            raise ConfigError(
                f"the model's output ({type(outputs).__name__}) has no loss",
                fix='make the model compute one from labels, or name another loss, such as "cross-entropy"',
                key="local.loss",
            )
        return loss

    def count(self, outputs: Any, targets: Nest) -> Score:
        """Return the loss as a sum over samples."""
        return _over_samples(self.mean(outputs, targets), targets)


class OwnLoss(Supervised):
    """A user's function of outputs and targets, which returns the mean loss or the loss of each sample."""

    def __init__(self, function: Callable[[Any, Any], Any], metrics: Mapping[str, Metric] | None = None) -> None:
        super().__init__(metrics)
        self._function = function

    def mean(self, outputs: Any, targets: Nest) -> Tensor:
        """Return the function's result as one number."""
        loss = self._function(outputs, targets)
        if not isinstance(loss, Tensor):
            name = getattr(self._function, "__name__", "the loss")
            raise ConfigError(
                f"{name} returned a {type(loss).__name__}", fix="return the loss as a tensor", key="local.loss"
            )
        return loss if loss.ndim == 0 else loss.mean()

    def count(self, outputs: Any, targets: Nest) -> Score:
        """Return the loss as a sum over samples."""
        return _over_samples(self.mean(outputs, targets), targets)


_LOSSES: dict[str, type[Supervised]] = {
    "cross-entropy": Classification,
    "mse": Regression,
    "bce": MultiLabel,
    "tokens": TokenClassification,
    "next-token": NextToken,
    "model": ModelLoss,
}


def loss_names() -> list[str]:
    """Return the names that `objective_of` knows.

    >>> loss_names()
    ['cross-entropy', 'mse', 'bce', 'tokens', 'next-token', 'model']
    """
    return list(_LOSSES)


def objective_of(loss: str | Callable[[Any, Any], Any], metrics: Mapping[str, Metric] | None = None) -> Supervised:
    """Return the objective with this loss, given by name or as a function of outputs and targets."""
    if callable(loss):
        return OwnLoss(loss, metrics)
    if loss not in _LOSSES:
        raise ConfigError(
            f"no loss is named {loss!r}",
            fix=f"use one of {', '.join(_LOSSES)}, or package.module:function",
            key="local.loss",
        )
    return _LOSSES[loss](metrics)


def _of_classes(sums: Sums) -> dict[str, float]:
    if "guessed" not in sums:
        return accuracy_of(sums)
    union = sums["totals"] + sums["guessed"] - sums["hits"]
    present = union > 0
    overlap = (sums["hits"][present].double() / union[present]).mean().item()
    return {**accuracy_of(sums), "iou": overlap}


def _of_labels(sums: Sums) -> dict[str, float]:
    found, given, true = sums["found"].double(), sums["given"].double(), sums["true"].double()
    figures = {"f1": _f1(found.sum(), given.sum(), true.sum())}
    if len(found) == 1:
        return {"accuracy": sums["right"].sum().item() / sums["samples"].item(), **figures}
    each = [_f1(*one) for one in zip(found, given, true, strict=True) if one[1] + one[2] > 0]
    return {**figures, "f1_macro": sum(each) / len(each) if each else math.nan}


def _f1(found: Tensor, given: Tensor, true: Tensor) -> float:
    either = (given + true).item()
    return 2 * found.item() / either if either else math.nan


def _alike(outputs: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and targets in the same shape: one output per sample may come as N or N × 1."""
    answers = logits_of(outputs)
    targets = targets.to(answers.dtype)
    if answers.ndim == targets.ndim + 1 and answers.shape[-1] == 1:
        answers = answers.squeeze(-1)
    elif targets.ndim == answers.ndim + 1 and targets.shape[-1] == 1:
        targets = targets.squeeze(-1)
    return answers, targets


def _not_alike(outputs: Any, targets: Nest, name: str, wanted: str) -> Misfit | None:
    answers, labels = _alike(outputs, _tensor(targets))
    if answers.shape == labels.shape:
        return None
    given = f"the model returns {_shape(logits_of(outputs))}, the labels are {_kind(targets)} {_shape(targets)}"
    integers = not _tensor(targets).is_floating_point()
    fix = f"make the model return {wanted}"
    return Misfit(f"{given}, but {name} takes {wanted}", fix + (f', or {_SAY}"cross-entropy"' if integers else ""))


def _over_samples(mean: Tensor, targets: Nest) -> Score:
    samples = len(next(leaves(targets))[1])
    return Score(mean.item() * samples, samples)


def _by_sample(losses: Tensor) -> Tensor:
    return losses if losses.ndim == 1 else losses.flatten(1).mean(1)


def _tensor(targets: Nest) -> Tensor:
    if not isinstance(targets, Tensor):
        raise ConfigError(
            f"the targets of a batch are a {type(targets).__name__}",
            fix="give one tensor of targets, or a loss of your own as package.module:function",
            key="local.loss",
        )
    return targets


def _shape(tensor: Tensor) -> str:
    """Describe a batch's shape, without the number of samples it happens to have."""
    return " × ".join(["N", *map(str, tensor.shape[1:])]) if tensor.ndim else "one number"


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
