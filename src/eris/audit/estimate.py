"""An observer's best estimate of a member's update, from what it saw.

On the coordinates that it sees, the attacker undoes the transforms it knows of. With shifted compression a kept value
is v = (g − s_k)/p: an attacker that has followed the coordinate knows s_k = γ Σ v, and so g itself. On all other
coordinates it takes what is published and removes its own part, which leaves the mean of the others, in which the
victim has a share. Where only the victim is left in that mean, its value is seen after all. With momentum kept over
rounds, the fresh part of an update is Δᵗ − β Δᵗ⁻¹.

An aggregator p of masked shards receives y = z + pad mod 2³² from every member and the sum of all pads from the
unmasker, and publishes the difference. So besides the broadcasts it has y, and nothing else that depends on single
members (`Captured`). An audit that gave it only the broadcasts would assume what it is meant to measure. The pad is the
real one, AES-256 in counter mode over the values in their order; its key comes from the run's seed, as all randomness
of a simulation does.

Where members have their own models, a neighbour receives the victim's model, or a chunk of it, after local training.
The update is the difference from the model the victim started with, which nobody was told. The neighbour uses its own
model at that moment instead: members that mix their models are close to each other, and on a full graph they all start
every round from the same one. Where a method sends gradients, there is nothing to guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.encoding import Ring32
from eris.audit.observer import DecentralisedTranscript, PublishedMean, RoundTranscript, Vantage
from eris.errors import ConfigError
from eris.local.spec import Vector
from eris.methods.own_model import OwnModel
from eris.methods.scaffold import ControlVariates
from eris.privacy.clip import ClipByNorm
from eris.privacy.masking import add_pad
from eris.privacy.noise import GaussianNoise
from eris.protocol.recipe import Recipe
from eris.seeds import Seed
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms import Compress, Compressor, Shift, Transform
from eris.transforms.normalise import NormaliseSteps
from eris.transforms.packed import NO_SCALES
from eris.transforms.sparsify import Sparsifier, StratifiedRandK, share_of
from eris.view import View, seen_shards, view_of

__all__ = ["Captured", "NeighbourEstimator", "UpdateEstimate", "UpdateEstimator", "captured_by", "kept_scale"]

_OTHERS = 4  # members whose models are built for comparison


class Captured(NamedTuple):
    """Values received under a pad: their coordinates, and the padded words decoded as if there were none."""

    coordinates: Coordinates
    values: Vector

    @classmethod
    def nothing(cls) -> Captured:
        """Return an empty capture, as of plain shards, where everything that is received can be read."""
        return cls(np.empty(0, np.int64), np.empty(0, np.float32))


def captured_by(vantage: Vantage, record: RoundTranscript, victim: int, pads: Seed, *, padded: bool = True) -> Captured:
    """Return what observing aggregators received from a victim but cannot read, as none of them is an unmasker.

    Args:
        vantage: the observing aggregators.
        record: the transcript of the round.
        victim: the member.
        pads: the seed of the pads.
        padded: False shows that the pad is what protects: without it the values lie open.
    """
    sent = record.sent[victim]
    if not record.unmaskers or vantage.reach != "own" or not sent.limit:
        return Captured.nothing()
    received = seen_shards(sent.reached, record.assignment, vantage.peers, record.witnesses)
    hidden = tuple(shard for shard in received if shard not in vantage.shards(sent, *record.owners))
    view = view_of(replace(sent, reached=hidden), record.layout, record.assignment, set(record.assignment))
    code = Ring32(sent.limit, np.float32(sent.weight))
    words = code.encode(view.values).values
    if padded and hidden:
        add_pad(words, pads.child("pad", record.round, victim, *hidden).words(8).astype("<u4").tobytes())
    return Captured(view.coordinates, code.decode(words, NO_SCALES, None))


@dataclass(frozen=True)
class UpdateEstimate:
    """A member's update as far as the attacker knows it."""

    view: View = field(repr=False)  # what the observer saw of the victim itself
    seen: Coordinates = field(repr=False)  # those of the view, and where the victim alone is left in a published mean
    update: Vector = field(repr=False)  # on seen: the victim's own values
    rest: Coordinates = field(repr=False)  # where the victim is known only as part of a mean
    means: Vector = field(repr=False)  # on rest: the mean of the victim and the others
    share: float  # the victim's weight in these means
    fresh_update: Vector = field(repr=False)  # update without what momentum carried over
    fresh_means: Vector = field(repr=False)  # means without what momentum carried over
    captured: Captured = field(default_factory=Captured.nothing, repr=False)  # from masked shards, still under the pad


