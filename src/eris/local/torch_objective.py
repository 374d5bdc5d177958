"""Objectives: what is minimised, and how a model is scored.

An objective calls a network and computes a loss from its outputs. These may be a tensor, or an object with `.logits`
and `.loss` as in the transformers library. The losses that have a name are in `eris.local.torch_losses`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

from eris.errors import ConfigError
from eris.local.torch_examples import Nest, count_of

__all__ = [
    "IGNORED",
    "Limits",
    "Metric",
    "Misfit",
    "Objective",
    "Score",
    "Supervised",
    "accuracy_of",
    "logits_of",
    "outputs_of",
    "parameters_of",
]

IGNORED = -100  # a label that is not learned: padding, or a place without a target

Metric = Callable[[Any, Any], Any]
"""Takes the network's outputs and the targets of a batch; returns the mean over its samples, or (sum, count)."""

Sums = Mapping[str, Tensor]


# Figures that are a ratio of two sums: names of what is added up in the numerator and in the denominator.
_RATIOS = {
    "accuracy": (("hits",), ("totals",)),
    "mae": (("absolute",), ("values",)),
    "f1": (("found", "found"), ("given", "true")),
}


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why outputs and targets cannot be compared, and what to do about it."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Limits:
    """The range in which targets must lie (or be `IGNORED`), why, and what to do if they do not."""

    least: int
    most: int
    why: str
    fix: str = "number classes from 0 and give the model as many outputs, or mark labels to ignore with −100"


@dataclass(frozen=True, slots=True)
class Score:
    """Sums over one batch: of the loss over its items (samples or tokens), and of what figures are computed from."""

    loss: float
    items: int
    sums: Sums = field(default_factory=dict)
    figures: Callable[[Sums], dict[str, float]] = lambda sums: {}  # noqa: ARG005 - no figures of no sums
    ratios: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # further metrics: sum and count

    def __add__(self, other: Score) -> Score:
        ratios = {name: (a + other.ratios[name][0], b + other.ratios[name][1]) for name, (a, b) in self.ratios.items()}
        return Score(
            self.loss + other.loss,
            self.items + other.items,
            {name: value + other.sums[name] for name, value in self.sums.items()},
            self.figures,
            ratios,
        )

    def means(self) -> dict[str, float]:
        """Return the mean loss per item, the figures and the further metrics."""
        ratios = {name: _ratio(total, count) for name, (total, count) in self.ratios.items()}
        return {"loss": _ratio(self.loss, self.items)} | self.figures(self.sums) | ratios

    def pairs(self) -> dict[str, tuple[float, float]]:
        """Return every figure that is a sum divided by a count as this pair, which can be added up over members."""
        found = {name: (float(total), float(count)) for name, (total, count) in self.ratios.items()}
        for name, (above, below) in _RATIOS.items():
            if all(key in self.sums for key in (*above, *below)):
                found[name] = _added(self.sums, above), _added(self.sums, below)
        if len(self.sums.get("right", ())) == 1:  # one label: right or wrong
            found["accuracy"] = _added(self.sums, ("right",)), _added(self.sums, ("samples",))
        return {"loss": (float(self.loss), float(self.items))} | found

    def by_class(self) -> dict[str, float]:
        """Return the accuracy of each class that occurs; nothing if there are no classes."""
        if len(self.sums.get("totals", ())) < 2:
            return {}
        pairs = zip(self.sums["hits"].tolist(), self.sums["totals"].tolist(), strict=True)
        return {f"accuracy/{label}": hit / total for label, (hit, total) in enumerate(pairs) if total}


class Objective(Protocol):
    """A mean loss to differentiate, and sums to report."""

    def loss(self, module: nn.Module, inputs: Nest, targets: Nest) -> Tensor:
        """Return the mean loss of a batch."""
        ...

    def score(self, module: nn.Module, inputs: Nest, targets: Nest) -> Score:
        """Return sums over a batch; called without gradients."""
        ...


