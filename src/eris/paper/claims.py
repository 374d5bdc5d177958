"""The paper's headlines with a verdict each, by plain rules on results with intervals.

*holds*, *holds under …* (what it takes), *refuted*, or *not decided here*: cells are missing, or the intervals are too
wide. A rule never looks at the printed value; it asks of ours what the sentence says of the paper's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eris.atomic_file import write_atomically
from eris.paper.catalogue import experiment_by_name
from eris.paper.experiment import Size
from eris.paper.page import command_of
from eris.paper.reading import PAPER, Reading
from eris.paper.result import ExperimentResult, Measured, gather
from eris.paper.run import CellStore
from eris.simulate.spread import reach_of

__all__ = ["CLAIMS", "Claim", "Results", "decide", "difference", "write_claims"]

UNDECIDED = "not decided here"
_NEAR = 3.0  # points of accuracy that "the same utility" may differ by
_LEAKS = 0.05  # of AUC, that "the same leakage" may differ by


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of the paper, and what became of it."""

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
    """The results that rules ask for, each gathered once."""

    def __init__(self, folder: Path, size: Size, reading: Reading = PAPER) -> None:
        self._store, self.size, self._reading = CellStore(folder), size, reading
        self._known: dict[str, ExperimentResult] = {}

    def of(self, name: str) -> ExperimentResult:
        """Return the result of an experiment."""
        if name not in self._known:
            self._known[name] = gather(experiment_by_name(name), self.size, self._store, self._reading)
        return self._known[name]

    def figure(self, name: str, panel: str, arm: str, point: float | str, key: str) -> Measured | None:
        """Return one figure of a row whose folds are done, or None."""
        row = self.of(name).row(panel, arm, point)
        found = row.figures.get(key) if row is not None and not row.failed else None
        return found if found is not None and found.value is not None else None

    def digests(self, name: str, panel: str, arm: str, point: float | str) -> list[str]:
        """Return the final models of a row, by fold, as digests."""
        cells = [
            self._store.find(cell)
            for cell in experiment_by_name(name).cells(self.size, self._reading)
            if (cell.panel, cell.arm, cell.point) == (panel, arm, point)
        ]
        return [cell["figures"]["digest"] for cell in cells if cell and "figures" in cell]


def difference(one: Measured | None, other: Measured | None) -> tuple[float, float, float] | None:
    """Return the mean difference of two rows over the folds they share, with its 95 % t-interval.

    Of one fold it is the farthest that the attacks' own intervals allow; None where they have none.

    >>> difference(Measured(2.0, values=(1.0, 3.0)), Measured(1.0, values=(0.9, 2.9)))
    (0.1, 0.1, 0.1)
    >>> difference(Measured(0.9, 0.8, 1.0, values=(0.9,)), Measured(0.6, 0.5, 0.7, values=(0.6,)))
    (0.3, 0.1, 0.5)
    """
    if one is None or other is None:
        return None
    pairs = [a - b for a, b in zip(one.values, other.values, strict=False)]
    if len(pairs) < 2:
        limits = (one.low, one.high, other.low, other.high)
        if len(pairs) < 1 or len(one.values) != len(other.values) or None in limits:
            return None
        low, high = (one.low or 0.0) - (other.high or 0.0), (one.high or 0.0) - (other.low or 0.0)
        return round(pairs[0], 6), round(low, 6), round(high, 6)
    mean = statistics.fmean(pairs)
    reach = reach_of(pairs) or 0.0
    return round(mean, 6), round(mean - reach, 6), round(mean + reach, 6)


def _shown(name: str, figure: Measured | None, digits: int = 1, unit: str = " %") -> str:
    if figure is None or figure.value is None:
        return f"{name.removesuffix(':')}: not run"
    low, high = figure.low, figure.high
    interval = "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{name} {figure.value:.{digits}f}{interval}{unit}"


def _about(results: Results, name: str, says: str, verdict: str, figure: str, **facts: str) -> Claim:
    result = results.of(name)
    if verdict == UNDECIDED:  # what was not run needs no list
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
    if not shared:
        return _about(results, _TABLE, says, UNDECIDED, "")
    same = ours[:shared] == other[:shared]
    figure = (
        f"{_shown('both', accuracy)}; final models of {shared} folds are {'the same bits' if same else 'different'}"
    )
    return _about(results, _TABLE, says, "holds" if same else "refuted", figure)


