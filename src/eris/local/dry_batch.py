"""The dry batch: find mistakes in data and model before the first round, and before anything is written.

Two samples go through the network and back, and every sample in memory is checked. Errors name the sample and its
member, the tensor of the model, or the setting to change. Of samples read on demand, such as those of a torch
`Dataset`, the first 512 are checked; eris's own data sets and token numbers need no check.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from eris.errors import ConfigError, DataError, ErisError, ModelError
from eris.local.torch_examples import Batch, Examples, leaves, tensors_at
from eris.local.torch_module import FlatModule
from eris.local.torch_objective import IGNORED, Limits, Objective, Supervised, parameters_of

__all__ = ["check_dry_batch"]

Indices = NDArray[np.int64]

_SAMPLES = 2  # enough for a network with batch normalisation
_ROWS = 4096  # rows of an array checked at once
_READ = 512  # samples that are read only to check them
_POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions")


@dataclass(frozen=True, slots=True)
class _Share:
    """The samples of one member, or of the test split (None), and how errors name them."""

    examples: Examples
    places: Indices
    member: int | None

    def part(self, chosen: slice) -> _Share:
        """Return some of these samples."""
        return _Share(self.examples, self.places[chosen], self.member)

    def number(self, row: int) -> int:
        """Return a sample's number as its owner would count it."""
        place = int(self.places[row])
        return int(getattr(self.examples, "origin", lambda place: place)(place))

    def called(self, row: int) -> str:
        """Return what an error calls a sample."""
        return f"{'test ' if self.member is None else ''}sample {self.number(row)}"

    def where(self, row: int) -> dict[str, int]:
        """Return the location that an error carries."""
        return {"sample": self.number(row), **({} if self.member is None else {"peer": self.member})}


def check_dry_batch(
    flat: FlatModule,
    objective: Objective,
    examples: Examples,
    shares: Mapping[int, Indices],
    test: Examples | None = None,
) -> None:
    """Raise if the network cannot learn from these samples.

    Args:
        flat: the network.
        objective: its loss and metrics.
        examples: the training split.
        shares: member → its places in the training split.
        test: the test split, if there is one.
    """
    _require_trainable(flat)
    for member, places in shares.items():
        if not len(places):
            raise DataError(
                f"member {member} has no samples", fix="give it some, or leave it out", key="members", peer=member
            )
    splits = [_Share(examples, places, member) for member, places in shares.items()]
    if test is not None and len(test):
        splits.append(_Share(test, np.arange(len(test)), None))
    first = splits[0].part(slice(_SAMPLES))
    batch = _taken(first)
    _require_names(flat.module, batch[0])
    _require_positions(flat.module, batch[0])
    _require_sound(splits, batch)
    flat.train()
    _require_loss(flat, objective, flat.placed(batch), splits)
    if isinstance(objective, Supervised) and objective.metrics:
        _require_metrics(flat, objective, flat.placed(_taken(splits[-1].part(slice(_SAMPLES)))))


def _require_trainable(flat: FlatModule) -> None:
    if flat.spec.n_trainable:
        return
    if flat.n_personal:
        raise ModelError(
            "local.keep keeps every trainable tensor at home: nothing is left to train together",
            fix="name fewer tensors in local.keep",
            key="local.keep",
        )
    raise ModelError(
        "every tensor of the model is frozen", fix="make at least one trainable: tensor.requires_grad_(True)"
    )


def _taken(share: _Share) -> Batch:
    try:
        batch = tensors_at(share.examples, share.places)
    except ErisError:
        raise
    except Exception as error:
        row = _culprit(share)
        raise DataError(
            f"{share.called(row)} cannot be read: {_first_line(error)}",
            fix=f"try dataset[{share.number(row)}] yourself",
            **share.where(row),
        ) from error
    for name, leaf in leaves(batch):
        if leaf.dtype == torch.float64:
            fix = "convert them to float32: .float() or .astype('float32')"
            raise DataError(f"{_called(name)} of {share.called(0)} are float64", fix=fix, **share.where(0))
    return batch


def _culprit(share: _Share) -> int:
    """Return the sample that cannot be read: the first that fails on its own, else the first."""
    for row in range(len(share.places)):
        try:
            share.examples.take(share.places[row : row + 1])
        except Exception:  # noqa: BLE001 - the user's own code, and the same error as before
            return row
    return 0


