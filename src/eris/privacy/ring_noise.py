"""Noise on fixed-point integers: each member's own, or shares of which only the sum is enough.

In fixed point noise is added *after* the limit, in grid steps, so that no tail is cut. What a member sends is
z = rint(w·v·2^f) + ξ, ξ from the discrete Gaussian.

**Own noise** (`privacy.noise = "own"`) is enough by itself, against any observer: σ times what replacing the member's
data can change. **Shares** (`"shares"`, with masked shards) are enough only together, because nobody sees less than a
sum over C_min members: σ_share² = σ²/(C_min − T), with T members assumed to reveal their shares to others. The mean
then has about 1/C_min of the noise's variance; what an aggregator and its unmaskers see together has one share.

    observer                                  shares of noise it cannot remove
    an outsider, one aggregator, one unmasker C_min
    a member                                  C_min − 1
    T members together                        C_min − T        what ε is promised for
    an aggregator with its unmaskers          1, the victim's own

Sensitivity includes rounding. Two neighbouring updates differ by 2C·w·2^f (times a sparsifier's factor), each was
rounded to the grid (√n/2 steps), and went through a few float32 operations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eris.aggregate.fixed_point import RingScale
from eris.errors import ConfigError
from eris.privacy.accountant import Accountant, Epsilon
from eris.privacy.discrete_gaussian import TAIL
from eris.transforms.capabilities import BoundsNorm
from eris.transforms.chain import Chain

__all__ = ["NOISE_ROOM", "KeptValues", "RingNoise", "Sum", "Worth", "observers", "sum_correction"]

NOISE_ROOM = 1 << 28  # grid steps of noise beyond what values alone can sum to: R is chosen so that TAIL·σ fits
_LEAST = 8.0  # grid steps of a share: above it a sum of discrete Gaussians is one, to e^−600
_FLOAT_ERROR = 2.0**-22  # relative, of subtracting a reference, scaling and weighing in float32
_LEAST_LIMIT, _LARGEST_LIMIT = -60, 60


@dataclass(frozen=True, slots=True)
class KeptValues:
    """What noise is added to: how many values are sent, their sparsifier's factor, and whether they are shifted."""

    values: int
    factor: float = 1.0
    shifted: bool = False


