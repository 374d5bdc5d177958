"""What a member has spent over all its runs, in ε and exposure; kept on its own disk and told to nobody.

There is a folder for each member (by name), with a file for each run. A run that is going on, or was killed, counts
with all its rounds, for which it may have sent something. One that came to its end counts with the rounds in which this
member took part.

>>> import tempfile
>>> budget = MemberBudget(Path(tempfile.mkdtemp()), "amber")
>>> print(budget.total())
no run so far
>>> budget.write("a", RunSpent("heart", rounds=10, sent=4, largest_share=0.25, multiplier=2.0))
>>> budget.write("b", RunSpent("heart", rounds=10, sent=6, largest_share=0.5, multiplier=2.0))
>>> print(budget.total())
2 runs, 10 rounds, ε = 8.08 at δ = 1e-05 for one member (replacement), 10 rounds, accountant rdp
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from eris.atomic_file import write_atomically
from eris.errors import CheckpointError, ConfigError, FloorError
from eris.events import Event, RoundEnded, RoundStarted, RunEnded
from eris.methods.masked import smallest_sum
from eris.peer.node import Node
from eris.privacy import Accountant, Epsilon
from eris.privacy.accountant import Adjacency, Release, Unit
from eris.privacy.ring_noise import RingNoise

__all__ = ["MemberBudget", "RunBudget", "RunSpent", "TotalSpent", "budget_folder"]

_EVERY = 1.0  # seconds between two notes of a running run
VARIABLE = "ERIS_BUDGET"


def budget_folder() -> Path:
    """Return where budgets are kept: $ERIS_BUDGET if set, else this user's state folder."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "eris" / "budget"


@dataclass(frozen=True, slots=True)
class RunSpent:
    """One run: how much it has, or may have, revealed of this member's data."""

    federation: str  # its name
    rounds: int  # of the run
    sent: int  # in which this member took part; a round that is played again counts again
    largest_share: float  # largest share of one update that any other peer was to receive
    multiplier: float = 0.0  # of the noise; 0 if none counts
    alone: float = 0.0  # the same against an observer of this member's own share of noise; 0: not less
    steps: int = 1  # noisy releases in a round
    unit: Unit = "member"  # what ε protects
    adjacency: Adjacency = "replacement"  # what counts as a neighbouring data set
    delta: float = 1e-5  # at which ε is stated
    closed: bool = True  # it came to its end, and `sent` is final
    began: float = 0.0  # seconds since 1970

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit) or self.adjacency not in get_args(Adjacency) or self.sent < 0:
            raise ValueError("it does not hold an account of a run")

    @property
    def counts(self) -> int:
        """The rounds that count: all of them, unless they are known to have been fewer."""
        return self.sent if self.closed else max(self.sent, self.rounds)

    @property
    def release(self) -> Release | None:
        """What the accountant is told; None if nothing bounds what a round reveals."""
        return Release(self.multiplier, self.counts * self.steps) if self.multiplier > 0 else None

    @property
    def release_alone(self) -> Release | None:
        """The same for an aggregator that colludes with its unmaskers."""
        return replace(self, multiplier=self.alone or self.multiplier).release


@dataclass(frozen=True, slots=True)
class TotalSpent:
    """All runs of a member together."""

    runs: tuple[RunSpent, ...]

    @property
    def rounds(self) -> int:
        """Rounds in which the member took part, or may have."""
        return sum(run.counts for run in self.runs)

    @property
    def largest_share(self) -> float:
        """The largest share of one update that any other peer was to receive, in any run."""
        return max((run.largest_share for run in self.runs if run.counts), default=0.0)

    @property
    def updates_shown(self) -> float:
        """How many whole updates the best placed peer has received at most, all shares added up."""
        return sum(run.counts * run.largest_share for run in self.runs)

    @property
    def without_noise(self) -> int:
        """Runs without a bound: no noise, or noise that others could reproduce."""
        return sum(run.release is None and run.counts > 0 for run in self.runs)

    @property
    def epsilons(self) -> tuple[Epsilon, ...]:
        """What the runs with noise have spent together, for each unit and adjacency, at the largest δ among them."""
        return tuple(self._epsilon(unit, adjacency) for unit, adjacency in self._kinds)

    @property
    def epsilons_alone(self) -> tuple[Epsilon, ...]:
        """The same for an aggregator that colludes with its unmaskers, if any run's noise came in shares."""
        shared = any(run.alone for run in self.runs if run.counts)
        return tuple(self._epsilon(*kind, alone=True) for kind in self._kinds) if shared else ()

    @property
    def _kinds(self) -> list[tuple[Unit, Adjacency]]:
        return sorted({(run.unit, run.adjacency) for run in self.runs if run.release is not None and run.counts})

    def _epsilon(self, unit: Unit, adjacency: Adjacency, *, alone: bool = False) -> Epsilon:
        alike = [run for run in self.runs if (run.unit, run.adjacency) == (unit, adjacency) and run.counts]
        each = [run.release_alone if alone else run.release for run in alike]
        releases = [release for release in each if release is not None]
        accountant = Accountant(unit, adjacency, releases)
        spent = accountant.epsilon(max(run.delta for run in alike if run.release is not None))
        return replace(spent, rounds=sum(run.counts for run in alike if run.release is not None))

    def __str__(self) -> str:
        if not self.runs:
            return "no run so far"
        said = [_counted(len(self.runs), "run"), _counted(self.rounds, "round"), *map(str, self.epsilons)]
        said += [f"to an aggregator with its unmaskers ε = {epsilon.value:.3g}" for epsilon in self.epsilons_alone]
        if self.without_noise:
            said.append(f"{_counted(self.without_noise, 'run')} without noise that counts: no bound")
        return ", ".join(said)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {
            "runs": len(self.runs),
            "rounds": self.rounds,
            "largest_share": self.largest_share,
            "updates_shown": self.updates_shown,
            "runs_without_noise": self.without_noise,
            "epsilon": [asdict(epsilon) for epsilon in self.epsilons],
            "epsilon_alone": [asdict(epsilon) for epsilon in self.epsilons_alone],
            "text": str(self),
        }