def _require_names(module: nn.Module, inputs: Any) -> None:
    """Refuse inputs if `forward` has only some of their names: it takes neither keywords nor a dictionary then."""
    if not isinstance(inputs, Mapping):
        return
    known, any_other = parameters_of(module)
    unknown = [name for name in inputs if name not in known]
    if unknown and not any_other and len(unknown) < len(inputs):
        raise DataError(
            f"the samples have {', '.join(inputs)}, but the model's forward takes {', '.join(sorted(known))}",
            fix=f"leave {', '.join(unknown)} out of the samples, or add it to forward's arguments",
        )


def _require_positions(module: nn.Module, inputs: Any) -> None:
    """Refuse sequences longer than a transformers model has positions."""
    tokens = next((leaf for _, leaf in leaves(inputs) if leaf.ndim == 2 and not leaf.is_floating_point()), None)
    settings = next((part.config for part in module.modules() if hasattr(part, "config")), None)
    if tokens is None or settings is None:
        return
    most = next((getattr(settings, name) for name in _POSITIONS if isinstance(getattr(settings, name, None), int)), 0)
    if 0 < most < tokens.shape[1]:
        raise DataError(
            f"a sample has {tokens.shape[1]} tokens, but the model has only {most} positions",
            fix=f"truncate samples to {most} tokens (for a built-in text data set: model.options.length = {most})",
        )


def _require_sound(splits: Sequence[_Share], first: Batch) -> None:
    """Refuse values that are not finite, and samples of different shapes."""
    shapes = {name: tuple(leaf.shape[1:]) for name, leaf in leaves(first)}
    for share in _chunks(splits):
        for name, leaf in leaves(_taken(share)):
            shape = tuple(leaf.shape[1:])
            if shape != shapes.get(name) and not getattr(share.examples, "by_batch", False):
                raise DataError(
                    f"{_called(name)} of {share.called(0)} have the shape {shape}, but others have {shapes.get(name)}",
                    fix="give all samples the same shape",
                    **share.where(0),
                )
            if leaf.is_floating_point():
                _require_finite(name, leaf, share)


def _require_finite(name: str, leaf: Tensor, share: _Share) -> None:
    if math.isfinite(leaf.sum().item()):  # one pass: NaN and infinity survive a sum
        return
    rows = leaf.reshape(len(leaf), -1)
    bad = ~torch.isfinite(rows)
    if not bad.any():
        return
    row = int(bad.any(1).nonzero()[0])
    raise DataError(
        f"{_called(name)} of {share.called(row)} have a value that is {rows[row][bad[row]][0].item()}",
        fix="fill in missing values, or leave the sample out",
        **share.where(row),
    )


def _require_loss(flat: FlatModule, objective: Objective, batch: Batch, splits: Sequence[_Share]) -> None:
    """Send a batch through the network and back; check all labels against the network's outputs.

    `flat` is the network, `splits` are all the samples that it will see.
    """
    try:
        if isinstance(objective, Supervised):
            with _watched(flat.module, batch, splits):
                outputs = objective.answers(flat.module, *batch)
            if misfit := objective.misfit(outputs, batch[1]):
                raise ConfigError(misfit.what, fix=misfit.fix, key="local.loss")
            if limits := objective.limits(outputs):
                _require_within(splits, limits)
        loss = objective.loss(flat.module, *batch)
    except ErisError:
        raise
    except Exception as error:
        raise ModelError(
            f"the model fails on {_described(batch)}: {_first_line(error)}",
            fix="check that the model accepts such inputs, and that the loss accepts its outputs and the targets",
        ) from error
    if not math.isfinite(loss.item()):
        raise ModelError(
            f"the first loss is {loss.item()}, although the data are finite",
            fix="check the initial weights, and look for a logarithm or a division in the model and the loss",
        )
    _require_gradients(flat, loss)


