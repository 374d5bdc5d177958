"""Advise what to choose for a fleet and a target: aggregators, shard sizes, blocks, chunks, compression.

The mildest compression that reaches the target wins, because compression costs accuracy; with it the fewest
aggregators, taken from the strongest peers, with shares from the linear programme. Without a target time, the round is
made as short as possible. No aggregator gets more than a tenth of the model (twice an even share if fewer than twenty
may aggregate), unless a larger share is allowed: speed alone would often choose a single aggregator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eris.errors import ConfigError
from eris.planner.allocation import Allocation, Limit, allocate
from eris.planner.duration import distribution_time
from eris.planner.exposure import exposure
from eris.planner.memory import aggregator_memory, memory_of_aggregators
from eris.planner.scenario import Scenario
from eris.planner.traffic import payload

__all__ = ["LADDER", "Advice", "Target", "advise"]

LADDER = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
LARGEST_BLOCK = 1024  # gathering longer blocks is not faster
LARGEST_CHUNK = 1 << 20  # bytes; chunks from 256 KiB to 4 MiB are equally fast, and memory in flight grows with them
_LARGEST_SHARD = 0.1
_ENOUGH = 1.01  # within one per cent of the best time, fewer aggregators are better than more
_ROUNDING = 1.01  # shard sizes are rounded to blocks of at most a hundredth of a shard


@dataclass(frozen=True, slots=True)
class Target:
    """What a plan must reach; None leaves a target open. `exposure` bounds any `coalition` aggregators together."""

    round_time: float | None = None
    exposure: float | None = None
    memory: float | None = None
    coalition: int = 1
    largest_shard: float | None = None  # of the model, to one aggregator; None: the rule above

    def __post_init__(self) -> None:
        for name in ("round_time", "exposure", "memory", "coalition", "largest_shard"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"target {name} is {value}", fix="use a value above zero")

    def shard_limit(self, candidates: int) -> float:
        """Return the largest share of the model for one of that many possible aggregators."""
        return min(1.0, self.largest_shard or max(_LARGEST_SHARD, 2 / candidates))


@dataclass(frozen=True)
class Advice:
    """A plan, what it costs, and what prevents a better one."""

    scenario: Scenario
    target: Target
    met: bool
    missed: tuple[str, ...]  # targets that cannot be reached: round_time, exposure, memory, largest_shard
    round_time: float
    exposure: float  # to one observer
    coalition_exposure: tuple[tuple[int, float], ...]  # to 1, 2, … colluding peers
    memory: float
    block: int
    chunk: int
    limits: tuple[Limit, ...]
    fewer: str  # which target one aggregator fewer would miss; empty if none or if there is only one

    @property
    def method(self) -> str:
        """The method advised."""
        return "eris+dsc" if self.scenario.keep < 1 else "eris"


def advise(base: Scenario, target: Target, *, least_keep: float = 0.01) -> Advice:
    """Return the plan for the fleet, model, participants and masks of `base`; its aggregators and shares are replaced.

    `least_keep` is the strongest compression to consider. If no plan reaches the target, the one that comes nearest
    (strongest compression, all aggregators) is returned with `met` false.
    """
    if base.masks == "public":
        raise ConfigError(
            "public independent masks would publish every value that only one member kept", fix="use shared masks"
        )
    base = _with_memory(base, target.memory)
    if not base.fleet.candidates:
        raise ConfigError("no peer of the fleet may aggregate", fix="set aggregate = true for at least one")
    if target.coalition > len(base.fleet.candidates):
        possible = len(base.fleet.candidates)
        raise ConfigError(f"the coalition has {target.coalition} of {possible} aggregators", fix=f"use 1 … {possible}")
    best: tuple[Scenario, Allocation] | None = None
    for keep in [share for share in LADDER if share >= least_keep] or [1.0]:
        wide = _among(replace(base, keep=keep), len(base.fleet.candidates))
        found = _fit(wide, target)
        if found is None:
            continue
        best = (wide, found)
        if _meets(found, target):
            return _fewest(wide, target)
    return _advice(*(best or _ignoring_limits(base, least_keep)), target, fewer="")


def _with_memory(base: Scenario, limit: float | None) -> Scenario:
    if limit is None:
        return base
    peers = tuple(replace(peer, memory=min(peer.memory, limit)) for peer in base.fleet.peers)
    return replace(base, fleet=replace(base.fleet, peers=peers))


def _among(base: Scenario, count: int) -> Scenario:
    owners = base.fleet.strongest(count)
    return replace(base, aggregators=owners, shares=(1.0,) * count)


def _fit(wide: Scenario, target: Target) -> Allocation | None:
    """Return the fastest shares within memory and exposure."""
    limit = target.exposure
    if limit is not None and len(wide.participants) <= target.coalition + 1:
        return None  # the published mean alone gives the update away
    return allocate(wide, exposure=limit, coalition=target.coalition, largest=_limit(wide, target))


def _meets(found: Allocation | None, target: Target) -> bool:
    if found is None:
        return False
    return target.round_time is None or found.seconds <= target.round_time


def _fewest(wide: Scenario, target: Target) -> Advice:
    """Bisect for the smallest number of strongest peers that still reaches the target (more never hurt)."""
    if target.round_time is None:
        best = _fit(wide, target)
        assert best is not None
        target_time = replace(target, round_time=best.seconds * _ENOUGH)
    else:
        target_time = target
    low, high = 0, len(wide.aggregators)
    while high - low > 1:
        middle = (low + high) // 2
        narrow = _among(wide, middle)
        low, high = (low, middle) if _meets(_fit(narrow, target_time), target_time) else (middle, high)
    chosen = _among(wide, high)
    found = _fit(chosen, target_time)
    assert found is not None
    return _advice(chosen, found, target, fewer=_what_fewer_miss(_among(wide, low), target) if low else "")


def _what_fewer_miss(narrow: Scenario, target: Target) -> str:
    found = _fit(narrow, target)
    if found is None:
        if allocate(narrow) is None:
            return "memory"
        return "exposure" if _fit(narrow, replace(target, exposure=None)) is not None else "shard"
    return "round_time"


def _ignoring_limits(base: Scenario, least_keep: float) -> tuple[Scenario, Allocation]:
    """Return the nearest plan if memory or exposure allow none: least data, spread as evenly as possible."""
    keep = min([share for share in LADDER if share >= least_keep] or [1.0])
    wide = _among(replace(base, keep=keep), len(base.fleet.candidates))
    return wide, Allocation(wide.aggregators, wide.shares, 0.0, ())


def _advice(wide: Scenario, found: Allocation, target: Target, *, fewer: str) -> Advice:
    useful = [a for a, share in enumerate(found.shares) if share * wide.model.n >= 1]
    chosen = replace(
        wide,
        aggregators=tuple(found.aggregators[a] for a in useful),
        shares=tuple(found.shares[a] for a in useful),
    )
    method = "eris+dsc" if chosen.keep < 1 else "eris"
    time, memory = distribution_time(method, chosen), aggregator_memory(method, chosen)
    seen = [(c, exposure(method, chosen, coalition=c).share) for c in range(1, len(chosen.aggregators) + 1)]
    block, chunk = _block(chosen), _chunk(method, chosen)
    missed = _missed(chosen, method, target, time)
    return Advice(
        chosen,
        target,
        met=not missed,
        missed=missed,
        round_time=time,
        exposure=seen[0][1],
        coalition_exposure=tuple(seen),
        memory=memory,
        block=block,
        chunk=chunk,
        limits=found.limits,
        fewer=fewer,
    )


def _missed(chosen: Scenario, method: str, target: Target, time: float) -> tuple[str, ...]:
    seen = exposure(method, chosen, coalition=target.coalition).share
    memory = memory_of_aggregators(method, chosen) / np.array([peer.memory for peer in chosen.fleet.peers])
    reached = {
        "round_time": time / (target.round_time or np.inf),
        "exposure": seen / (target.exposure or np.inf),
        "memory": float(memory.max()),
        "largest_shard": float(chosen.shard_sizes.max()) / chosen.model.n / _limit(chosen, target),
    }
    return tuple(name for name, ratio in reached.items() if ratio > _ROUNDING)


def _limit(chosen: Scenario, target: Target) -> float:
    return target.shard_limit(len(chosen.fleet.candidates))


def _block(chosen: Scenario) -> int:
    """Return the largest power of two up to 1,024 that is at most a hundredth of the smallest shard."""
    smallest = int(chosen.shard_sizes.min())
    return min(LARGEST_BLOCK, 1 << max(0, (smallest // 100).bit_length() - 1))


def _chunk(method: str, chosen: Scenario) -> int:
    """Return the bytes of a chunk: a mebibyte, or the largest message if that is shorter."""
    sizes = payload(method, chosen)
    return int(min(LARGEST_CHUNK, max(sizes.up.max(), sizes.down.max())))
