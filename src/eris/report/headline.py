"""What happened, in one plain sentence that claims no more than the files show."""

from __future__ import annotations

from collections.abc import Sequence

from eris.report.figures import MethodFigures
from eris.report.units import format_counted, format_percent, format_ratio

__all__ = ["baseline_of", "headline", "same_model"]

_MOST_CLAUSES = 3  # beyond that a sentence is a list, and the table says it better


def baseline_of(methods: Sequence[MethodFigures]) -> MethodFigures:
    """Return the method others are compared with: FedAvg where it ran, else the first."""
    return next((method for method in methods if method.name.lower() == "fedavg"), methods[0])


def same_model(one: MethodFigures, other: MethodFigures) -> bool:
    """Say whether two finished methods ended with the same model, bit for bit: only their digests can tell."""
    both_done = one.finished and other.finished and one.rounds == other.rounds
    return both_done and bool(one.model_digest) and one.model_digest == other.model_digest


def headline(methods: Sequence[MethodFigures]) -> str:
    """Return the sentence at the top of the report."""
    if not all(method.finished for method in methods):
        return _unfinished(methods)
    if len(methods) == 1:
        return _alone(methods[0])
    baseline = baseline_of(methods)
    others = [method for method in methods if method is not baseline]
    same = [method.label for method in others if same_model(method, baseline)]
    different = [method for method in others if not same_model(method, baseline)]
    clauses = [f"{_listed(same)} reached the same model as {baseline.label}, bit for bit"] if same else []
    if len(different) > _MOST_CLAUSES:
        clauses += _extremes(different, baseline)
    else:
        clauses += [_compared(method, baseline) for method in different]
    return "; ".join(clauses) + "."


def _unfinished(methods: Sequence[MethodFigures]) -> str:
    failed = [f"{method.label} failed: {method.failed}" for method in methods if method.failed]
    begun = [_progress(method) for method in methods if method.rounds and not method.failed]
    waiting = [method.label for method in methods if not method.rounds and not method.failed]
    if failed and all(method.finished or method.failed for method in methods):
        return "; ".join([*failed, *begun]) + "."
    begun += failed
    if waiting:
        begun.append(f"{_listed(waiting)} {'has' if len(waiting) == 1 else 'have'} not finished a round")
    return f"This run is not finished: {'; '.join(begun)}."


def _progress(method: MethodFigures) -> str:
    if method.finished:
        reached = f" ({format_percent(method.final_accuracy)})" if method.final_accuracy is not None else ""
        return f"{method.label} finished {_all_rounds(method)}{reached}"
    done = f"{method.rounds} of " if method.rounds_planned else ""
    rounds = format_counted(method.rounds_planned or method.rounds, "round")
    reached = f" ({format_percent(method.final_accuracy)} so far)" if method.final_accuracy is not None else ""
    return f"{method.label} finished {done}{rounds}{reached}"


def _all_rounds(method: MethodFigures) -> str:
    return "its one round" if method.rounds == 1 else f"all {format_counted(method.rounds, 'round')}"


def _alone(method: MethodFigures) -> str:
    members = f" with {format_counted(method.members, 'member')}" if method.members else ""
    share, rounds = method.largest_share, format_counted(method.rounds, "round")
    if method.rounds and method.faults.fruitless == method.rounds:
        return f"{method.label} learned nothing: every shard was lost in {_all_rounds(method)}{members}."
    seen = f"; no single observer saw more than {format_percent(share)} of an update in a round" if share else ""
    if method.final_accuracy is None:
        return f"{method.label} finished {rounds}{members}{seen}."
    reached = format_percent(method.final_accuracy)
    return f"{method.label} reached {reached} accuracy in {rounds}{members}{seen}."


def _compared(method: MethodFigures, baseline: MethodFigures) -> str:
    if method.final_accuracy is None or baseline.final_accuracy is None:
        return f"{method.label} ended with a different model from {baseline.label}{_upload(method, baseline)}"
    points = round((method.final_accuracy - baseline.final_accuracy) * 100, 1)
    place = f"{abs(points):.1f} points {'above' if points > 0 else 'below'}" if points else "level with"
    figures = f"{format_percent(method.final_accuracy)} against {format_percent(baseline.final_accuracy)} accuracy"
    return f"{method.label} ended {place} {baseline.label} ({figures}){_upload(method, baseline)}"


def _upload(method: MethodFigures, baseline: MethodFigures) -> str:
    if not method.upload or not baseline.upload:
        return ""
    ratio = baseline.upload / method.upload
    if 0.8 < ratio < 1.25:
        return ""
    return f" and uploaded {format_ratio(max(ratio, 1 / ratio))} {'less' if ratio > 1 else 'more'}"


def _extremes(methods: Sequence[MethodFigures], baseline: MethodFigures) -> list[str]:
    known = [method for method in methods if method.final_accuracy is not None]
    if not known:
        return [f"{len(methods)} methods ended with different models from {baseline.label}"]
    ranked = sorted(known, key=lambda method: method.final_accuracy or 0.0)
    best, weakest = _compared(ranked[-1], baseline), _compared(ranked[0], baseline)
    return [f"{best}, the best of {len(known)} that ended elsewhere", f"{weakest}, the weakest"]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
