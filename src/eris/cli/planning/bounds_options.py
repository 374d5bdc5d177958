"""The options of `eris bounds`, in the groups of its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

__all__ = ["LeakageOptions", "RateOptions", "StartOptions", "StepOptions"]


@dataclass(frozen=True)
class StepOptions:
    """What Theorem 3.1 depends on."""

    help_panel: ClassVar = "Step and utility"

    members: Annotated[int, typer.Option("--members", "-k", help="Members K.")] = 50
    omega: Annotated[float, typer.Option(help="Variance ω of the compressor.")] = 19.0
    keep: Annotated[str, typer.Option(help="The same as kept share p = 1/(1+ω).")] = ""
    masks: Annotated[str, typer.Option(help="Compression masks: shared or independent.")] = "shared"
    smoothness: Annotated[float, typer.Option("--smoothness", "-L", help="L.")] = 1.0
    beta: Annotated[float, typer.Option(help="The theorem's free β > 0.")] = 0.1
    gamma1: Annotated[float, typer.Option(help="Γ₁ of the estimator.")] = 0.0
    gamma2: Annotated[float | None, typer.Option(help="Γ₂ (default: from samples, batch and G).")] = None
    gamma3: Annotated[float, typer.Option(help="Γ₃.")] = 0.0
    gamma4: Annotated[float, typer.Option(help="Γ₄.")] = 0.0
    theta: Annotated[float, typer.Option(help="θ.")] = 1.0
    samples: Annotated[int, typer.Option(help="Samples m of a member.")] = 64
    batch: Annotated[int, typer.Option(help="Batch size b.")] = 16
    gradient_norm: Annotated[float, typer.Option("--gradient-norm", "-G", help="Bound G on a sample's gradient.")] = 1.0


@dataclass(frozen=True)
class StartOptions:
    """Where the run begins and where it should end."""

    help_panel: ClassVar = "Start and target"

    step: Annotated[float | None, typer.Option(help="Step λ (default: the largest allowed).")] = None
    gap: Annotated[float, typer.Option(help="f(x⁰) − f*.")] = 5.0
    reference_error: Annotated[float, typer.Option(help="Mean of ‖∇f_k(x⁰) − s_k⁰‖².")] = 0.0
    estimator_error: Annotated[float, typer.Option(help="Δ⁰.")] = 0.0
    rounds: Annotated[int, typer.Option("--rounds", "-T", help="Rounds T.")] = 120
    target: Annotated[float, typer.Option(help="Target for the mean squared gradient norm.")] = 0.05


@dataclass(frozen=True)
class LeakageOptions:
    """What Theorem 3.2 depends on."""

    help_panel: ClassVar = "Leakage"

    model: Annotated[str, typer.Option(help="Size n, or a model's name.")] = "lenet5"
    aggregators: Annotated[int | None, typer.Option("--aggregators", "-a", help="Shards A [members].")] = None
    shards: Annotated[str, typer.Option(help="Sizes of unequal shards: 3,1,1.")] = ""
    collude: Annotated[int, typer.Option(help="Colluding aggregators.")] = 1
    snr: Annotated[float | None, typer.Option(help="Signal-to-noise ratio of one coordinate.")] = None
    capacity: Annotated[float | None, typer.Option(help="C_max in nats, instead of --snr.")] = None
    transcripts: Annotated[
        Path | None,
        typer.Option(help="NPZ with `members` [K × n] and `redraws` [draws × n]: estimates C_max."),
    ] = None
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Full batches: C_max = ∞.")] = False
    entropy: Annotated[float | None, typer.Option(help="H(D_k) in nats, if known.")] = None


@dataclass(frozen=True)
class RateOptions:
    """What the table of rates depends on besides."""

    help_panel: ClassVar = "Table of rates"

    epsilon: Annotated[float, typer.Option(help="ε of the private methods.")] = 10.0
    delta: Annotated[float, typer.Option(help="δ of the private methods.")] = 1e-5
    quantiser_error: Annotated[float, typer.Option(help="Relative error ν̃ of Q-DPSGD-1's quantiser.")] = 1.0