class UpdateEstimator:
    """Estimates one victim's update, round after round, as seen from one vantage.

    Args:
        recipe: how updates are transformed and aggregated.
        victim: the member.
        vantage: where it is observed from.
        momentum: the local momentum that members keep over rounds.
        masks_known: whether it also knows which coordinates each member kept, as it would if independent masks came
            from a seed that everybody has.
    """

    def __init__(
        self, recipe: Recipe, victim: int, vantage: Vantage, *, momentum: float = 0.0, masks_known: bool = False
    ) -> None:
        self.victim, self.vantage, self._recipe = victim, vantage, recipe
        self._counts_kept = masks_known and not recipe.compressor.shared_support
        self._n, self._momentum = recipe.spec.n_trainable, np.float32(momentum)
        # SCAFFOLD's control variates are references too: with c_k put back, what is left is the member's own gradient.
        self._shift = next((t for t in recipe.chain.transforms if isinstance(t, Shift | ControlVariates)), None)
        self._by_steps = any(isinstance(t, NormaliseSteps | ControlVariates) for t in recipe.chain.transforms)
        self._step_size = self._shift.lr if isinstance(self._shift, ControlVariates) else 1.0
        _require_known(recipe.chain.transforms)
        if self._shift is not None:
            self._own, self._public, self._others = (np.zeros(self._n, np.float32) for _ in range(3))
        self._before: tuple[Vector, NDArray[np.bool_]] | None = None  # the last estimate, and where it was seen
        self.padded = True  # False shows what masked shards would reveal without their pads

    def follow(self, record: RoundTranscript) -> UpdateEstimate:
        """Return the estimate of this round's update, and keep what later rounds need."""
        if record.new_references:
            self._begin_references(record)
        view = self.vantage.view(record.sent[self.victim], record.layout, *record.owners)
        others = self._mean_of_others(record)
        sole, rest = np.flatnonzero(others.sole), np.flatnonzero(others.hidden)
        seen = np.concatenate([view.coordinates, sole])
        order = np.argsort(seen)  # attacks take n seen coordinates for all of them, in ascending order
        seen, sent = seen[order], np.concatenate([view.values, others.values[sole]])[order]
        update = self._unshifted(seen, sent, view, record)
        means = self._unshifted_means(rest, others.values[rest], record)
        fresh = self._fresh(seen, update, rest, means)
        if self._shift is not None:
            self._advance_public(record, others)
            self._advance_own(record, seen, sent, rest, others)
        captured = self._captured(view, record)
        return UpdateEstimate(view, seen, update, rest, means, others.share, *fresh, captured)

    def others(self, record: RoundTranscript) -> list[View]:
        """Return views of a few other members, if members send their updates unchanged; otherwise none."""
        compressed = isinstance(self._recipe.compressor, Sparsifier) and self._recipe.compressor.p < 1
        if self._shift is not None or self._by_steps or compressed or self.vantage.reach == "none":
            return []
        members = [member for member in sorted(record.sent) if member != self.victim][:_OTHERS]
        return [self.vantage.view(record.sent[member], record.layout, *record.owners) for member in members]

    def miss(self, record: RoundTranscript) -> None:
        """Follow a round without the victim, as the others' references still move."""
        if record.new_references:
            self._begin_references(record)
        if self._shift is not None:
            self._advance_public(record, self._mean_of_others(record))

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return what the next rounds need."""
        kept: dict[str, NDArray[Any]] = {}
        if self._shift is not None:
            kept |= {"own": self._own, "public": self._public, "others": self._others}
        if self._before is not None:
            kept |= {"before": self._before[0], "seen before": self._before[1]}
        return kept

    def remember(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Know again what `memory` gave."""
        if self._shift is not None:
            self._own, self._public, self._others = (arrays[name].copy() for name in ("own", "public", "others"))
        if "before" in arrays:
            self._before = (arrays["before"].copy(), arrays["seen before"].copy())

    def _unshifted(self, seen: Coordinates, sent: Vector, view: View, record: RoundTranscript) -> Vector:
        update = sent / kept_scale(self._recipe.compressor, record.layout.trainable, seen)
        if self._shift is not None:
            reference = self._public if self._shift.shared_reference else self._own
            update = reference[seen] + update
        return self._whole_steps(update, view.scalars.get("steps", _mean_steps(record)))

    def _unshifted_means(self, rest: Coordinates, residuals: Vector, record: RoundTranscript) -> Vector:
        """Return on `rest` the mean update of all who do not observe: exact under a shared mask, else unbiased.

        `residuals` are the published means there, less the observers' part.
        """
        compressor = self._recipe.compressor
        scale = kept_scale(compressor, record.layout.trainable, rest) if compressor.shared_support else np.float32(1)
        means = residuals / scale
        if self._shift is not None:
            reference = self._public if self._shift.shared_reference else self._others / self._free(record)
            means = reference[rest] + means
        return self._whole_steps(means, _mean_steps(record))

    def _captured(self, view: View, record: RoundTranscript) -> Captured:
        """Return what was received under pads, with the known transforms before the pad undone."""
        where, sent = captured_by(
            self.vantage, record, self.victim, self._recipe.public.child("audit"), padded=self.padded
        )
        return Captured(where, self._unshifted(where, sent, view, record))

    def _whole_steps(self, update: Vector, steps: float) -> Vector:
        return update * np.float32(steps * self._step_size) if self._by_steps else update

    def _mean_of_others(self, record: RoundTranscript) -> _Others:
        """Subtract the observing peers' own part from what was published."""
        others, shares = _Others.nothing(self._n), []
        sent = record.sent.get(self.victim)
        seen = self.vantage.shards(sent, *record.owners) if sent else ()
        for shard, mean in record.means.items():
            own = [peer for peer in self._peers(record) if peer in mean.contributors and self._recipe.rule.linear]
            values = mean.values.copy()
            for peer in own:
                values -= np.float32(record.weights[peer]) * _on(record, peer, mean.coordinates)
            others.sums[mean.coordinates] = values
            # In a shard it sees, the observer knows where the victim sent nothing, so the mean adds no information.
            if self.victim in mean.contributors and shard not in seen:
                shares.append(self._note(record, mean, [peer for peer in mean.contributors if peer not in own], others))
        others.share = sum(shares) / len(shares) if shares else 0.0
        return others

    def _note(self, record: RoundTranscript, mean: PublishedMean, free: list[int], others: _Others) -> float:
        """Record in `others` a mean in which the victim is one of the `free` members; return the victim's share."""
        places, weights = mean.coordinates, record.weights
        kept, total = np.ones(places.size, bool), np.full(places.size, sum(weights[peer] for peer in free))
        alone = np.full(places.size, free == [self.victim])
        if self._counts_kept:
            holds = {peer: _holds(record, peer, places) for peer in free}
            kept, count = holds[self.victim], np.sum(list(holds.values()), axis=0)
            total = np.sum([weights[peer] * held for peer, held in holds.items()], axis=0)
            alone = kept & (count == 1)
        elif not self._recipe.compressor.shared_support:
            alone &= others.sums[places] != 0  # a zero was not kept
        divisor = np.where(kept, total, 1.0) if self._recipe.rule.linear else np.ones(places.size)
        others.values[places] = others.sums[places] / divisor.astype(np.float32)
        others.sole[places], others.hidden[places] = alone, kept & ~alone
        return weights[self.victim] / float(np.mean(total[kept])) if kept.any() else 0.0

    def _peers(self, record: RoundTranscript) -> list[int]:
        return [peer for peer in self.vantage.peers if peer in record.sent]

    def _free(self, record: RoundTranscript) -> np.float32:
        """Return the total roster weight of all peers but the observing ones."""
        return np.float32(max(1 - sum(record.weights[peer] for peer in self.vantage.peers), 1e-9))

    def _fresh(self, seen: Coordinates, update: Vector, rest: Coordinates, means: Vector) -> tuple[Vector, Vector]:
        """Return `update` (on `seen`) and `means` (on `rest`) without what momentum carried over from the last round.

        It is subtracted only where the coordinate was known in the same way then.
        """
        if not self._momentum:
            return update, means
        now, was_seen = np.zeros(self._n, np.float32), np.zeros(self._n, bool)
        now[seen], now[rest], was_seen[seen] = update, means, True
        before, self._before = self._before, (now, was_seen)
        if before is None:
            return update, means
        old, known = before  # a coordinate seen in only one of the two rounds says nothing
        carried: tuple[Vector, Vector] = (known[seen] * old[seen], ~known[rest] * old[rest])
        return update - self._momentum * carried[0], means - self._momentum * carried[1]

    def _advance_public(self, record: RoundTranscript, others: _Others) -> None:
        """Advance the mean references as the peers do, on committed shards."""
        step = self._reference_step(record)
        for mean in record.means.values():
            self._public[mean.coordinates] += step * mean.values
        self._others += step * others.sums

    def _advance_own(
        self, record: RoundTranscript, seen: Coordinates, sent: Vector, rest: Coordinates, others: _Others
    ) -> None:
        """Advance the victim's reference as the victim does: by `sent` on the `seen` coordinates that were accepted."""
        step = self._reference_step(record)
        self._own[rest] += step * others.values[rest]  # a guess, in case a redrawn plan reveals the coordinate
        accepted = np.isin(record.layout.trainable.owners_of(seen), record.accepted(self.victim))
        self._own[seen[accepted]] += step * sent[accepted]

    def _reference_step(self, record: RoundTranscript) -> np.float32:
        assert self._shift is not None
        return self._shift.reference_step(self._n, record.round)

    def _begin_references(self, record: RoundTranscript) -> None:
        """Reset the references as every member does in a new reference epoch: s_k := s."""
        if self._shift is not None:
            np.copyto(self._own, self._public)
            np.copyto(self._others, self._free(record) * self._public)


