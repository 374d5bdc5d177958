"""`eris bounds`: what the theory promises, and what is known against each promise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]

_STEP, _POTENTIAL, _LEAK, _RATES = "Step and utility", "Start and target", "Leakage", "Table of rates"


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def bounds(
        context: typer.Context,
        members: Annotated[int, typer.Option("--members", "-k", help="Members K.", rich_help_panel=_STEP)] = 50,
        omega: Annotated[float, typer.Option(help="Variance ω of the compressor.", rich_help_panel=_STEP)] = 19.0,
        keep: Annotated[str, typer.Option(help="The same as kept share p = 1/(1+ω).", rich_help_panel=_STEP)] = "",
        masks: Annotated[
            str, typer.Option(help="Compression masks: shared or independent.", rich_help_panel=_STEP)
        ] = "shared",
        smoothness: Annotated[float, typer.Option("--smoothness", "-L", help="L.", rich_help_panel=_STEP)] = 1.0,
        beta: Annotated[float, typer.Option(help="The theorem's free β > 0.", rich_help_panel=_STEP)] = 0.1,
        gamma1: Annotated[float, typer.Option(help="Γ₁ of the estimator.", rich_help_panel=_STEP)] = 0.0,
        gamma2: Annotated[
            float | None, typer.Option(help="Γ₂; left out: from samples, batch, G.", rich_help_panel=_STEP)
        ] = None,
        gamma3: Annotated[float, typer.Option(help="Γ₃.", rich_help_panel=_STEP)] = 0.0,
        gamma4: Annotated[float, typer.Option(help="Γ₄.", rich_help_panel=_STEP)] = 0.0,
        theta: Annotated[float, typer.Option(help="θ.", rich_help_panel=_STEP)] = 1.0,
        samples: Annotated[int, typer.Option(help="Samples m of a member.", rich_help_panel=_STEP)] = 64,
        batch: Annotated[int, typer.Option(help="Batch size b.", rich_help_panel=_STEP)] = 16,
        gradient_norm: Annotated[
            float, typer.Option("--gradient-norm", "-G", help="Bound G on a sample's gradient.", rich_help_panel=_STEP)
        ] = 1.0,
        step: Annotated[
            float | None, typer.Option(help="Step λ; left out: the largest allowed.", rich_help_panel=_POTENTIAL)
        ] = None,
        gap: Annotated[float, typer.Option(help="f(x⁰) − f*.", rich_help_panel=_POTENTIAL)] = 5.0,
        reference_error: Annotated[
            float, typer.Option(help="Mean of ‖∇f_k(x⁰) − s_k⁰‖².", rich_help_panel=_POTENTIAL)
        ] = 0.0,
        estimator_error: Annotated[float, typer.Option(help="Δ⁰.", rich_help_panel=_POTENTIAL)] = 0.0,
        rounds: Annotated[int, typer.Option("--rounds", "-T", help="Rounds T.", rich_help_panel=_POTENTIAL)] = 120,
        target: Annotated[
            float, typer.Option(help="Target for the mean squared gradient norm.", rich_help_panel=_POTENTIAL)
        ] = 0.05,
        model: Annotated[str, typer.Option(help="Size n, or a model's name.", rich_help_panel=_LEAK)] = "lenet5",
        aggregators: Annotated[
            int | None, typer.Option("--aggregators", "-a", help="Shards A [members].", rich_help_panel=_LEAK)
        ] = None,
        shards: Annotated[str, typer.Option(help="Sizes of unequal shards: 3,1,1.", rich_help_panel=_LEAK)] = "",
        collude: Annotated[int, typer.Option(help="Colluding aggregators.", rich_help_panel=_LEAK)] = 1,
        snr: Annotated[
            float | None, typer.Option(help="Signal-to-noise ratio of one coordinate.", rich_help_panel=_LEAK)
        ] = None,
        capacity: Annotated[
            float | None, typer.Option(help="C_max in nats, instead of --snr.", rich_help_panel=_LEAK)
        ] = None,
        transcripts: Annotated[
            Path | None,
            typer.Option(
                help="NPZ with `members` [K × n] and `redraws` [draws × n]: estimates C_max.", rich_help_panel=_LEAK
            ),
        ] = None,
        deterministic: Annotated[
            bool, typer.Option("--deterministic", help="Full batches: C_max = ∞.", rich_help_panel=_LEAK)
        ] = False,
        entropy: Annotated[float | None, typer.Option(help="H(D_k) in nats, if known.", rich_help_panel=_LEAK)] = None,
        epsilon: Annotated[float, typer.Option(help="ε of the private methods.", rich_help_panel=_RATES)] = 10.0,
        delta: Annotated[float, typer.Option(help="δ of the private methods.", rich_help_panel=_RATES)] = 1e-5,
        quantiser_error: Annotated[
            float, typer.Option(help="Relative error ν̃ of Q-DPSGD-1's quantiser.", rich_help_panel=_RATES)
        ] = 1.0,
        run: Annotated[
            Path | None,
            typer.Option("--from", help="A finished run: estimate constants from it, compare.", metavar="DIR"),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    ) -> None:
        """Say what the theory allows and promises: steps, utility, rounds, leakage, rates.

        Every number comes with what is known against it. None of them is a measurement: leakage in particular has to
        be measured with an attack.

        **Examples**

        `eris bounds --members 50 --omega 19 --masks independent --samples 64 --batch 16`

        `eris bounds --model lenet5 --aggregators 50 --keep 3.3% --rounds 120 --snr 0.01 --collude 2`

        `eris bounds --from runs/digits`
        """
        from eris.cli.planning.question import BoundsQuestion
        from eris.cli.planning.theory import show_bounds

        given = frozenset(name for name in context.params if _on_command_line(context, name))
        show_bounds(
            BoundsQuestion(
                members, omega, keep, masks, smoothness, beta, gamma1, gamma2, gamma3, gamma4, theta, samples, batch,
                gradient_norm, step, gap, reference_error, estimator_error, rounds, target, model, aggregators, shards,
                collude, snr, capacity, transcripts, deterministic, entropy, epsilon, delta, run, as_json, given,
                quantiser_error,
            )
        )  # fmt: skip


def _on_command_line(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