class MemberBudget:
    """A member's files, one for each run."""

    def __init__(self, folder: Path, member: str) -> None:
        self.path, self.member = folder / member, member

    def runs(self) -> dict[str, RunSpent]:
        """Return what every run has cost; an unreadable file is no reason to count nothing."""
        return {path.stem: _read(path) for path in sorted(self.path.glob("*.json"))}

    def total(self, without: str = "") -> TotalSpent:
        """Add up all runs, except one if named."""
        return TotalSpent(tuple(run for key, run in self.runs().items() if key != without))

    def write(self, key: str, spent: RunSpent) -> None:
        """Record what a run has cost."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / f"{key}.json", (json.dumps(asdict(spent)) + "\n").encode(), mode=0o600)
        except (OSError, CheckpointError) as error:
            why = error.strerror if isinstance(error, OSError) else error.what
            fix = f"name a folder with --budget or ${VARIABLE}; --budget none keeps none"
            raise ConfigError(f"this member's budget cannot be kept: {why}", fix=fix, path=self.path) from None


class RunBudget:
    """Listens to one peer's run and records what it costs."""

    hears = (RoundStarted, RoundEnded, RunEnded)

    def __init__(self, budget: MemberBudget, node: Node, *, most: float = 0.0) -> None:
        """Record that the run begins; refuse it if all runs together might spend more than ε = `most` (0: no limit).

        A run in which rounds are played again may come to more rounds than were counted beforehand: it is left before
        the one that would spend more.
        """
        self._budget, self._number, self._most, self._written = budget, node.number, most, 0.0
        self._key = f"{node.federation.name}-{node.federation.digest[:16]}"
        known, noise, config = budget.runs().get(self._key), node.composition.noise, node.federation.config
        counts = noise is not None and not node.reproducible
        self.spent = RunSpent(
            federation=node.federation.name,
            rounds=config.rounds,
            sent=known.sent if known is not None else 0,
            largest_share=known.largest_share if known is not None else 0.0,
            multiplier=noise.multiplier if noise is not None and counts else 0.0,
            alone=noise.alone(smallest_sum(config)) if isinstance(noise, RingNoise) and counts else 0.0,
            steps=int(getattr(noise, "steps", 1)),
            unit=config.privacy.unit,
            adjacency="zero-out" if config.privacy.unit == "sample" else "replacement",
            delta=config.privacy.delta,
            closed=False,
            began=known.began if known is not None else time.time(),
        )
        self._before = budget.total(without=self._key)
        if most > 0:
            self._require_within(most)
        budget.write(self._key, self.spent)

    def __call__(self, event: Event) -> None:
        """Count what leaves this member."""
        match event:
            case RoundStarted(participants=participants) if self._number in participants:
                self.spent = replace(self.spent, sent=self.spent.sent + 1)
                if self._most > 0 and self.spent.sent > self.spent.rounds:
                    self._require_within(self._most)
            case RoundEnded(metrics=metrics):
                share = max(self.spent.largest_share, float(metrics.get("largest_share") or 0.0))
                self.spent = replace(self.spent, largest_share=share)
                if time.monotonic() - self._written >= _EVERY:
                    self._write()
            case RunEnded():
                self.spent = replace(self.spent, closed=True)
                self._write()

    @property
    def total(self) -> TotalSpent:
        """All runs together, including this one so far."""
        return TotalSpent((*self._before.runs, replace(self.spent, closed=True)))

    def _require_within(self, most: float) -> None:
        planned = TotalSpent((*self._before.runs, self.spent))
        if planned.without_noise or any(epsilon.value > most for epsilon in planned.epsilons):
            raise FloorError(
                f"with this run all runs of {self._budget.member} may cost {planned}; the limit is ε = {most:g}",
                fix="see `eris budget`; raise --max-epsilon, or ask for more noise or fewer rounds",
            )

    def _write(self) -> None:
        self._written = time.monotonic()
        self._budget.write(self._key, self.spent)


def _read(path: Path) -> RunSpent:
    try:
        return RunSpent(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the record of what a run has cost cannot be read: {error}",
            fix="restore the file: without it, what was spent would be forgotten",
            path=path,
        ) from None


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