class Supervised:
    """An objective that compares outputs with targets: the base of every named loss.

    A subclass says what the mean loss is, what is counted, and how to tell beforehand that outputs do not fit targets.
    """

    def __init__(self, metrics: Mapping[str, Metric] | None = None) -> None:
        self.metrics = dict(metrics or {})

    def loss(self, module: nn.Module, inputs: Nest, targets: Nest) -> Tensor:
        """Return the mean loss of a batch."""
        return self.mean(self.answers(module, inputs, targets), targets)

    def score(self, module: nn.Module, inputs: Nest, targets: Nest) -> Score:
        """Return sums over a batch, including those of the further metrics."""
        outputs = self.answers(module, inputs, targets)
        score, samples = self.count(outputs, targets), count_of((inputs, targets))
        ratios = {name: _pair(name, metric(outputs, targets), samples) for name, metric in self.metrics.items()}
        return Score(score.loss, score.items, score.sums, score.figures, {**score.ratios, **ratios})

    def answers(self, module: nn.Module, inputs: Nest, targets: Nest) -> Any:
        """Call the network and return its outputs."""
        del targets
        return outputs_of(module, inputs)

    def mean(self, outputs: Any, targets: Nest) -> Tensor:
        """Return the mean loss of these outputs."""
        raise NotImplementedError

    def count(self, outputs: Any, targets: Nest) -> Score:
        """Return sums over these outputs."""
        raise NotImplementedError

    def misfit(self, outputs: Any, targets: Nest) -> Misfit | None:
        """Return why these outputs do not fit these targets; None if they do."""
        del outputs, targets
        return None

    def limits(self, outputs: Any) -> Limits | None:
        """Return the range in which targets must lie, if it is known."""
        del outputs
        return None


def outputs_of(module: nn.Module, inputs: Nest) -> Any:
    """Call a network with a tensor as its argument, a tuple as its arguments or a dictionary as its keyword arguments.

    A network whose `forward` does not have these names gets the dictionary itself.
    """
    if isinstance(inputs, Tensor):
        return module(inputs)
    if isinstance(inputs, Mapping):
        return module(**inputs) if _known(module, tuple(inputs)) else module(inputs)
    return module(*inputs)


def logits_of(outputs: Any) -> Tensor:
    """Return the tensor in a network's output: itself, its `logits`, or the first of several."""
    if isinstance(outputs, Tensor):
        return outputs
    found = getattr(outputs, "logits", None)
    if found is None and isinstance(outputs, Mapping):
        found = outputs.get("logits", next(iter(outputs.values()), None))
    if found is None and isinstance(outputs, tuple | list) and outputs:
        found = outputs[0]
    if not isinstance(found, Tensor):
        raise ConfigError(
            f"the model returns a {type(outputs).__name__}, which is not a tensor and has no logits",
            fix="return a tensor, or give a loss that takes such an output, as package.module:function",
            key="local.loss",
        )
    return found


def accuracy_of(sums: Sums) -> dict[str, float]:
    """Return the share of hits."""
    return {"accuracy": _ratio(sums["hits"].sum().item(), sums["totals"].sum().item())}


def parameters_of(module: nn.Module) -> tuple[frozenset[str], bool]:
    """Return the names that a network's `forward` takes, and whether it takes any other as well."""
    kind: Any = type(getattr(module, "called", module))
    return _parameters(kind)


@functools.lru_cache
def _parameters(kind: type[nn.Module]) -> tuple[frozenset[str], bool]:
    parameters = [each for name, each in inspect.signature(kind.forward).parameters.items() if name != "self"]
    named = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    return frozenset(named), any(each.kind is each.VAR_KEYWORD for each in parameters)


def _known(module: nn.Module, names: tuple[str, ...]) -> bool:
    known, any_other = parameters_of(module)
    return any_other or known.issuperset(names)


def _pair(name: str, value: Any, samples: int) -> tuple[float, float]:
    try:
        total, count = value if isinstance(value, tuple) else (float(value) * samples, samples)
        return float(total), float(count)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"metric {name} returned a {type(value).__name__}",
            fix="return the mean over the batch, or a pair (sum, count)",
            key="local.metrics",
        ) from error


def _added(sums: Sums, names: tuple[str, ...]) -> float:
    return sum(float(sums[name].sum().item()) for name in names)


def _ratio(total: float, count: float) -> float:
    return total / count if count else float("nan")
