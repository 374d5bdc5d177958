"""Account for differential privacy: what all rounds so far have cost.

An ε alone says nothing. `Epsilon` carries δ, whose privacy it is (a sample's or a whole member's), against which change
(a neighbour is added or removed, replaced, or zeroed out), how many rounds it covers and how it was computed:

>>> print(Accountant.of(4.0625, 80, unit="sample", adjacency="add-remove").epsilon(1e-5))
ε = 12.1 at δ = 1e-05 for one sample (add-remove), 80 rounds, accountant rdp

Four ways to compute it. For Gaussian noise without sampling: ``rdp``, the closed form over Rényi orders that Opacus
uses too, and ``exact``, the smallest ε there is (Balle and Wang 2018). With Poisson sampling, by Opacus: ``opacus-rdp``
and ``opacus-prv`` (extra ``dp``). Multipliers are standard deviations divided by the sensitivity under the stated
adjacency: C if a neighbour is added or removed, or its part is set to zero while all counts stay as they are; 2C if it
is replaced.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from eris.errors import ConfigError, InputError, MissingExtra
from eris.privacy.privacy_loss import exact_epsilon, rdp_epsilon

__all__ = ["Accountant", "Adjacency", "Epsilon", "Method", "Release", "Unit", "noise_multiplier"]

Unit = Literal["member", "sample"]
Adjacency = Literal["replacement", "add-remove", "zero-out"]
Method = Literal["rdp", "exact", "opacus-rdp", "opacus-prv"]

_LARGEST_MULTIPLIER = 1e6


@dataclass(frozen=True, slots=True)
class Epsilon:
    """A privacy loss with everything that gives it a meaning."""

    value: float
    delta: float
    unit: Unit
    adjacency: Adjacency
    rounds: int
    accountant: str

    def __post_init__(self) -> None:
        _choose("unit", self.unit, Unit)
        _choose("adjacency", self.adjacency, Adjacency)
        if not 0 < self.delta < 1:
            raise InputError(f"δ is {self.delta}", fix="use 0 < δ < 1, well below one over the number of units")
        if not self.value >= 0:
            raise InputError(f"ε is {self.value}", fix="use a number ≥ 0")

    def __str__(self) -> str:
        rounds = f"{self.rounds} round{'' if self.rounds == 1 else 's'}"
        head = f"ε = {self.value:.3g} at δ = {self.delta:g} for one {self.unit} ({self.adjacency})"
        return f"{head}, {rounds}, accountant {self.accountant}"


@dataclass(frozen=True, slots=True)
class Release:
    """A number of rounds of Gaussian noise, all with one multiplier, each on a Poisson sample of rate q (1: all)."""

    multiplier: float
    rounds: int = 1
    sample_rate: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.multiplier) and self.multiplier > 0):
            raise InputError(f"noise multiplier is {self.multiplier}", fix="use a finite number > 0")
        if self.rounds < 0:
            raise InputError(f"number of rounds is {self.rounds}", fix="use 0 or more")
        if not 0 < self.sample_rate <= 1:
            raise InputError(f"sample rate is {self.sample_rate}", fix="use 0 < q ≤ 1")


@dataclass
class Accountant:
    """Remembers what was released, and says what it cost."""

    unit: Unit
    adjacency: Adjacency
    releases: list[Release] = field(default_factory=list)

    def __post_init__(self) -> None:
        _choose("unit", self.unit, Unit)
        _choose("adjacency", self.adjacency, Adjacency)

    @classmethod
    def of(
        cls, multiplier: float, rounds: int, *, unit: Unit, adjacency: Adjacency, sample_rate: float = 1.0
    ) -> Accountant:
        """Return an accountant of `rounds` equal rounds.

        Args:
            multiplier: σ of the noise, relative to the clipping bound.
            rounds: how many.
            unit: what is protected: a sample or a member.
            adjacency: what counts as neighbouring data.
            sample_rate: share of the units that take part in a round, drawn at random.
        """
        return cls(unit, adjacency, [Release(multiplier, rounds, sample_rate)])

    def spend(self, multiplier: float, *, rounds: int = 1, sample_rate: float = 1.0) -> None:
        """Record rounds; equal ones are counted together.

        `multiplier` is the noise σ in units of the sensitivity, `sample_rate` the share that is drawn for a round.
        """
        last = self.releases[-1] if self.releases else None
        if last and (last.multiplier, last.sample_rate) == (multiplier, sample_rate):
            self.releases[-1] = Release(multiplier, last.rounds + rounds, sample_rate)
        else:
            self.releases.append(Release(multiplier, rounds, sample_rate))

    @property
    def rounds(self) -> int:
        """All rounds so far."""
        return sum(release.rounds for release in self.releases)

    def epsilon(self, delta: float, method: Method = "rdp") -> Epsilon:
        """Return what all rounds together have cost at δ."""
        _choose("accountant", method, Method)
        sampled = any(release.sample_rate < 1 for release in self.releases)
        if sampled and method in ("rdp", "exact"):
            raise ConfigError(f"accountant {method!r} does not cover sampling", fix="use 'opacus-rdp' or 'opacus-prv'")
        if sampled and self.adjacency == "replacement":
            raise ConfigError(
                "Poisson sampling is accounted for only with add-remove adjacency", fix="use adjacency add-remove"
            )
        empty = Epsilon(0.0, delta, self.unit, self.adjacency, self.rounds, method)  # checks δ before any work
        value = _METHODS[method](self.releases, delta) if self.rounds else 0.0
        return Epsilon(value, *(getattr(empty, name) for name in Epsilon.__slots__[1:]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for checkpoints."""
        releases = [[release.multiplier, release.rounds, release.sample_rate] for release in self.releases]
        return {"unit": self.unit, "adjacency": self.adjacency, "releases": releases}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Accountant:
        """Rebuild an accountant from `to_dict`."""
        return cls(data["unit"], data["adjacency"], [Release(*release) for release in data["releases"]])