def _require_known(transforms: Sequence[Transform]) -> None:
    """Refuse a transform that the attacker does not know how to undo: its figures would be too low."""
    known = (Shift, ControlVariates, NormaliseSteps, Compress, ClipByNorm, GaussianNoise, OwnModel)
    for transform in transforms:
        if type(transform).outgoing is not Transform.outgoing and not isinstance(transform, known):
            raise ConfigError(
                f"an attacker who knows the method would undo {transform!r}, but this audit does not know how",
                fix="audit a method with eris's own transforms; figures for this one would be too low",
                key="method",
            )


@dataclass
class _Others:
    """What was published, on all coordinates, less the observing peers' own part."""

    sums: Vector  # Σ w v over the other peers
    values: Vector  # their mean, where the victim is among them
    hidden: NDArray[np.bool_]  # where that mean is all that is known of the victim
    sole: NDArray[np.bool_]  # where the victim alone is left in it
    share: float = 0.0  # of the victim in the means

    @classmethod
    def nothing(cls, n: int) -> _Others:
        """Return the value before any mean has been recorded."""
        return cls(np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros(n, bool), np.zeros(n, bool))


def kept_scale(compressor: Compressor, plan: ShardPlan, coordinates: Coordinates) -> np.float32 | Vector:
    """Return the factor by which a compressor scaled kept values: 1 + ω for sparsifiers, 1 for all others.

    A stratified one has a factor for each shard: then there is one for each of the coordinates, by its shard in `plan`.
    """
    if isinstance(compressor, StratifiedRandK):
        sizes = plan.sizes.tolist()
        ratios = [size / max(1, share_of(compressor.p, size, round_up=True)) for size in sizes]
        return np.array(ratios, np.float32)[plan.owners_of(coordinates)]
    if isinstance(compressor, Sparsifier) and compressor.p < 1:
        return compressor.scale(plan.n)
    return np.float32(1)


