"""Lightning tasks: an unmodified `LightningModule`, with its `training_step` and `configure_optimizers`.

    def task(config, peer):
        return lightning_task(LitNet, my_loader(peer), val=held_out)

In every round Lightning's own `Trainer` fits the module for `epochs`, and validates it on `val` if the module has a
`validation_step`; what it logs are the round's figures. Optimizers and schedulers start afresh in every round. Running
statistics are averaged, frozen parameters stay as they are.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eris.errors import ConfigError, InputError, MissingExtra
from eris.interop.foreign_call import foreign_call
from eris.interop.home_task import Arrays, Fitted, HomeTask
from eris.local.spec import Role
from eris.local.task import Memory
from eris.seeds import Seed

__all__ = ["LightningLearner", "lightning_task"]


def lightning_task(
    module: Callable[[], Any],
    train: Any,
    *,
    val: Any = None,
    epochs: int = 1,
    trainer: Mapping[str, Any] | None = None,
) -> HomeTask:
    """Make the task of one peer.

    Args:
        module: makes the LightningModule.
        train: a loader of the peer's training data.
        val: a loader of data to validate on.
        epochs: passes over the training data in a round.
        trainer: further arguments of Lightning's `Trainer` (``gradient_clip_val``, ``max_steps``, …).
    """
    return HomeTask(LightningLearner(module, train, val, epochs, dict(trainer or {})))


class LightningLearner:
    """A LightningModule, and one peer's loaders."""

    def __init__(self, module: Callable[[], Any], train: Any, val: Any, epochs: int, trainer: dict[str, Any]) -> None:
        """Prepare to train; the arguments are those of `lightning_task`."""
        self._make, self._train, self._val = module, train, val
        self._trainer = {"max_epochs": epochs, **trainer}
        self._module = _checked_module(module)
        trained = {name for name, value in self._module.named_parameters() if value.requires_grad}
        fixed = {name for name, _ in self._module.named_parameters()} - trained
        state = self._module.state_dict()
        self.roles: Mapping[str, Role] = {
            name: "frozen" if name in fixed else "buffer"
            for name, value in state.items()
            if name not in trained and (name in fixed or value.is_floating_point())
        }

    @property
    def count(self) -> int:
        """How many samples the loader has."""
        try:
            return len(self._train.dataset)
        except (AttributeError, TypeError):
            raise InputError(
                "the loader does not say how many samples it has", fix="give a DataLoader of a dataset with a length"
            ) from None

    def begin(self, seed: Seed) -> Arrays:
        """Return the tensors of a new module, drawn with this seed."""
        with foreign_call(seed.child("module")):
            return _tensors(self._make())

    def memory(self) -> Memory:
        """Return nothing: optimizers start afresh in every round."""
        return {}

    def fit(self, arrays: Arrays, memory: Memory, seed: Seed) -> Fitted:
        """Let a Trainer fit the module for this round."""
        del memory, seed
        trainer = self._new_trainer()
        with _unworried():
            trainer.fit(self._loaded(arrays), self._train)
        figures = {name: float(value) for name, value in trainer.callback_metrics.items()}
        steps = float(max(1, trainer.global_step))
        return Fitted(_tensors(self._module), steps, figures | _loss_of(figures))

    def score(self, arrays: Arrays) -> Mapping[str, Any]:
        """Let a Trainer validate the module."""
        if self._val is None:
            return {}
        with _unworried():
            found = self._new_trainer().validate(self._loaded(arrays), self._val, verbose=False)
        return found[0] if found else {}

    def _loaded(self, arrays: Arrays) -> Any:
        import torch

        self._module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in arrays.items()})
        return self._module

    def _new_trainer(self) -> Any:
        import lightning

        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
        quiet = {
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "accelerator": "cpu",
            "devices": 1,
        }
        with _unworried():
            return lightning.Trainer(**{**quiet, **self._trainer})


def _checked_module(make: Callable[[], Any]) -> Any:
    try:
        import lightning
    except ImportError as error:
        raise MissingExtra("lightning", "lightning", "a LightningModule") from error
    if isinstance(make, lightning.LightningModule):
        name = type(make).__name__
        raise InputError(
            f"the module is a {name} that is already built", fix=f"give the function that makes it: {name}"
        )
    module = make()
    if not isinstance(module, lightning.LightningModule):
        raise InputError(f"{type(module).__name__} is not a LightningModule", fix="give a function that makes one")
    for step in ("training_step", "configure_optimizers"):
        if getattr(type(module), step) is getattr(lightning.LightningModule, step):
            raise ConfigError(f"{type(module).__name__} has no {step}", fix=f"define {step}")
    return module


def _tensors(module: Any) -> Arrays:
    return {name: np.array(value.detach().cpu().numpy()) for name, value in module.state_dict().items()}


def _loss_of(figures: Mapping[str, float]) -> dict[str, float]:
    return {"loss": figures["train_loss"]} if "train_loss" in figures and "loss" not in figures else {}


class _unworried(warnings.catch_warnings):  # noqa: N801 - used like the function it extends
    """Silence Lightning's warnings about loaders and loggers: a round is short on purpose."""

    def __enter__(self) -> Any:
        found = super().__enter__()
        warnings.simplefilter("ignore")
        return found
