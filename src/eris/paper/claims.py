"""A verdict on each of the paper's main claims, by plain rules on results with intervals.

A verdict is *holds*, *holds under …* (the condition), *refuted*, or *not decided here*: cells are missing, or the
intervals are too wide. A rule never looks at the printed value; it asks of our results what the sentence says of the
paper's. Two rows are compared fold by fold (they share the partition, the initial model and the coins), and never on
fewer than three folds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from eris.atomic_file import write_atomically
from eris.paper.catalogue import experiment_by_name
from eris.paper.experiment import Panel, Size
from eris.paper.page import command_of
from eris.paper.reading import PAPER, Reading
from eris.paper.result import ExperimentResult, Measured, gather
from eris.paper.run import CellStore
from eris.simulate.spread import reach_of

__all__ = ["CLAIMS", "Claim", "Results", "decide", "difference", "write_claims"]

UNDECIDED = "not decided here"
_NEAR = 3.0  # points of accuracy by which "the same utility" may differ
_LEAKS = 0.05  # of AUC, by which "the same leakage" may differ
_GUESSES = 5.0  # points of the paper's membership accuracy by which it may differ
_FOLDS = 3  # fewer decide nothing: with two, Student's t is 12.7
_FAILS = 0.25  # of pictures: reconstruction "fails" if surely no more than this share is recovered
_SOME = 0.1  # of pictures: it does not fail if surely at least this share is


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of the paper, and its verdict."""

    says: str
    verdict: str
    figure: str = ""
    chance: str = ""
    attacker: str = ""
    size: str = ""
    command: str = ""
    when: str = ""

    def plain(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


class Results:
    """The results of experiments that rules need, each gathered once.

    They are read from the cells in `folder`, at one `size` and under one `reading` of the paper.
    """

    def __init__(self, folder: Path, size: Size, reading: Reading = PAPER) -> None:
        self._store, self.size, self._reading = CellStore(folder), size, reading
        self._known: dict[str, ExperimentResult] = {}

    def of(self, name: str) -> ExperimentResult:
        """Return the result of an experiment."""
        if name not in self._known:
            self._known[name] = gather(experiment_by_name(name), self.size, self._store, self._reading)
        return self._known[name]

    def figure(self, name: str, panel: str, arm: str, point: float | str, key: str) -> Measured | None:
        """Return one figure of a row, or None if it failed or has no value.

        Args:
            name: of the experiment.
            panel: of the experiment.
            arm: of the panel.
            point: on the axis.
            key: of the metric.
        """
        row = self.of(name).row(panel, arm, point)
        found = row.figures.get(key) if row is not None and not row.failed else None
        return found if found is not None and found.value is not None else None

    def digests(self, name: str, panel: str, arm: str, point: float | str) -> list[str]:
        """Return the digest of a row's final model in each fold.

        Arguments as for `figure`.
        """
        cells = [
            self._store.find(cell)
            for cell in experiment_by_name(name).cells(self.size, self._reading)
            if (cell.panel, cell.arm, cell.point) == (panel, arm, point)
        ]
        return [cell["figures"]["digest"] for cell in cells if cell and "figures" in cell]


Difference = tuple[float, float, float]


def difference(one: Measured | None, other: Measured | None) -> Difference | None:
    """Return the mean difference of two rows over the folds they share, with its 95 % t-interval.

    With fewer than three folds there is none.

    >>> difference(Measured(2.0, values=(1.0, 3.0, 2.0)), Measured(1.9, values=(0.9, 2.9, 1.9)))
    (0.1, 0.1, 0.1)
    >>> difference(Measured(0.9, 0.8, 1.0, values=(0.9,)), Measured(0.6, 0.5, 0.7, values=(0.6,))) is None
    True
    """
    if one is None or other is None or len(one.values) != len(other.values) or len(one.values) < _FOLDS:
        return None
    pairs = [a - b for a, b in zip(one.values, other.values, strict=True)]
    mean, reach = statistics.fmean(pairs), reach_of(pairs) or 0.0
    return round(mean, 6), round(mean - reach, 6), round(mean + reach, 6)


@dataclass(frozen=True, slots=True)
class _Attacker:
    """An attack by which a claim is tested: the name of its figure, and by how much "the same" may differ."""

    name: str
    key: str
    same: float
    digits: int
    unit: str = ""

    def fallen(self, away: Difference | None) -> str:
        """Return what leakage does: it "falls", "stays" (no more than `same` lower), or that is "open"."""
        if away is None:
            return ""
        return "falls" if away[2] < 0 else "stays" if away[1] > -self.same else "open"


_PAPERS = _Attacker("paper's", "mia", _GUESSES, 1, " %")
_STRONGEST = _Attacker("strongest", "auc", _LEAKS, 3)
_BOTH = (_PAPERS, _STRONGEST)


def _by_both(papers: str, strongest: str) -> str:
    """Return the verdict on a claim that leakage falls: the strongest attacker's result decides."""
    if strongest == "falls":
        return "holds" if papers == "falls" else "holds under the strongest attack"
    if strongest == "stays" and papers:
        return "holds under the paper's attack alone" if papers == "falls" else "refuted"
    return UNDECIDED


def _shown_difference(away: Difference | None, digits: int = 1, unit: str = "") -> str:
    if away is None:
        return "not run"
    mean, low, high = away
    return f"{mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]{unit}"


def _shown(name: str, figure: Measured | None, digits: int = 1, unit: str = " %") -> str:
    if figure is None or figure.value is None:
        return f"{name.removesuffix(':')}: not run"
    low, high = figure.low, figure.high
    interval = "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{name} {figure.value:.{digits}f}{interval}{unit}"


def _about(results: Results, name: str, says: str, verdict: str, figure: str, **facts: str) -> Claim:
    result = results.of(name)
    if verdict == UNDECIDED:  # no need to list what was not run
        parts = [part for part in figure.split("; ") if "not run" not in part]
        figure = "; ".join(parts) or "not run yet"
    return Claim(says, verdict, figure, size=result.size, command=command_of(result), when=result.when, **facts)


_TABLE, _DIGITS = "table-mnist-few", "MNIST"


def _place(results: Results, name: str, panel: str) -> float | str:
    """Return the first point of a panel at this size."""
    return next(each.points[0].value for each in results.of(name).experiment.sizes[results.size] if each.label == panel)


def _last(results: Results, name: str, panel: str) -> float | str:
    return next(
        each.points[-1].value for each in results.of(name).experiment.sizes[results.size] if each.label == panel
    )


def _utility(results: Results) -> Claim:
    says, at = "ERIS has FedAvg's utility", _place(results, _TABLE, _DIGITS)
    ours, other = (results.digests(_TABLE, _DIGITS, arm, at) for arm in ("ERIS", "FedAvg"))
    accuracy = results.figure(_TABLE, _DIGITS, "ERIS", at, "accuracy")
    shared = min(len(ours), len(other))
    if shared < _FOLDS:
        return _about(results, _TABLE, says, UNDECIDED, "")
    same = ours[:shared] == other[:shared]
    figure = (
        f"{_shown('both', accuracy)}; final models of {shared} folds are {'the same bits' if same else 'different'}"
    )
    return _about(results, _TABLE, says, "holds" if same else "refuted", figure)


def _kept(
    results: Results, name: str, panel: Panel, arm: str, parts: list[str], shown: str
) -> tuple[list[float], list[float]]:
    """Return at which points of the axis accuracy surely stays within three points of the first, and at which it fell.

    Points beyond the first that is not surely kept do not count as kept.

    What was found is added to `parts`, in words; `shown` formats a point.
    """
    places = [float(point.value) for point in panel.points]
    figures = {place: results.figure(name, panel.label, arm, place, "accuracy") for place in places}
    away = {place: difference(figures[place], figures[places[0]]) for place in places[1:]}
    parts += [_shown(f"{shown.format(places[0])}:", figures[places[0]])]
    parts += [f"{shown.format(place)}: {_shown_difference(found)}" for place, found in away.items() if found]
    sure = {place: found[1] > -_NEAR for place, found in away.items() if found}
    kept = list(takewhile(lambda place: sure.get(place, False), places[1:]))
    return kept, [place for place, found in away.items() if found and found[2] < -_NEAR]


def _dsc(results: Results) -> Claim:
    """Find up to which ω the accuracy is no more than three points below that without compression."""
    says, name = "DSC keeps utility", "figure-compression-utility"
    panel = results.of(name).experiment.sizes[results.size][0]
    limits, fallen, figures = list[str](), list[str](), list[str]()
    for arm in panel.arms:
        parts = list[str]()
        kept, fell = _kept(results, name, panel, arm.label, parts, "ω = {:g}")
        limits += [f"ω ≤ {max(kept):g} ({arm.label})"] if kept else []
        fallen += [arm.label] if fell and not kept else []
        figures.append(f"{arm.label}: accuracy {', '.join(parts)}")
    verdict = f"holds under {', '.join(limits)}" if limits else "refuted" if fallen else UNDECIDED
    return _about(results, name, says, verdict, "; ".join(figures))


def _falls(results: Results, says: str, panel: str, arm: str, base: tuple[str, str, float | str]) -> Claim:
    """Test whether leakage falls along an axis, by the paper's attack and by the strongest one.

    Args:
        says: the claim.
        panel: of the figure, with the axis.
        arm: its row; what counts is its last point.
        base: panel, row and point to compare with.
    """
    name, last = "figure-aggregators-compression", _last(results, "figure-aggregators-compression", panel)
    verdicts, parts, chance = [], [], ""
    for attacker in _BOTH:
        first = results.figure(name, *base, attacker.key)
        end = results.figure(name, panel, arm, last, attacker.key)
        away = difference(end, first)
        shown = [_shown(word, each, attacker.digits, "") for word, each in (("from", first), ("to", end))]
        change = _shown_difference(away, attacker.digits, attacker.unit)
        parts += [f"{attacker.name}: {' '.join(shown)}{attacker.unit}, {change}"]
        chance += _chance(attacker, end)
        verdicts.append(attacker.fallen(away))
    verdict = _by_both(*verdicts)
    return _about(results, name, says, verdict, "; ".join(parts), chance=chance.strip(), attacker="paper's, strongest")


def _chance(attacker: _Attacker, figure: Measured | None) -> str:
    if figure is None or figure.chance is None:
        return ""
    return f"{attacker.name} {figure.chance:.{attacker.digits}f}{attacker.unit} "


def _robust(name: str, says: str) -> Callable[[Results], Claim]:
    def rule(results: Results) -> Claim:
        """Find up to which failure rate the accuracy is no more than three points below that without failures."""
        panel = results.of(name).experiment.sizes[results.size][0]
        limits, fallen, figures = list[str](), list[str](), list[str]()
        for arm in panel.arms:
            parts = list[str]()
            kept, fell = _kept(results, name, panel, arm.label, parts, "{:g} %")
            how = arm.label.removeprefix("ERIS, ") if len(panel.arms) > 1 else ""
            limits += [f"rates up to {max(kept):g} %{f' ({how})' if how else ''}"] if kept else []
            fallen += [arm.label] if float(panel.points[1].value) in fell else []
            figures.append(f"{arm.label}: accuracy {', '.join(parts)}")
        refuted = len(fallen) == len(panel.arms)
        verdict = f"holds under {', '.join(limits)}" if limits else "refuted" if refuted else UNDECIDED
        return _about(results, name, says, verdict, "; ".join(figures))

    return rule


def _collusion(results: Results) -> Claim:
    """Test whether a coalition finds more than one aggregator alone; if not, nothing can degrade."""
    says, name = "Collusion degrades gracefully", "figure-collusion"
    panel = results.of(name).experiment.sizes[results.size][0]
    sizes = [point.value for point in panel.points]
    verdicts, parts, chance = [], [], ""
    for attacker in _BOTH:
        found = [results.figure(name, panel.label, "ERIS", size, attacker.key) for size in sizes]
        alone, most = found[0], found[-1]
        away = difference(alone, most)
        shown = [_shown(f"{size} colluding", each, attacker.digits, attacker.unit)
                 for size, each in zip(sizes, found, strict=True)]  # fmt: skip
        parts.append(f"{attacker.name}: {', '.join(shown)}")
        chance += _chance(attacker, alone)
        limit = alone.chance_high if alone and alone.chance_high is not None else 0.0
        harmless = alone is not None and alone.high is not None and alone.high <= limit
        verdicts.append("falls" if away and harmless else attacker.fallen(away))
    verdict = _by_both(*verdicts)
    if verdict == "refuted":
        parts.append("one aggregator alone finds what all together find")
    return _about(results, name, says, verdict, "; ".join(parts), chance=chance.strip(), attacker="paper's, strongest")


def _reconstruction(results: Results) -> Claim:
    """Test how many pictures are recovered from half an update or less, zero-filled and mask-aware."""
    from eris.audit.intervals import rate_interval

    says, name = "Reconstruction fails for A ≥ 2", "figure-reconstruction"
    pictures = {panel.label: int(panel.measure.options["pictures"])
                for panel in results.of(name).experiment.sizes[results.size]}  # fmt: skip
    parts, limits = list[str](), dict[str, tuple[float, float]]()
    for mode in ("zero-filled", "mask-aware"):
        rows = [row for row in results.of(name).rows if row.arm == mode and float(row.point) <= 50]
        known = [(row, figure.value) for row in rows
                 if (figure := row.figures.get("recovered", Measured(None))).value is not None]  # fmt: skip
        counts = [(round((value or 0.0) / 100 * pictures[row.panel]), pictures[row.panel]) for row, value in known]
        if len(known) < len(rows) or not rows:
            return _about(results, name, says, UNDECIDED, "", attacker="zero-filled, mask-aware")
        hits, all_of_them = (sum(each) for each in zip(*counts, strict=True))
        low, high = limits[mode] = rate_interval(hits, all_of_them)
        each = ", ".join(f"{row.panel} at {row.point:g} % {hit} of {count}"
                         for (row, _), (hit, count) in zip(known, counts, strict=True))  # fmt: skip
        parts.append(f"{mode}: {hits} of {all_of_them} recovered [{100 * low:.0f}, {100 * high:.0f}] % ({each})")
    fails = {mode: high <= _FAILS for mode, (_, high) in limits.items()}
    if limits["mask-aware"][0] >= _SOME:
        verdict = "holds under the paper's zero-filled attack alone" if fails["zero-filled"] else "refuted"
    else:
        verdict = "holds" if all(fails.values()) else UNDECIDED
    return _about(results, name, says, verdict, "; ".join(parts), chance="0 %", attacker="zero-filled, mask-aware")


_RIVALS = ("LDP, ε = 10", "SoteriaFL, ε = 10", "PriPrune, p = 0.01", "Shatter")


def _trade_off(results: Results) -> Claim:
    """Test against each baseline whether ERIS+DSC has more utility and does not leak more, by either attack."""
    says, at = "ERIS beats LDP, PriPrune, Shatter and SoteriaFL on the trade-off", _place(results, _TABLE, _DIGITS)
    keys = ("accuracy", *(attacker.key for attacker in _BOTH))
    ours = {key: results.figure(_TABLE, _DIGITS, "ERIS+DSC", at, key) for key in keys}
    parts, won, lost = [], {each.name: list[str]() for each in _BOTH}, {each.name: list[str]() for each in _BOTH}
    for rival in _RIVALS:
        theirs = {key: results.figure(_TABLE, _DIGITS, rival, at, key) for key in keys}
        better = difference(ours["accuracy"], theirs["accuracy"])
        shown = [f"accuracy {_shown_difference(better)}"]
        for attacker in _BOTH:
            leak = difference(ours[attacker.key], theirs[attacker.key])
            shown.append(f"{attacker.name} {_shown_difference(leak, attacker.digits, attacker.unit)}")
            if better is not None and leak is not None:
                if better[1] > 0 and leak[2] < attacker.same:
                    won[attacker.name].append(rival)
                elif leak[1] > attacker.same or better[2] < 0:
                    lost[attacker.name].append(rival)
        parts.append(f"less {rival}: {', '.join(shown)}")
    verdict = UNDECIDED
    if len(won["strongest"]) == len(_RIVALS):
        verdict = "holds"
    elif len(won["paper's"]) == len(_RIVALS) and lost["strongest"]:
        verdict = "holds under the paper's attack alone"
    elif won["strongest"]:
        verdict = f"holds under comparison with {'; '.join(won['strongest'])} alone"
    elif lost["strongest"] and len({*lost["strongest"], *lost["paper's"]}) == len(_RIVALS):
        verdict = "refuted"
    first = ", ".join(_shown(attacker.name, ours[attacker.key], attacker.digits, attacker.unit) for attacker in _BOTH)
    figure = f"ERIS+DSC: {_shown('accuracy', ours['accuracy'])}, {first}; {'; '.join(parts)}"
    chance = "".join(_chance(attacker, ours[attacker.key]) for attacker in _BOTH).strip()
    return _about(results, _TABLE, says, verdict, figure, chance=chance, attacker="paper's, strongest")


def _pareto(results: Results) -> Claim:
    """Test whether, at each noise strength, ERIS+LDP leaks less than FedAvg+LDP at the same utility."""
    says, name = "ERIS+LDP dominates FedAvg+LDP", "table-pareto"
    panel = results.of(name).experiment.sizes[results.size][0]
    at, parts = panel.points[0].value, list[str]()
    strengths = [arm.label.split(": ")[1] for arm in panel.arms if arm.label.startswith("ERIS+LDP: σ")]
    verdicts = {attacker.name: list[str]() for attacker in _BOTH}
    for strength in strengths:
        rows = [f"{family}: {strength}" for family in ("ERIS+LDP", "FedAvg+LDP")]
        better = difference(*(results.figure(name, panel.label, row, at, "accuracy") for row in rows))
        shown = [f"accuracy {_shown_difference(better)}"]
        for attacker in _BOTH:
            leak = difference(*(results.figure(name, panel.label, row, at, attacker.key) for row in rows))
            shown.append(f"{attacker.name} {_shown_difference(leak, attacker.digits, attacker.unit)}")
            same = better is not None and better[1] > -_NEAR
            verdicts[attacker.name].append(attacker.fallen(leak) if same else "" if better is None else "open")
        parts.append(f"{strength}: {', '.join(shown)}")
    merged = {who: _together(found) for who, found in verdicts.items()}
    verdict = _by_both(merged["paper's"], merged["strongest"])
    if verdict == UNDECIDED and (
        some := [strength for strength, found in zip(strengths, verdicts["strongest"], strict=True) if found == "falls"]
    ):
        verdict = f"holds under {'; '.join(some)}"
    chance = _chance(_STRONGEST, results.figure(name, panel.label, f"ERIS+LDP: {strengths[0]}", at, "auc")).strip()
    return _about(results, name, says, verdict, "; ".join(parts), chance=chance, attacker="paper's, strongest")


def _together(verdicts: Sequence[str]) -> str:
    """Return the verdict that all strengths share, else "open"; empty if some were not run."""
    if not all(verdicts):
        return ""
    return verdicts[0] if len(set(verdicts)) == 1 else "open"


def _distribution(results: Results) -> Claim:
    says, name = "Distribution time falls by up to 1000 ×", "figure-distribution-time"
    rows = [row for row in results.of(name).rows if row.figures]
    if not rows:
        return _about(results, name, says, UNDECIDED, "")
    formula = max((row.figures["over_fedavg"].value or 0, str(row.point)) for row in rows)
    honest = max((row.figures["honest"].value or 0, str(row.point)) for row in rows)
    verdict = (
        "holds"
        if formula[0] >= 900
        else "holds under shared masks, whose mean stays sparse"
        if honest[0] >= 900
        else "refuted"
    )
    sparse = f"with a sparse download {honest[0]:.0f} × ({honest[1]})"
    figure = f"by the text's formula {formula[0]:.0f} × ({formula[1]}); {sparse}"
    return _about(results, name, says, verdict, figure)


def _theorem_utility(results: Results) -> Claim:
    """Test the corollary's Γ₂ on two gradients, +G and −G, one of which is drawn."""
    del results
    m, b, bound = 2, 1, 1.0
    said, true = (m - b) * bound**2 / (m * b), statistics.fmean([bound**2, bound**2])
    verdict = "holds" if said >= true else "holds under Γ₂ = (m−b)G²/((m−1)b), and steps that shrink with ω"
    figure = f"Γ₂ of the corollary for m = 2, b = 1: {said:g} G²; the variance is {true:g} G²"
    return Claim("Theorem 3.1 (utility)", verdict, figure, command="eris bounds")


def _theorem_leakage(results: Results) -> Claim:
    """Test the sum over coordinates on two that reveal nothing alone: D ⊕ N and N."""
    single, joint = 0.0, math.log(2)
    name = "figure-gaussian"
    tested = [row for row in results.of(name).rows if "not_normal" in row.figures]
    measured = [_shown(f"{row.panel}: told from a Gaussian", row.figures["not_normal"]) for row in tested]
    chance = [f"{row.figures['not_normal'].chance:.1f} %" for row in tested if row.figures["not_normal"].chance]
    verdict = "holds" if single >= joint else "holds under coordinates that are independent given the data"
    figure = (
        f"bits D ⊕ N and N: {single:g} nats alone, {joint:.2f} together; {'; '.join(measured) or 'Gaussianity not run'}"
    )
    return _about(results, name, "Theorem 3.2 (leakage ≤ n T p C_max / A)", verdict, figure,
                  chance=chance[0] if chance else "")  # fmt: skip


CLAIMS: tuple[Callable[[Results], Claim], ...] = (
    _utility,
    lambda results: _falls(results, "Leakage falls with A", "aggregators A", "ERIS", ("server", "FedAvg", 1)),
    lambda results: _falls(results, "Leakage falls with ω", "compression ω", "ERIS+DSC", ("aggregators A", "ERIS",
                           _last(results, "figure-aggregators-compression", "aggregators A"))),
    _dsc,
    _robust("figure-dropout", "Robust to aggregators that drop out"),
    _robust("figure-links", "Robust to links that fail"),
    _collusion,
    _reconstruction,
    _trade_off,
    _pareto,
    _distribution,
    _theorem_utility,
    _theorem_leakage,
)  # fmt: skip


def decide(folder: Path, size: Size, reading: Reading = PAPER) -> list[Claim]:
    """Return every claim with its verdict, from the cells in a folder.

    `size` and `reading` say which cells: those of a run at that size, read in that way.
    """
    results = Results(folder, size, reading)
    return [rule(results) for rule in CLAIMS]


_HEAD = """# Which of the paper's claims stand

Written by `eris reproduce claims` from cells that were run; nothing here is edited by hand. The rules are code
(`eris/paper/claims.py`). Differences are taken fold by fold (rows share
partition, initial model and coins), with Student's t interval over at least three folds, and a verdict needs the whole
interval: utility is "the same" where it is less than {near:g} points of accuracy lower, leakage where it is less than
{leaks:g} of AUC or {guesses:g} points of the paper's membership accuracy away; reconstruction "fails" where at most
{fails:.0%} of pictures are recovered. The *strongest* attack is the audit's default (docs/audit.md); the *paper's*
looks at losses under what it saw, one round alone. Where the two disagree the strongest decides, and the
verdict says so. What was run at which size, and every number: [tables](paper/tables.md).

| claim | verdict | figure | chance | attacker | size, date |
|---|---|---|---|---|---|
"""


def write_claims(claims: Sequence[Claim], folder: Path, page: Path | None = None) -> Path:
    """Write the page with all claims, and return its path."""
    lines = [
        f"| {claim.says} | **{claim.verdict}** | {claim.figure or '–'} | {claim.chance or '–'} "
        f"| {claim.attacker or '–'} | {claim.size or '–'}{f', {claim.when}' if claim.when else ''} |"
        for claim in claims
    ]
    commands = dict.fromkeys(claim.command for claim in claims if claim.command)
    tail = "\n\nCommands: " + ", ".join(f"`{command}`" for command in commands) + ".\n"
    path = page or folder / "claims.md"
    write_atomically(
        path,
        (_HEAD.format(near=_NEAR, leaks=_LEAKS, guesses=_GUESSES, fails=_FAILS) + "\n".join(lines) + tail).encode(),
    )
    return path
