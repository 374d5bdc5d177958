"""The settings of local training as plain, checked values; importing them does not load torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from eris.errors import ConfigError

__all__ = ["BufferPolicy", "EstimatorName", "LocalWork", "OptimizerName", "Pace", "Precision", "Send"]

OptimizerName = Literal["sgd", "adam", "adamw"]
EstimatorName = Literal["sgd", "svrg", "saga"]
Send = Literal["delta", "gradient"]
BufferPolicy = Literal["average", "local", "frozen"]
Precision = Literal["float32", "bf16", "fp16"]
Pace = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, slots=True)
class LocalWork:
    """What a member does in one round.

    The default is one step on all of its samples. ``epochs`` passes over the data in batches of ``batch`` samples, or
    exactly ``steps`` batches if that is given. ``keep_state`` carries momentum or Adam's moments over to the next round
    instead of starting afresh.

    ``send="delta"`` sends start − end; ``send="gradient"`` sends one gradient estimate at the model itself and leaves
    the step λ to the server: ``estimator="sgd"`` averages a batch (the full gradient if ``batch`` is ``"full"``),
    ``"svrg"`` and ``"saga"`` reduce its variance with what they remember.
    """

    optimizer: OptimizerName = "sgd"
    lr: float = 0.01
    momentum: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    undecayed: tuple[str, ...] = ()  # patterns: tensors without weight decay
    max_norm: float | None = None  # longer gradients of a batch are scaled down to it
    pace: Pace = "constant"  # how lr changes over the steps of a round: constant, or falling to 0
    warmup: int = 0  # steps at the start of a round over which lr rises from 0
    keep_state: bool = False
    epochs: int = 1
    steps: int | None = None
    batch: int | Literal["full"] = "full"
    micro_batch: int | None = None  # samples differentiated at once, for large models; None: the whole batch
    send: Send = "delta"
    estimator: EstimatorName = "sgd"
    refresh: float | None = None  # SVRG: probability that the snapshot moves in a round; None: batch/samples
    buffers: BufferPolicy = "average"
    keep: tuple[str, ...] = ()  # patterns: tensors that stay with their member
    device: str = "cpu"  # or auto, cuda, cuda:1, mps; see `eris.local.devices`
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        _require_one_of("optimizer", self.optimizer, get_args(OptimizerName))
        _require_one_of("estimator", self.estimator, get_args(EstimatorName))
        _require_one_of("send", self.send, get_args(Send))
        _require_one_of("buffers", self.buffers, get_args(BufferPolicy))
        _require_one_of("precision", self.precision, get_args(Precision))
        _require_one_of("pace", self.pace, get_args(Pace))
        self._check_numbers()
        self._check_combinations()

    def _check_numbers(self) -> None:
        _require("lr", self.lr, self.lr > 0, "> 0")
        _require("momentum", self.momentum, 0 <= self.momentum < 1, "in [0, 1)")
        _require("betas", self.betas, all(0 <= beta < 1 for beta in self.betas), "two numbers in [0, 1)")
        _require("eps", self.eps, self.eps > 0, "> 0")
        _require("weight_decay", self.weight_decay, self.weight_decay >= 0, "≥ 0")
        _require("max_norm", self.max_norm, self.max_norm is None or self.max_norm > 0, "> 0")
        _require("warmup", self.warmup, self.warmup >= 0, "≥ 0")
        _require("epochs", self.epochs, self.epochs >= 1, "≥ 1")
        _require("steps", self.steps, self.steps is None or self.steps >= 1, "≥ 1")
        _require(
            "batch",
            self.batch,
            self.batch == "full" or (isinstance(self.batch, int) and self.batch >= 1),
            "≥ 1 or 'full'",
        )
        _require("micro_batch", self.micro_batch, self.micro_batch is None or self.micro_batch >= 1, "≥ 1")
        _require("refresh", self.refresh, self.refresh is None or 0 < self.refresh <= 1, "in (0, 1]")

    def _check_combinations(self) -> None:
        if self.send == "delta" and self.estimator != "sgd":
            raise ConfigError(
                f"estimator {self.estimator!r} does not work with send = 'delta'",
                fix="use send = 'gradient'",
                key="local.estimator",
            )
        if self.send == "gradient" and (self.epochs, self.steps or 1) != (1, 1):
            raise ConfigError(
                "send = 'gradient' does not work with more than one local step",
                fix="use epochs = 1 and no steps",
                key="local.send",
            )
        if self.send == "gradient" and self.keep:
            raise ConfigError(
                "send = 'gradient' takes no local step, so tensors that stay at home would never be trained",
                fix="use send = 'delta', or no local.keep",
                key="local.keep",
            )
        if self.momentum and self.optimizer != "sgd":
            raise ConfigError(
                f"local.momentum is {self.momentum}, but {self.optimizer} has no such momentum",
                fix="set local.momentum = 0, and use local.betas instead",
                key="local.momentum",
            )


def _require_one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"local.{key} is {value!r}", fix=f"use one of {allowed}", key=f"local.{key}")


def _require(key: str, value: object, holds: bool, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"local.{key} is {value!r}", fix=f"use {allowed}", key=f"local.{key}")