def _dsc(results: Results) -> Claim:
    """Ask up to which ω the accuracy is not more than three points below that without compression."""
    says, name = "DSC keeps utility", "figure-compression-utility"
    panel = results.of(name).experiment.sizes[results.size][0]
    arm = panel.arms[-1].label
    base = results.figure(name, panel.label, arm, 0, "accuracy")
    good, bad, parts = [], [], []
    for point in panel.points:
        figure = results.figure(name, panel.label, arm, point.value, "accuracy")
        parts.append(_shown(f"ω = {point.value}:", figure))
        away = difference(figure, base)
        if point.value != 0 and away is not None:
            if away[1] > -_NEAR:
                good.append(float(point.value))
            elif away[2] < -_NEAR:
                bad.append(float(point.value))
    limits = f"ω ≤ {max(good):g}" if good else ""
    verdict = UNDECIDED if not good and not bad else "refuted" if not good else f"holds under {limits}"
    if good and not bad and len(good) == len(panel.points) - 1:
        verdict = f"holds under {limits} (all that was run)"
    return _about(results, name, says, verdict, f"{arm}, accuracy, {'; '.join(parts)}")


def _falls(results: Results, says: str, panel: str, arm: str, base: tuple[str, str, float | str]) -> Claim:
    """Ask whether leakage falls along an axis: by the paper's attack, and by the adaptive one."""
    name, last = "figure-aggregators-compression", _last(results, "figure-aggregators-compression", panel)
    verdicts, parts, chance = [], [], ""
    for key, attack, step in (("mia", "paper's", 1.0), ("auc", "adaptive", _LEAKS)):
        first = results.figure(name, *base, key)
        end = results.figure(name, panel, arm, last, key)
        away = difference(end, first)
        digits, unit = (1, " %") if key == "mia" else (3, "")
        parts += [f"{attack}: {_shown('from', first, digits, '')} {_shown('to', end, digits, unit)}"]
        if end is not None and end.chance is not None:
            chance += f"{attack} {end.chance:.{digits}f}{unit} "
        verdicts.append("" if away is None else "falls" if away[2] < 0 else "stays" if away[1] > -step else "open")
    by_paper, adaptive = verdicts
    if adaptive == "falls":
        verdict = "holds" if by_paper == "falls" else "holds under the adaptive attack"
    elif adaptive == "stays" and by_paper:
        verdict = "holds under the paper's attack alone" if by_paper == "falls" else "refuted"
    else:
        verdict = UNDECIDED
    return _about(results, name, says, verdict, "; ".join(parts), chance=chance.strip(), attacker="paper's, adaptive")


def _robust(name: str, says: str) -> Callable[[Results], Claim]:
    def rule(results: Results) -> Claim:
        panel = results.of(name).experiment.sizes[results.size][0]
        rates, fine, parts = [float(point.value) for point in panel.points], dict[str, list[float]](), []
        fallen = list[str]()  # those that the lowest rate harms already
        for arm in panel.arms:
            base = results.figure(name, panel.label, arm.label, rates[0], "accuracy")
            for rate in rates[1:]:
                away = difference(results.figure(name, panel.label, arm.label, rate, "accuracy"), base)
                if away is not None and away[1] > -_NEAR:
                    fine.setdefault(arm.label, []).append(rate)
                if away is not None and away[2] < -_NEAR and rate == rates[1]:
                    fallen.append(arm.label)
            measured = {rate: results.figure(name, panel.label, arm.label, rate, "accuracy") for rate in rates}
            shown = [_shown(f"{rate:g} %:", figure) for rate, figure in measured.items() if figure is not None]
            if shown:
                parts.append(f"{arm.label}: {', '.join(shown)}")
        limits = [f"rates up to {max(good):g} % ({arm.removeprefix('ERIS, ')})" for arm, good in fine.items()]
        refuted = len(fallen) == len(panel.arms)
        verdict = f"holds under {', '.join(limits)}" if limits else "refuted" if refuted else UNDECIDED
        return _about(results, name, says, verdict, "; ".join(parts))

    return rule