def noise_multiplier(
    target: float,
    delta: float,
    rounds: int,
    *,
    sample_rate: float = 1.0,
    method: Method = "rdp",
    tolerance: float = 0.01,
) -> float:
    """Return a multiplier σ that spends ε in (target − tolerance, target] over *all* rounds.

    Doubles from 20 until the target is met, then bisects: the search Opacus does, so that its σ come out.

    Args:
        target: ε.
        delta: the δ that goes with it.
        sample_rate: share of the units drawn at random for a round.
        method: of accounting.
        tolerance: how much of ε may stay unspent.

    >>> round(noise_multiplier(10, 1e-5, rounds=1), 4), round(noise_multiplier(10, 1e-5, rounds=80), 2)
    (0.5298, 4.74)
    """
    if not (target > 0 and tolerance > 0 and rounds > 0):
        raise InputError(f"target ε is {target} ± {tolerance} over {rounds} rounds", fix="use numbers > 0")

    def epsilon(multiplier: float) -> float:
        accountant = Accountant.of(multiplier, rounds, unit="sample", adjacency="add-remove", sample_rate=sample_rate)
        return accountant.epsilon(delta, method).value

    low, high = 0.0, 20.0
    while (reached := epsilon(high)) > target:
        high *= 2
        if high > _LARGEST_MULTIPLIER:
            raise InputError(f"ε = {target} at δ = {delta} is out of reach", fix="allow a larger ε or fewer rounds")
    while target - reached > tolerance:
        middle = (low + high) / 2
        if (spent := epsilon(middle)) < target:
            high, reached = middle, spent
        else:
            low = middle
        if high - low < 1e-12 * high:
            break  # as close as ε(σ) can be resolved
    return high


def _inverse_variance(releases: list[Release]) -> float:
    return math.fsum(release.rounds / release.multiplier**2 for release in releases)


def _opacus(kind: Literal["rdp", "prv"]) -> Callable[[list[Release], float], float]:
    def epsilon(releases: list[Release], delta: float) -> float:
        accountant = _opacus_accountant(kind)
        accountant.history = [
            (release.multiplier, release.sample_rate, release.rounds) for release in releases if release.rounds
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns when its last order is the best; the value still holds
            return max(0.0, float(accountant.get_epsilon(delta)))

    return epsilon


def _opacus_accountant(kind: Literal["rdp", "prv"]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from opacus import accountants
    except ImportError as error:
        raise MissingExtra("opacus", "dp", f"the accountant opacus-{kind}") from error
    return accountants.RDPAccountant() if kind == "rdp" else accountants.PRVAccountant()


_METHODS: dict[str, Callable[[list[Release], float], float]] = {
    "rdp": lambda releases, delta: rdp_epsilon(_inverse_variance(releases), delta),
    "exact": lambda releases, delta: exact_epsilon(_inverse_variance(releases), delta),
    "opacus-rdp": _opacus("rdp"),
    "opacus-prv": _opacus("prv"),
}


def _choose(what: str, value: str, choices: Any) -> None:
    if value not in get_args(choices):
        raise ConfigError(f"{what} is {value!r}", fix=f"use one of {', '.join(get_args(choices))}")