@contextmanager
def _watched(module: nn.Module, batch: Batch, splits: Sequence[_Share]) -> Iterator[None]:
    """Check tokens against the size of each embedding, before it is asked for a row that it does not have.

    `batch` goes through `module` within the block; an error names the sample of the `splits` at fault.
    """

    def look(layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        asked = arguments[0] if arguments else None
        for name, leaf in leaves(batch[0], "0"):
            same = isinstance(asked, Tensor) and (asked.data_ptr(), asked.numel()) == (leaf.data_ptr(), leaf.numel())
            if same and isinstance(layer, nn.Embedding):
                _require_rows(name, layer.num_embeddings, splits)

    hooks = [part.register_forward_pre_hook(look) for part in module.modules() if isinstance(part, nn.Embedding)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _require_rows(name: str, rows: int, splits: Sequence[_Share]) -> None:
    for share in _chunks(splits):
        found = next((leaf for called, leaf in leaves(_taken(share)) if called == name), None)
        if found is None:
            continue
        bad = ((found < 0) | (found >= rows)).reshape(len(found), -1)
        if bad.any():
            row = int(bad.any(1).nonzero()[0])
            token = found.reshape(len(found), -1)[row][bad[row]][0].item()
            raise DataError(
                f"a token of {share.called(row)} is {token}, not 0 … {rows - 1}: the embedding has {rows} rows",
                fix="use the model's own tokenizer, or enlarge the embedding to the tokenizer's vocabulary",
                **share.where(row),
            )


def _require_gradients(flat: FlatModule, loss: Tensor) -> None:
    named = {name: part for name, part in flat.module.named_parameters() if part.requires_grad}
    if not loss.requires_grad:
        raise ModelError(
            "the loss has no gradient",
            fix="compute it from the model's outputs, without detach(), item() or no_grad()",
        )
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    for name, gradient in zip(named, gradients, strict=True):
        if gradient is None:
            raise ModelError(
                f"tensor {name} gets no gradient: the loss does not depend on it",
                fix=f"use the tensor in forward, or freeze it: {name}.requires_grad_(False)",
                tensor=name,
            )
        if not torch.isfinite(gradient).all():
            raise ModelError(
                f"the gradient of tensor {name} is not finite, although the data are",
                fix="look for a square root, a logarithm or a division at zero",
                tensor=name,
            )


def _require_within(splits: Sequence[_Share], limits: Limits) -> None:
    for share in splits:
        labels = getattr(share.examples, "labels", None)
        if labels is not None:
            _require_labels(torch.from_numpy(np.asarray(labels)[share.places]), limits, share)
    for part in _chunks(splits):
        if getattr(part.examples, "labels", None) is None:
            targets = _taken(part)[1]
            if isinstance(targets, Tensor):
                _require_labels(targets, limits, part)


def _require_labels(targets: Tensor, limits: Limits, share: _Share) -> None:
    rows = targets.reshape(len(targets), -1)
    bad = ((rows < limits.least) | (rows > limits.most)) & (rows != IGNORED)
    if not bad.any():
        return
    row = int(bad.any(1).nonzero()[0])
    label = rows[row][bad[row]][0].item()
    raise DataError(
        f"the label of {share.called(row)} is {label}, not {limits.least} … {limits.most}: {limits.why}",
        fix=limits.fix,
        **share.where(row),
    )


def _require_metrics(flat: FlatModule, objective: Supervised, batch: Batch) -> None:
    flat.evaluate()
    try:
        with torch.inference_mode():
            objective.score(flat.module, *batch)
    except ErisError:
        raise
    except Exception as error:
        raise ConfigError(
            f"a metric ({', '.join(objective.metrics)}) fails: {_first_line(error)}",
            fix="write it as a function of the model's outputs and the targets of a batch",
            key="local.metrics",
        ) from error


def _chunks(splits: Sequence[_Share]) -> Iterator[_Share]:
    """Yield the samples to check: all that are in memory, otherwise the first few of every member alike."""
    for share in splits:
        if _is_sound(share.examples):
            continue
        lazily = getattr(share.examples, "by_batch", False)
        count = min(len(share.places), max(1, _READ // len(splits))) if lazily else len(share.places)
        for start in range(0, count, _ROWS):
            yield share.part(slice(start, min(start + _ROWS, count)))


def _is_sound(examples: Examples) -> bool:
    """Return whether samples are eris's own bytes or token numbers, which are always in range."""
    inner = getattr(examples, "source", examples)
    return hasattr(inner, "pixels") or hasattr(inner, "tokenizer")


def _described(batch: Batch) -> str:
    named = [(f"inputs.{name}" if name else "inputs", leaf) for name, leaf in leaves(batch[0])]
    return ", ".join(f"{name} {str(leaf.dtype).removeprefix('torch.')} {_shape(leaf)}" for name, leaf in named)


def _shape(tensor: Tensor) -> str:
    return " × ".join(["N", *map(str, tensor.shape[1:])])


def _called(name: str) -> str:
    """Return what an error calls a leaf of a batch; the first part of its name says inputs or targets."""
    side, _, rest = name.partition(".")
    whole = {"0": "the inputs", "1": "the targets"}[side]
    return f"{whole} ({rest})" if rest else whole


def _first_line(error: BaseException) -> str:
    said = str(error).strip()
    return f"{type(error).__name__}: {said.splitlines()[0]}" if said else type(error).__name__
