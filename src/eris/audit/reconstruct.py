"""What an attacker makes of what it saw: the best estimate of a member's update.

On the coordinates it sees it undoes what it knows was done. With shifted compression a kept value is v = (g − s_k)/p:
an attacker that has followed the coordinate knows s_k = γ Σ v, so it has g itself. Everywhere else it takes what is
published, without its own part: the mean of the others, in which the victim has a share. With momentum kept over rounds
the fresh part of an update is Δᵗ − β Δᵗ⁻¹.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eris.audit.observer import Vantage
from eris.audit.transcript import RoundRecord
from eris.local.spec import Vector
from eris.protocol.recipe import Recipe
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms import Compressor, Shift
from eris.transforms.normalise import NormaliseSteps
from eris.transforms.sparsify import Sparsifier, StratifiedRandK, share_of
from eris.view import View

__all__ = ["Estimate", "Reconstruction", "kept_scale"]


@dataclass(frozen=True)
class Estimate:
    """An update as far as the attacker knows it."""

    view: View = field(repr=False)
    update: Vector = field(repr=False)  # on view.coordinates: the victim's own values
    rest: Coordinates = field(repr=False)
    means: Vector = field(repr=False)  # on rest: the mean of the victim and the others
    share: float  # the victim's weight in these means
    fresh_update: Vector = field(repr=False)  # the same without what momentum carried over
    fresh_means: Vector = field(repr=False)


class Reconstruction:
    """Follows one victim from one vantage through the rounds."""

    def __init__(self, recipe: Recipe, victim: int, vantage: Vantage, *, momentum: float = 0.0) -> None:
        self.victim, self.vantage, self._recipe = victim, vantage, recipe
        self._n, self._momentum = recipe.spec.n_trainable, np.float32(momentum)
        last = recipe.chain.transforms[-1]
        self._shift = last if isinstance(last, Shift) else None
        self._by_steps = any(isinstance(transform, NormaliseSteps) for transform in recipe.chain.transforms)
        if self._shift is not None:
            self._step = self._shift.reference_step(self._n)
            self._own, self._public, self._others = (np.zeros(self._n, np.float32) for _ in range(3))
        self._before: tuple[Vector, Vector] | None = None

    def follow(self, record: RoundRecord) -> Estimate:
        """Return the estimate of this round's update, and keep what the next rounds need."""
        if record.new_references:
            self._begin_references(record)
        view = self.vantage.view(record.sent[self.victim], record.layout, record.assignment)
        others = self._mean_of_others(record)
        rest = np.flatnonzero(others.hidden)
        update = self._unshifted(view, record.layout.trainable)
        means = self._unshifted_means(rest, others.values[rest], record)
        fresh = self._fresh(view.coordinates, update, rest, means)
        if self._shift is not None:
            self._advance_public(record, others)
            self._advance_own(record, view, rest, others)
        return Estimate(view, update, rest, means, others.share, *fresh)

    def miss(self, record: RoundRecord) -> None:
        """Follow a round in which the victim took no part: the others' references move all the same."""
        if record.new_references:
            self._begin_references(record)
        if self._shift is not None:
            self._advance_public(record, self._mean_of_others(record))

    def _unshifted(self, view: View, plan: ShardPlan) -> Vector:
        update = view.values / kept_scale(self._recipe.compressor, plan, view.coordinates)
        if self._shift is not None:
            reference = self._public if self._shift.shared_reference else self._own
            update = reference[view.coordinates] + update
        return self._whole_steps(update, view.scalars.get("steps", 1.0))

    def _unshifted_means(self, rest: Coordinates, residuals: Vector, record: RoundRecord) -> Vector:
        """Return the others' mean update: exact under a shared mask, unbiased under secret ones."""
        compressor = self._recipe.compressor
        scale = kept_scale(compressor, record.layout.trainable, rest) if compressor.shared_support else np.float32(1)
        means = residuals / scale
        if self._shift is not None:
            free = 1 - sum(record.weights[peer] for peer in self._peers(record))
            reference = self._public if self._shift.shared_reference else self._others / np.float32(max(free, 1e-9))
            means = reference[rest] + means
        steps = [sent.steps for sent in record.sent.values()]
        return self._whole_steps(means, sum(steps) / len(steps))

    def _whole_steps(self, update: Vector, steps: float) -> Vector:
        return update * np.float32(steps) if self._by_steps else update

    def _mean_of_others(self, record: RoundRecord) -> _Others:
        """Take the observing peers' own part off what was published."""
        others, shares = _Others.nothing(self._n), []
        sent = record.sent.get(self.victim)
        seen = self.vantage.shards(sent, record.assignment) if sent else ()
        for shard, mean in record.means.items():
            own = (
                [peer for peer in self._peers(record) if peer in mean.contributors] if self._recipe.rule.linear else []
            )
            values = mean.values.copy()
            for peer in own:
                values -= np.float32(record.weights[peer]) * _on(record, peer, mean.coordinates)
            free = sum(record.weights[peer] for peer in mean.contributors if peer not in own)
            others.sums[mean.coordinates] = values
            if self.victim in mean.contributors:
                others.values[mean.coordinates] = values / np.float32(free if self._recipe.rule.linear else 1.0)
                # In a shard that it sees, it knows where the victim sent nothing: the mean says nothing more.
                others.hidden[mean.coordinates] = shard not in seen
                shares.append(record.weights[self.victim] / free)
        others.share = sum(shares) / len(shares) if shares else 0.0
        return others

    def _peers(self, record: RoundRecord) -> list[int]:
        return [peer for peer in self.vantage.peers if peer in record.sent]

    def _fresh(self, seen: Coordinates, update: Vector, rest: Coordinates, means: Vector) -> tuple[Vector, Vector]:
        """Take off what momentum carried over, where the coordinate was known in the last round too."""
        if not self._momentum:
            return update, means
        now = tuple(np.full(self._n, np.nan, np.float32) for _ in range(2))
        now[0][seen], now[1][rest] = update, means
        before, self._before = self._before, (now[0], now[1])
        if before is None:
            return update, means
        carried = [np.nan_to_num(old[places]) for old, places in zip(before, (seen, rest), strict=True)]
        return update - self._momentum * carried[0], means - self._momentum * carried[1]

    def _advance_public(self, record: RoundRecord, others: _Others) -> None:
        """Advance the mean references as the peers do: on committed shards."""
        for mean in record.means.values():
            self._public[mean.coordinates] += self._step * mean.values
        self._others += self._step * others.sums

    def _advance_own(self, record: RoundRecord, view: View, rest: Coordinates, others: _Others) -> None:
        """Advance the victim's reference as it does itself, where it was seen and accepted."""
        self._own[rest] += self._step * others.values[rest]  # a guess, for when a redrawn plan shows the coordinate
        accepted = np.isin(record.layout.trainable.owners_of(view.coordinates), record.accepted(self.victim))
        self._own[view.coordinates[accepted]] += self._step * view.values[accepted]

    def _begin_references(self, record: RoundRecord) -> None:
        """Do what every member does in a new reference epoch: s_k := s."""
        if self._shift is not None:
            free = 1 - sum(record.weights[peer] for peer in self._peers(record))
            np.copyto(self._own, self._public)
            np.copyto(self._others, np.float32(free) * self._public)