@dataclass(frozen=True, slots=True)
class RingNoise:
    """Gaussian noise of `multiplier` σ on updates of norm at most `bound`, in fixed point."""

    multiplier: float
    bound: float
    shares: bool = False  # whether σ is that of the smallest sum, or of each contribution
    colluders: int = 1  # T, for shares

    def __post_init__(self) -> None:
        if not (math.isfinite(self.multiplier) and self.multiplier > 0):
            raise ConfigError(f"noise multiplier is {self.multiplier}", fix="use a finite number > 0, or no noise")
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise ConfigError(f"the norm bound of the noise is {self.bound}", fix="set privacy.clip > 0")

    def __repr__(self) -> str:
        if self.shares:
            return f"noise_shares({self.multiplier}, bound={self.bound}, colluders={self.colluders})"
        return f"gaussian_noise({self.multiplier}, bound={self.bound})"

    def check(self, chain: Chain) -> None:
        """Refuse to add noise to updates of unknown norm."""
        known: float | None = None
        for transform in chain.transforms[:-1]:
            known = transform.norm_bound(known) if isinstance(transform, BoundsNorm) else None
        if known is None or known > self.bound:
            raise ConfigError(
                f"{self!r} adds noise to an update whose norm is {'unbounded' if known is None else f'up to {known}'}",
                fix=f"put clip_by_norm({self.bound}) right before the transform that packs it",
            )

    def check_members(self, least: int) -> None:
        """Refuse shares that would not be enough: `least` is the smallest number of members in a sum."""
        if self.shares and least - self.colluders < 1:
            raise ConfigError(
                f"a sum may have only {least} members, and {self.colluders} of them are assumed to reveal their noise",
                fix="lower privacy.colluders, or raise server.min_contributors or the number of members",
                key="privacy.colluders",
            )

    def sensitivity(self, weight: float, kept: KeptValues, scale: RingScale) -> float:
        """Return by how many grid steps replacing a member's data can move what it sends, in the ℓ2 norm.

        Args:
            weight: the member's.
            kept: what of the update is sent.
            scale: the grid of the round.
        """
        longest = self.bound * kept.factor * weight / scale.step
        largest = weight * scale.limit / scale.step * math.sqrt(kept.values)  # of any vector within the limit
        floats = _FLOAT_ERROR * (largest if kept.shifted else longest)
        return 2 * (longest + floats + math.sqrt(kept.values) / 2)

    def deviations(self, weights: Sequence[float], least: int, kept: KeptValues, scale: RingScale) -> list[float]:
        """Return the standard deviation that each participant adds, in grid steps.

        Args:
            weights: of all participants.
            least: the fewest members in a sum; matters to shares only.
            kept: what of an update is sent.
            scale: the grid of the round.
        """
        if not self.shares:
            return [self.multiplier * self.sensitivity(weight, kept, scale) for weight in weights]
        self.check_members(least)
        heaviest = self.sensitivity(max(weights), kept, scale)
        return [self.multiplier * heaviest / math.sqrt(least - self.colluders)] * len(weights)

    def least_limit(self, weights: Sequence[float], least: int, kept: KeptValues) -> float:
        """Return the least R under which the tail of the sum's noise fits beside the values.

        The arguments are those of `deviations`.
        """
        for exponent in range(_LEAST_LIMIT, _LARGEST_LIMIT + 1):
            limit = 2.0**exponent
            spread = math.hypot(*self.deviations(weights, least, kept, RingScale(limit)))
            if TAIL * spread <= NOISE_ROOM:
                return limit
        raise ConfigError(
            f"{self!r} does not fit into 32 bits", fix="use less noise, or a smaller model", key="privacy"
        )

    def check_grid(self, deviation: float) -> None:
        """Refuse noise so fine that the grid would show through."""
        if deviation < _LEAST:
            raise ConfigError(
                f"a member's noise is {deviation:.2g} grid steps, less than {_LEAST:g}",
                fix="use more noise, or a smaller server.limit: a grid step is limit/2³⁰",
                key="privacy.noise_multiplier",
            )

    def alone(self, least: int) -> float:
        """Return the multiplier of one member's own share if the smallest sum has `least` members."""
        return self.multiplier / math.sqrt(max(1, least - self.colluders)) if self.shares else self.multiplier

    def spent(self, rounds: int, delta: float) -> Epsilon:
        """Return what is promised to a member that sent an update in `rounds` rounds; see `observers` for the rest."""
        return Accountant.of(self.multiplier, rounds, unit="member", adjacency="replacement").epsilon(delta)


@dataclass(frozen=True, slots=True)
class Sum:
    """One round's smallest sum: how many members it had, how many it needed, and all members' weights."""

    members: int
    least: int
    weights: tuple[float, ...]

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Sum:
        """Read it from a line of verdicts.jsonl; a lost shard counts as if it had the fewest members allowed."""
        plan = line["plan"]
        samples = {entry["peer"]: float(entry["weight"]) for entry in plan["roster"]}
        weights = tuple(samples[peer] / sum(samples.values()) for peer in plan["participants"])
        least = max(int(plan["min_contributors"]), math.ceil(2 * len(weights) / 3) if plan["unmaskers"] else 1)
        counts = [len(shard["contributors"]) for shard in line["verdict"]["shards"] if not shard["lost"]]
        lost = len(counts) < len(line["verdict"]["shards"])
        return cls(least if lost else max(least, min(counts, default=least)), least, weights)


