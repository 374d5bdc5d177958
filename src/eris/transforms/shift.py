"""Distributed shifted compression (DSC): compress the difference to a reference, so that compression error fades.

    member k:     v_k = C(g_k − s_k)                 s_k ← s_k + γ v_k     (on accepted coordinates)
    every peer:   u   = s + c·v̄,  v̄ = Σ w_k v_k      s   ← s + γ v̄

The invariant s = Σ_k w_k s_k (over *all* members) survives partial participation and lost messages because only the
direction is normalised by c; the reference never is. s follows from what is published, so aggregators hold no state and
any peer can take over any shard. Membership or weight changes begin a reference epoch: all members set s_k := s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from eris.errors import ConfigError
from eris.local.spec import Vector
from eris.shards.plan import Coordinates
from eris.storage.mapped import is_mapped, release
from eris.storage.stretch import stretches
from eris.transforms.compress import CompressesBlocks, CompressesDifference, Compressor, require_compressor
from eris.transforms.kept import Blocks
from eris.transforms.packed import Packed
from eris.transforms.transform import Accepted, MeanStretch, SendContext, State, Transform

__all__ = ["Gamma", "GammaSchedule", "Shift", "gamma_diana", "gamma_paper", "shift"]

Gamma = Literal["paper", "diana"] | float
GammaSchedule = Callable[[int], float]  # γ_t/γ as a function of the round


def gamma_paper(omega: float) -> float:
    """Return γ = √((1+2ω) / (2(1+ω)³)).

    >>> round(gamma_paper(9), 8)
    0.09746794
    """
    return math.sqrt((1 + 2 * omega) / (2 * (1 + omega) ** 3))


def gamma_diana(omega: float) -> float:
    """Return γ = 1/(1+ω)."""
    return 1 / (1 + omega)


class Shift(Transform):
    """Shift by a reference, then compress.

    Args:
        compressor: makes the difference smaller.
        gamma: step of the references: `paper`, `diana` or a number in (0, 1].
        shared_reference: whether all members share one reference.
        schedule: factor of γ in each round, at most 1; by default 1.
    """

    needs_linear_rule = only_sums = True  # s = Σ w_k s_k holds for means only

    def __init__(
        self,
        compressor: Compressor,
        *,
        gamma: Gamma = "paper",
        shared_reference: bool = False,
        schedule: GammaSchedule | None = None,
    ) -> None:
        if isinstance(gamma, str) and gamma not in ("paper", "diana"):
            raise ConfigError(f"gamma is {gamma!r}", fix="use 'paper', 'diana' or a number in (0, 1]")
        if not isinstance(gamma, str) and not 0 < gamma <= 1:
            raise ConfigError(f"gamma is {gamma}", fix="use 'paper', 'diana' or a number in (0, 1]")
        if not require_compressor(compressor).unbiased:
            _require_ef21(compressor, gamma, shared_reference)
        self.compressor, self.gamma, self.shared_reference = compressor, gamma, shared_reference
        self._schedule = schedule  # factor of γ in a round; at most 1, so that no bound is broken

    def __repr__(self) -> str:
        shared = ", shared_reference=True" if self.shared_reference else ""
        return f"shift({self.compressor!r}, gamma={self.gamma}{shared})"

    def reference_step(self, n: int, round: int = 0) -> np.float32:
        """Return γ_t for vectors of length n."""
        factor = 1.0 if self._schedule is None else self._schedule(round)
        return np.float32(self._constant_step(n) * factor)

    def _constant_step(self, n: int) -> float:
        if not isinstance(self.gamma, str):
            return self.gamma
        omega = self.compressor.omega(n)
        if omega is None:
            raise ConfigError(f"{self.compressor!r} is biased and has no ω to derive gamma from", fix="use gamma = 1")
        return gamma_paper(omega) if self.gamma == "paper" else gamma_diana(omega)

    def check_length(self, n: int) -> None:
        """Refuse a γ with which references run away: the squared error changes by 1 − 2γ + γ²(1+ω) each round."""
        omega, step = self.compressor.omega(n), float(self.reference_step(n))
        if omega is not None and step * (1 + omega) >= 2:
            raise ConfigError(
                f"gamma is {self.gamma}, but {self.compressor!r} has ω = {omega:.4g} for n = {n}: references diverge",
                fix=f"use 'paper', 'diana', or a number up to {1 / (1 + omega):.4g}",
            )

    def private_state(self, n: int) -> State:
        """Return s_k = 0; with a shared reference a member keeps nothing."""
        return {} if self.shared_reference else {"reference": np.zeros(n, np.float32)}

    def public_state(self, n: int) -> State:
        """Return s = 0."""
        return {"reference": np.zeros(n, np.float32)}

    def _reference(self, context: SendContext) -> Vector:
        return (context.public_state if self.shared_reference else context.private_state)["reference"]

    def outgoing(self, update: Vector, context: SendContext) -> Packed:
        """Return C(g − s_k)."""
        reference = self._reference(context)
        if isinstance(self.compressor, CompressesDifference):
            return self.compressor.compress_difference(update, reference, context)
        return self.compressor.compress(update - reference, context)

    def outgoing_blocks(self, blocks: Blocks, n: int, context: SendContext) -> Packed:
        """Return C(g − s_k) of an update g that comes in blocks."""
        assert isinstance(self.compressor, CompressesBlocks)
        return self.compressor.compress_blocks(blocks, n, self._reference(context), context)

    def settle(self, sent: Vector | Packed, private: State, accepted: Accepted) -> None:
        """Advance s_k where the verdict accepted this member."""
        if self.shared_reference:
            return
        assert isinstance(sent, Packed)
        advance(private["reference"], sent, self.reference_step(sent.n, accepted.round), accepted)

    def incoming(self, direction: Vector, mean: MeanStretch) -> None:
        """Add s to the direction, then advance s; where nothing was sent or a shard was lost it stays, v̄ being zero."""
        reference = mean.public_state["reference"]
        direction += reference
        step = self.reference_step(mean.whole or reference.size, mean.round)
        if mean.support is None:
            reference += step * mean.values
        else:
            reference[mean.support] += step * mean.values[mean.support]

    def new_epoch(self, private: State, public: State) -> None:
        """Begin a reference epoch: s_k := s."""
        if self.shared_reference:
            return
        mine, common = private["reference"], public["reference"]
        for place in stretches(mine.size):
            np.copyto(mine[place], common[place])
            release(mine[place])
            release(common[place])


def advance(reference: Vector, sent: Packed, step: np.float32, accepted: Accepted) -> None:
    """Do s_k ← s_k + γ v_k in place, on accepted coordinates only; the cost grows with the support, not the vector.

    `reference` is s_k, `sent` v_k and `step` γ.
    """
    values, chosen = step * sent.values(), accepted.selects(sent.support)
    if sent.support is None:
        np.add(reference, values, out=reference, where=True if chosen is None else chosen)
    else:
        support = sent.support if chosen is None else sent.support[chosen]
        _add_at(reference, support, values if chosen is None else values[chosen])


def _add_at(reference: Vector, support: Coordinates, values: Vector) -> None:
    """Add values on an ascending support; where the reference lies in a file, a stretch of it at a time."""
    for place in stretches(reference.size) if is_mapped(reference) else [slice(0, reference.size)]:
        first, last = np.searchsorted(support, [place.start, place.stop])
        reference[support[first:last]] += values[first:last]
        release(reference[place])


def _require_ef21(compressor: Compressor, gamma: Gamma, shared_reference: bool) -> None:
    """Refuse a biased compressor unless its error goes to zero all the same."""
    if gamma != 1:
        raise ConfigError(
            f"{compressor!r} is biased, but gamma is {gamma!r}",
            fix="use gamma = 1 (that is EF21), or an unbiased compressor",
        )
    if not compressor.contractive:
        raise ConfigError(f"{compressor!r} is biased and not a contraction", fix="use it without a shift")
    if shared_reference:
        raise ConfigError(
            f"{compressor!r} is biased and the reference is shared, so its error would not fade",
            fix="use shared_reference = false, or an unbiased compressor",
        )


def shift(
    compressor: Compressor,
    *,
    gamma: Gamma = "paper",
    shared_reference: bool = False,
    schedule: GammaSchedule | None = None,
) -> Shift:
    """Shift by a reference, then compress (DSC).

    Args:
        compressor: of the difference.
        gamma: γ, the step of the reference, as a number or a rule's name.
        shared_reference: one reference for all members instead of one for each.
        schedule: gives γ_t/γ for a round.
    """
    return Shift(compressor, gamma=gamma, shared_reference=shared_reference, schedule=schedule)