@dataclass
class _Others:
    """What was published of all but the observing peers, on all coordinates."""

    sums: Vector  # Σ w v over them
    values: Vector  # their mean, where the victim is among them
    hidden: NDArray[np.bool_]  # where that is all there is
    share: float = 0.0  # of the victim

    @classmethod
    def nothing(cls, n: int) -> _Others:
        """Return an account that is still empty."""
        return cls(np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros(n, bool))


def kept_scale(compressor: Compressor, plan: ShardPlan, coordinates: Coordinates) -> np.float32 | Vector:
    """Return what a compressor multiplied the kept values by: 1 + ω for sparsifiers, 1 for all others."""
    if isinstance(compressor, StratifiedRandK):
        sizes = plan.sizes.tolist()
        ratios = [size / max(1, share_of(compressor.p, size, round_up=True)) for size in sizes]
        return np.array(ratios, np.float32)[plan.owners_of(coordinates)]
    if isinstance(compressor, Sparsifier) and compressor.p < 1:
        return compressor.scale(plan.n)
    return np.float32(1)


def _on(record: RoundRecord, peer: int, coordinates: Coordinates) -> Vector:
    """Return a peer's own message at some coordinates, zero where it sent nothing."""
    sent = record.sent[peer]
    if sent.support is None:
        return sent.values[coordinates]
    places = np.searchsorted(sent.support, coordinates)
    places = np.minimum(places, sent.support.size - 1)
    return np.where(sent.support[places] == coordinates, sent.values[places], np.float32(0))
