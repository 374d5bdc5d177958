"""The table that sets the methods side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eris.report.figures import MethodFigures
from eris.report.headline import baseline_of, same_model
from eris.report.markup import Markup, element, join
from eris.report.units import (
    MISSING,
    format_bytes,
    format_count,
    format_percent,
    format_points,
    format_rate,
    format_ratio,
    format_seconds,
)

__all__ = ["overview"]

Figure = Callable[[MethodFigures], float | None]
Remark = Callable[[MethodFigures, MethodFigures], str]


@dataclass(frozen=True)
class _Line:
    """One row: its name, where its number comes from, how it is written, and a remark against the baseline."""

    name: str
    figure: Figure
    form: Callable[[float | None], str]
    remark: Remark | None = None


def overview(methods: Sequence[MethodFigures]) -> Markup:
    """Return the table: a row for each figure that any method has, a column for each method."""
    baseline = baseline_of(methods)
    lines = [line for line in _LINES if any(line.figure(method) is not None for method in methods)]
    body = [
        element(
            "tr",
            element("th", _name(line, methods), scope="row"),
            *(_cell(line, method, baseline) for method in methods),
        )
        for line in lines
    ]
    if any(method.transforms for method in methods):
        cells = (element("td", _transforms(method), class_="words") for method in methods)
        body.append(element("tr", element("th", "Done to an update before it is sent", scope="row"), *cells))
    if any(method.model_digest for method in methods):
        body.append(
            element("tr", element("th", "Model digest", scope="row"), *(_digest(each, baseline) for each in methods))
        )
    head = element(
        "tr", element("th", "Figure", scope="col"), *(element("th", method.label, scope="col") for method in methods)
    )
    kind = "figures many" if len(methods) > 4 else "figures"
    parts = (element("caption", _CAPTION), element("thead", head), element("tbody", *body))
    return element("div", element("table", *parts, class_=kind), class_="card")


_DIGEST_LETTERS = 8  # enough to tell them apart at a glance; the whole digests stand at the end of the page
_CAPTION = "Upload and download are those of the member role; what aggregators carry on top is shown below."


def _name(line: _Line, methods: Sequence[MethodFigures]) -> str:
    rates = {method.link_rate for method in methods}
    rate = rates.pop() if len(rates) == 1 else None
    if line.name == _BEST:
        held_out = any(loss is not None for method in methods for loss in method.curve.validation_loss)
        return f"{line.name} of least {'validation' if held_out else 'test'} loss"
    if line.name == _DISTRIBUTION and rate:
        return f"{line.name} at {format_rate(rate)}".replace(" MB", "\N{NO-BREAK SPACE}MB")
    return line.name


def _cell(line: _Line, method: MethodFigures, baseline: MethodFigures) -> Markup:
    done = method.finished and baseline.finished  # a race that is still on has no winner
    remark = line.remark(method, baseline) if line.remark and method is not baseline and done else ""
    if line.name == _BEST:
        remark = _best_round(method)
    if line.name == _FINAL and not method.finished and method.final_accuracy is not None:
        remark = "so far"
    return element("td", line.form(line.figure(method)), join([element("small", remark)] if remark else []))


def _transforms(method: MethodFigures) -> str:
    return "nothing" if method.transforms == "identity()" else method.transforms or MISSING


def _digest(method: MethodFigures, baseline: MethodFigures) -> Markup:
    if not method.model_digest:
        return element("td", MISSING)
    same = method is not baseline and same_model(method, baseline)
    remark = [element("small", f"same bits as {baseline.label}")] if same else []
    return element("td", element("code", method.model_digest[:_DIGEST_LETTERS]), join(remark))


def _accuracy_remark(method: MethodFigures, baseline: MethodFigures) -> str:
    if method.final_accuracy is None or baseline.final_accuracy is None:
        return ""
    return "" if same_model(method, baseline) else format_points(method.final_accuracy - baseline.final_accuracy)


def _best_round(method: MethodFigures) -> str:
    return f"round {method.best_round}" if method.best_round is not None else ""


def _times(figure: Figure) -> Remark:
    def remark(method: MethodFigures, baseline: MethodFigures) -> str:
        mine, theirs = figure(method), figure(baseline)
        if not mine or not theirs or 0.8 < mine / theirs < 1.25:
            return ""
        return f"{format_ratio(theirs / mine)} less" if mine < theirs else f"{format_ratio(mine / theirs)} more"

    return remark


def _lost(method: MethodFigures) -> float | None:
    return len(method.faults.lost) if method.faults.any else None


_FINAL = "Final test accuracy"
_BEST = "Test accuracy in the round"
_DISTRIBUTION = "Estimated distribution time of a round"
_LINES = (
    _Line(_FINAL, lambda m: m.final_accuracy, format_percent, _accuracy_remark),
    _Line(_BEST, lambda m: m.best_accuracy, format_percent),
    _Line("Upload per member and round", lambda m: m.upload, format_bytes, _times(lambda m: m.upload)),
    _Line("Download per member and round", lambda m: m.download, format_bytes, _times(lambda m: m.download)),
    _Line("Largest share of an update one observer saw in a round", lambda m: m.largest_share, format_percent),
    _Line("Share of the coordinates one observer saw over all rounds", lambda m: m.union_share, format_percent),
    _Line("Share of an update that published means gave away", lambda m: m.published_share or None, format_percent),
    _Line(_DISTRIBUTION, lambda m: m.distribution_seconds, format_seconds,
          _times(lambda m: m.distribution_seconds)),
    _Line("Rounds", lambda m: m.rounds, format_count),
    _Line("Shards lost", _lost, format_count),
    _Line("Wall time", lambda m: m.seconds, format_seconds),
    _Line("Peak memory", lambda m: m.peak_memory_bytes, format_bytes),
)  # fmt: skip