def _collusion(results: Results) -> Claim:
    says, name = "Collusion degrades gracefully", "figure-collusion"
    panel = results.of(name).experiment.sizes[results.size][0]
    sizes = [point.value for point in panel.points]
    one, most = (results.figure(name, panel.label, "ERIS", size, "auc") for size in (sizes[0], sizes[-1]))
    figure = "; ".join(
        _shown(f"{size} colluding: AUC", results.figure(name, panel.label, "ERIS", size, "auc"), 3, "")
        for size in sizes
    )
    if one is None or most is None or one.value is None or most.value is None:
        return _about(results, name, says, UNDECIDED, figure, attacker="adaptive")
    chance = one.chance_high if one.chance_high is not None else 0.5
    if one.low is not None and one.low > max(chance, most.value - _LEAKS):
        verdict = "refuted"  # one aggregator alone has all there is
        figure += "; one aggregator alone finds what all together find"
    else:
        verdict = "holds" if one.value < most.value - _LEAKS else UNDECIDED
    return _about(results, name, says, verdict, figure, chance=f"{one.chance:.2f}", attacker="adaptive")


def _reconstruction(results: Results) -> Claim:
    says, name = "Reconstruction fails for A ≥ 2", "figure-reconstruction"
    found = [
        (row, row.figures["recovered"])
        for row in results.of(name).rows
        if row.arm == "mask-aware" and isinstance(row.point, float) and row.point <= 50
        and row.figures.get("recovered", Measured(None)).value is not None
    ]  # fmt: skip
    if not found:
        return _about(results, name, says, UNDECIDED, "", attacker="mask-aware")
    figure = "; ".join(_shown(f"{row.panel}, {row.point:g} % visible: recovered", each, 0) for row, each in found)
    best = max(each.low or 0.0 for _, each in found)
    zero = all((row.figures.get("recovered", Measured(None)).value or 0) == 0
               for row in results.of(name).rows if row.arm == "zero-filled" and row.point != 100.0)  # fmt: skip
    measured = "holds under the paper's zero-filled attack alone" if zero else "refuted"
    verdict = measured if best > 0 else UNDECIDED
    return _about(results, name, says, verdict, figure, chance="0 %", attacker="mask-aware")


_RIVALS = ("LDP, ε = 10", "SoteriaFL, ε = 10", "PriPrune, p = 0.01", "Shatter")


def _trade_off(results: Results) -> Claim:
    """Ask whether ERIS+DSC has more utility than each baseline, and does not leak more."""
    says, at = "ERIS beats LDP, PriPrune, Shatter and SoteriaFL on the trade-off", _place(results, _TABLE, _DIGITS)
    parts, won, lost = [], list[str](), list[str]()
    ours = {key: results.figure(_TABLE, _DIGITS, "ERIS+DSC", at, key) for key in ("accuracy", "mia", "auc")}
    for rival in _RIVALS:
        theirs = {key: results.figure(_TABLE, _DIGITS, rival, at, key) for key in ours}
        better, leak = difference(ours["accuracy"], theirs["accuracy"]), difference(ours["auc"], theirs["auc"])
        parts.append(f"{rival}: {_shown('accuracy', theirs['accuracy'])}, {_shown('AUC', theirs['auc'], 3, '')}")
        if better is not None and leak is not None:
            if better[1] > 0 and leak[2] < _LEAKS:
                won.append(rival)
            elif leak[1] > _LEAKS or better[2] < 0:
                lost.append(rival)
    if len(won) == len(_RIVALS):
        verdict = "holds"
    elif won or lost:
        verdict = f"holds under comparison with {', '.join(won)} alone" if won else "refuted"
    else:
        verdict = UNDECIDED
    figure = (
        f"ERIS+DSC: {_shown('accuracy', ours['accuracy'])}, {_shown('AUC', ours['auc'], 3, '')}; {'; '.join(parts)}"
    )
    return _about(results, _TABLE, says, verdict, figure, chance="0.5", attacker="adaptive (AUC)")