@dataclass(frozen=True, slots=True)
class Worth:
    """The ε that noise gives against each observer: as promised beforehand, and as the sums turned out.

    A round counts if anything was sent in it, committed or not: an aggregator learns the sums of lost shards too.
    """

    promised: dict[str, Epsilon]
    realised: Epsilon | None = None  # against an outsider, given how many members the sums really had

    @classmethod
    def of(
        cls, noise: RingNoise, sums: Sequence[Sum], *, rounds: int, delta: float, masked: bool, values: int
    ) -> Worth:
        """Account for so many rounds; `sums` are the known ones, all others count as the smallest allowed.

        Args:
            noise: what each member added.
            sums: at least one; their weights and members.
            rounds: in which anything was sent.
            delta: of every ε.
            masked: whether aggregators see sums only.
            values: how many are sent.
        """
        worst = min(sums, key=lambda each: each.least)
        against = observers(noise, worst.weights, worst.least, masked=masked, values=values)
        promised = {who: _account([sigma] * rounds, delta) for who, sigma in against.items()}
        if not noise.shares:
            return cls(promised)
        each = [observers(noise, a.weights, a.least, masked=masked, values=values, members=a.members) for a in sums]
        known = [found["outsider"] for found in each][:rounds]
        return cls(promised, _account(known + [against["outsider"]] * (rounds - len(known)), delta))

    def __str__(self) -> str:
        said = ", ".join(f"{who} {spent.value:.3g}" for who, spent in self.promised.items())
        if self.realised is not None:
            said += f"; as the sums turned out, outsider {self.realised.value:.3g}"
        return f"ε by observer: {said}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        found: dict[str, Any] = {"observers": {who: spent.value for who, spent in self.promised.items()}}
        return found if self.realised is None else found | {"realised": self.realised.value}


def _account(multipliers: Sequence[float], delta: float) -> Epsilon:
    accountant = Accountant("member", "replacement")
    for multiplier in multipliers:
        accountant.spend(multiplier)
    return accountant.epsilon(delta)


def observers(
    noise: RingNoise, weights: Sequence[float], least: int, *, masked: bool, values: int = 0, members: int = 0
) -> dict[str, float]:
    """Return the noise multiplier that protects the worst placed member from each observer.

    The worst placed member has the largest weight, in sums of as few members as allowed (`least`, or `members` if
    given), the lightest ones. An aggregator of plain shards sees as much as an aggregator and its unmaskers do of
    `masked` ones. `values` is the number of values sent.

    `weights` are those of all participants.

    >>> noise = RingNoise(2.0, 1.0, shares=True, colluders=2)
    >>> {who: round(sigma, 2) for who, sigma in observers(noise, [0.1] * 10, 7, masked=True).items()}
    {'outsider': 2.37, 'member': 2.19, '2 members': 2.0, 'aggregator with unmaskers': 0.89}
    >>> own = RingNoise(2.0, 1.0)
    >>> {who: round(sigma, 2) for who, sigma in observers(own, [0.1] * 10, 7, masked=True).items()}
    {'outsider': 5.29, 'member': 4.9, 'aggregator with unmaskers': 2.0}
    """
    heaviest, *others = sorted(weights, reverse=True)
    lightest = sorted(others)[: max(0, least - 1)]
    alone = "aggregator with unmaskers" if masked else "aggregator"

    def hidden(known: int) -> float:
        """Return σ of the victim's noise together with that of all but `known` of the others in a sum."""
        if noise.shares:
            left_over = max(1, (members or least) - known)
            bare = noise.multiplier * math.sqrt(left_over / (least - noise.colluders))
            return sum_correction(_LEAST, left_over, values, bare)
        left = lightest[: max(0, len(lightest) - known)]
        return noise.multiplier * math.hypot(1.0, *(weight / heaviest for weight in left))

    found = {"outsider": hidden(0), "member": hidden(1)}
    if noise.shares and noise.colluders > 1:
        found[f"{noise.colluders} members"] = hidden(noise.colluders)
    return {**found, alone: hidden(max(least, members))}


def sum_correction(share: float, members: int, values: int, multiplier: float) -> float:
    """Return the multiplier with which to account for a sum of discrete Gaussians, instead of one Gaussian's.

    A sum of so many, each of deviation `share` (grid steps), is not a discrete Gaussian. With
    τ = 10·Σ_{j<members} exp(−2π²·share²·j/(j+1)) it has the concentrated privacy of 1/multiplier² + τ·values/2, or of
    (1/multiplier + τ·√values)², whichever is less (Kairouz, Liu, Steinke 2021, Theorem 1).

    >>> sum_correction(8.0, 100, 10**9, 2.0)
    2.0
    >>> round(sum_correction(0.8, 10, 1000, 2.0), 2)
    0.83
    """
    tau = 10 * math.fsum(math.exp(-2 * math.pi**2 * share**2 * j / (j + 1)) for j in range(1, members))
    cost = min(math.sqrt(multiplier**-2 + tau * values / 2), 1 / multiplier + tau * math.sqrt(values))
    return 1 / cost
