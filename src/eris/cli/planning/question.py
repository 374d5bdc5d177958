"""The command line of `eris bounds`, and the numbers it is answered with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from eris.cli.planning.bounds_options import LeakageOptions, RateOptions, StartOptions, StepOptions
from eris.errors import ConfigError
from eris.planner.evidence import Evidence, evidence
from eris.planner.quantity import parse_share
from eris.report.results import read_run

__all__ = ["BoundsLine", "BoundsQuestion", "Section", "evidence_of", "with_evidence"]


@dataclass(frozen=True)
class BoundsQuestion(StepOptions, StartOptions, LeakageOptions, RateOptions):
    """The command line as it was given; `given` names the options that were."""

    run: Path | None = None
    as_json: bool = False
    given: frozenset[str] = frozenset()

    def resolved(self) -> BoundsQuestion:
        """Return the question with ω from --keep; refuse what cannot be."""
        if self.masks not in ("shared", "independent"):
            raise ConfigError(f"masks are {self.masks!r}", fix="use shared or independent")
        if self.step is not None and not self.step > 0:
            raise ConfigError(f"step λ is {self.step:g}", fix="use a step above zero")
        if self.aggregators is not None and self.aggregators < 1:
            raise ConfigError(f"--aggregators is {self.aggregators}", fix="use 1 or more")
        if not self.keep:
            return self
        if "omega" in self.given:
            raise ConfigError("--keep and --omega set the same thing", fix="give one of the two")
        return replace(self, omega=1 / parse_share(self.keep) - 1)


@dataclass(frozen=True, slots=True)
class BoundsLine:
    """One number: its name, its value, which flaws touch it, and a remark."""

    key: str
    name: str
    value: float | None
    flaws: tuple[str, ...] = ()
    remark: str = ""


@dataclass(frozen=True)
class Section:
    """A table of numbers under one statement."""

    key: str
    title: str
    lines: list[BoundsLine] = field(default_factory=list)

    def add(self, key: str, name: str, value: float | None, *flaws: str, remark: str = "") -> None:
        """Add a number, and the names of the flaws to show with it."""
        self.lines.append(BoundsLine(key, name, value, flaws, remark))


def evidence_of(directory: Path) -> Evidence:
    """Read a run's folder; of several methods in it the last one (eris before its baselines) is taken."""
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a folder", fix="give the folder that `eris run --out` wrote")
    result = read_run(directory)[-1]
    return evidence({**result.config, "method": result.name}, result.rounds, result.summary)


def with_evidence(question: BoundsQuestion, found: Evidence) -> BoundsQuestion:
    """Put the run's estimates in the place of defaults; what was given on the command line stays."""
    whole = ("members", "aggregators", "rounds")
    values = {
        name: int(estimate.value) if name in whole else estimate.value
        for name, estimate in found.estimates.items()
        if estimate.value is not None and name not in question.given
    }
    if question.given & {"keep", "omega"}:
        values.pop("omega", None)
    if values.get("rounds") == 0:
        del values["rounds"]
    size = values.pop("parameters", None)
    return replace(
        question,
        masks=question.masks if "masks" in question.given else found.masks,
        model=question.model if size is None or "model" in question.given else str(int(size)),
        deterministic=question.deterministic
        or (found.full_batches and not question.given & {"snr", "capacity", "transcripts"}),
        given=question.given | set(values),
        **values,  # type: ignore[arg-type]
    )