def _pareto(results: Results) -> Claim:
    """Ask whether, at each strength of noise, ERIS+LDP leaks less than FedAvg+LDP at the same utility."""
    says, name = "ERIS+LDP dominates FedAvg+LDP", "table-pareto"
    panel = results.of(name).experiment.sizes[results.size][0]
    at, parts, less, same = panel.points[0].value, [], 0, 0
    strengths = [arm.label.split(": ")[1] for arm in panel.arms if arm.label.startswith("ERIS+LDP:")]
    for strength in strengths:
        ours, theirs = (
            results.figure(name, panel.label, f"{family}: {strength}", at, "auc")
            for family in ("ERIS+LDP", "FedAvg+LDP")
        )
        parts.append(f"{strength}: {_shown('AUC', ours, 3, '')} against {_shown('', theirs, 3, '').strip()}")
        if ours and theirs and None not in (ours.low, ours.high, theirs.low, theirs.high, ours.value, theirs.value):
            less += bool((ours.value or 0) < (theirs.value or 0) - _LEAKS)
            same += bool(abs((ours.value or 0) - (theirs.value or 0)) <= _LEAKS)
    measured = less + same
    if measured < len(strengths):
        verdict = UNDECIDED
    else:
        verdict = (
            "holds"
            if less == len(strengths)
            else "refuted"
            if not less
            else f"holds under {less} of {measured} strengths"
        )
    return _about(results, name, says, verdict, "; ".join(parts), chance="0.5", attacker="adaptive (AUC)")


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
    """Test the corollary's Γ₂ on two gradients, +G and −G, of which one is drawn."""
    del results
    m, b, bound = 2, 1, 1.0
    said, true = (m - b) * bound**2 / (m * b), statistics.fmean([bound**2, bound**2])
    verdict = "holds" if said >= true else "holds under Γ₂ = (m−b)G²/((m−1)b), and steps that shrink with ω"
    figure = f"Γ₂ of the corollary for m = 2, b = 1: {said:g} G²; the variance is {true:g} G²"
    return Claim("Theorem 3.1 (utility)", verdict, figure, command="eris bounds")


def _theorem_leakage(results: Results) -> Claim:
    """Test the sum over coordinates on two that tell nothing alone: D ⊕ N and N."""
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
    lambda results: _falls(results, "Leakage falls with ω", "compression ω", "ERIS+DSC", ("compression ω", "ERIS+DSC",
                           _place(results, "figure-aggregators-compression", "compression ω"))),
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
    """Return every claim with its verdict, from the cells in a folder."""
    results = Results(folder, size, reading)
    return [rule(results) for rule in CLAIMS]


_HEAD = """# Which of the paper's claims stand

Written by `eris reproduce claims` from cells that were run; nothing here is edited by hand. The rules are code
(`eris/paper/claims.py`): utility is "the same" within {near:g} points of accuracy (the whole interval), leakage within
{leaks:g} of AUC. An interval is Student's t over folds, or the attack's own within a run where there is one fold. The
*adaptive* attack is the strongest registered one (docs/audit.md); the *paper's* looks at losses under what it saw, one
round alone. What was run at which size, and every number: [tables](paper/tables.md).

| claim | verdict | figure | chance | attacker | size, date |
|---|---|---|---|---|---|
"""


def write_claims(claims: Sequence[Claim], folder: Path, page: Path | None = None) -> Path:
    """Write the page with all claims, and return where it is."""
    lines = [
        f"| {claim.says} | **{claim.verdict}** | {claim.figure or '–'} | {claim.chance or '–'} "
        f"| {claim.attacker or '–'} | {claim.size or '–'}{f', {claim.when}' if claim.when else ''} |"
        for claim in claims
    ]
    commands = dict.fromkeys(claim.command for claim in claims if claim.command)
    tail = "\n\nCommands: " + ", ".join(f"`{command}`" for command in commands) + ".\n"
    path = page or folder / "claims.md"
    write_atomically(path, (_HEAD.format(near=_NEAR, leaks=_LEAKS) + "\n".join(lines) + tail).encode())
    return path