def _on(record: RoundTranscript, peer: int, coordinates: Coordinates) -> Vector:
    """Return a peer's message at some coordinates, zero where it sent nothing."""
    sent = record.sent[peer]
    if sent.support is None:
        return sent.values[coordinates]
    values = np.zeros(record.layout.trainable.n, np.float32)
    values[sent.support] = sent.values
    return values[coordinates]


def _holds(record: RoundTranscript, peer: int, coordinates: Coordinates) -> NDArray[np.bool_]:
    """Return at which of the coordinates a peer kept a value."""
    support = record.sent[peer].support
    return np.ones(coordinates.size, bool) if support is None else np.isin(coordinates, support)


def _mean_steps(record: RoundTranscript) -> float:
    """Return the weighted mean of the members' local steps, which is published with the shards."""
    weights = [record.weights[member] for member in record.sent]
    return sum(w * sent.steps for w, sent in zip(weights, record.sent.values(), strict=True)) / sum(weights)


class NeighbourEstimator:
    """Estimates one victim's update, round after round, as seen by other members or on the wire.

    Args:
        victim: the member.
        vantage: the observing members, or the wire.
        n: the number of trainable coordinates.
        sends_models: whether messages carry parts of the victim's model, or else of its gradient.
        momentum: the local momentum that members keep over rounds.
    """

    def __init__(self, victim: int, vantage: Vantage, n: int, *, sends_models: bool, momentum: float = 0.0) -> None:
        self.victim, self.vantage = victim, vantage
        self._n, self._sends_models, self._momentum = n, sends_models, np.float32(momentum)
        self._heard: dict[int, Vector] = {}  # on the wire: what each member sent last
        self._before: Vector | None = None

    def model(self, record: DecentralisedTranscript) -> Vector:
        """Return the model that the victim is assumed to have started the round with: the mean of the observers' own.

        The wire has no model of its own. It starts with the common initial model, and continues with the mean of what
        all members sent last.
        """
        if self.vantage.peers:
            return _mean([record.models[peer] for peer in self.vantage.peers])
        if not self._heard:
            self._heard = {member: record.models[member].copy() for member in range(len(record.models))}
        return _mean([self._heard[member] for member in sorted(self._heard)])

    def follow(self, record: DecentralisedTranscript, model: Vector) -> UpdateEstimate:
        """Return the estimate of the victim's update, given the model it is assumed to have started with."""
        seen, values = self._seen(record)
        update = model[seen] - values if self._sends_models else values
        if not self.vantage.peers and self._sends_models:
            self._remember(record)
        nothing, no_place = np.empty(0, np.float32), np.empty(0, np.int64)
        view = View(record.round, self.victim, seen, update, no_place, nothing, {})
        return UpdateEstimate(view, seen, update, no_place, nothing, 0.0, self._fresh(seen, update), nothing)

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return what the next rounds need."""
        kept: dict[str, NDArray[Any]] = {}
        if self._heard:
            kept["heard"] = np.stack([self._heard[member] for member in sorted(self._heard)])
        if self._before is not None:
            kept["before"] = self._before
        return kept

    def remember(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Know again what `memory` gave."""
        if "heard" in arrays:
            self._heard = {member: model.copy() for member, model in enumerate(arrays["heard"])}
        if "before" in arrays:
            self._before = arrays["before"].copy()

    def _seen(self, record: DecentralisedTranscript) -> tuple[NDArray[np.int64], Vector]:
        """Return the victim's coordinates that reached the observers, each once, and their values."""
        values, reached = np.zeros(self._n, np.float32), np.zeros(self._n, bool)
        for sent in record.sent.get(self.victim, ()):
            if self.vantage.hears(sent):
                places = slice(None) if sent.support is None else sent.support
                values[places], reached[places] = sent.values, True
        seen = np.flatnonzero(reached)
        return seen, values[seen]

    def _remember(self, record: DecentralisedTranscript) -> None:
        for member, messages in record.sent.items():
            for sent in messages:
                if sent.reached:
                    self._heard[member][slice(None) if sent.support is None else sent.support] = sent.values

    def _fresh(self, seen: NDArray[np.int64], update: Vector) -> Vector:
        """Subtract what momentum carried over, where the coordinate was seen in the last round too."""
        if not self._momentum:
            return update
        now = np.full(self._n, np.nan, np.float32)
        now[seen] = update
        before, self._before = self._before, now
        return update if before is None else update - self._momentum * np.nan_to_num(before[seen])


def _mean(models: list[Vector]) -> Vector:
    total = models[0].copy()
    for model in models[1:]:
        total += model
    return total / np.float32(len(models))
