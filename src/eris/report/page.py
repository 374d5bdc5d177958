"""The report of a run: one HTML file that opens offline and loads nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from eris.registry import Registry
from eris.report.caveats import caveats, notes_of, warnings_of
from eris.report.figures import MethodFigures, figures_of
from eris.report.gallery import fault_section, gallery, legend, rows_of
from eris.report.headline import baseline_of, headline, same_model
from eris.report.markup import Markup, data_block, element
from eris.report.overview import overview
from eris.report.record import record
from eris.report.results import MethodResult, read_run
from eris.report.theme import STYLE
from eris.report.units import format_count, format_counted

__all__ = ["SECTIONS", "Section", "render", "write_report"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # even a mistake of ours could fetch nothing


def write_report(directory: Path, sections: Sequence[str | Section] = ()) -> Path:
    """Write `report.html` into a run's folder, from what the run wrote there, and return its path.

    The folder is that of one method or one with a sub-folder for each. An unfinished run gets a report that says so.
    `sections` are further ones before the record: by name, as module:name, or functions.
    """
    page = render(read_run(directory), [SECTIONS.find(each) for each in sections])
    path = directory / "report.html"
    draft = directory / "report.html.part"
    draft.write_text(page, encoding="utf-8")
    draft.replace(path)  # a reader never sees half a page
    return path


def render(results: Sequence[MethodResult], further: Sequence[Section] = ()) -> str:
    """Return the page."""
    methods = [figures_of(result) for result in results]
    sentence = headline(methods)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"eris: {sentence}"),
        Markup(f"<style>{STYLE}</style>"),
    )
    main = element("main", _header(results, methods, sentence), *_sections(results, methods, further))
    body = element("body", main, data_block("figures", _embedded(methods)))
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _header(results: Sequence[MethodResult], methods: Sequence[MethodFigures], sentence: str) -> Markup:
    return element(
        "header",
        element("p", "eris · report of a run", class_="eyebrow"),
        element("h1", sentence),
        element("p", _setting(results[0], methods), class_="lead"),
        *(element("p", warning, class_="warning") for warning in warnings_of(methods)),
    )


def _setting(result: MethodResult, methods: Sequence[MethodFigures]) -> str:
    """Say what was trained on what, with how many."""
    first = methods[0]
    model, data = _named(result, "model"), _named(result, "data")
    if model and first.parameters:
        model = f"{model} ({format_count(first.parameters)} parameters)"
    trained = f"{model} on {data}" if model and data else model or data
    parts = [
        trained,
        format_counted(first.members, "member") if first.members else "",
        format_counted(first.rounds_planned or first.rounds, "round"),
        f"seed {first.seed}" if first.seed is not None else "",
    ]
    return " · ".join(part for part in parts if part)


def _named(result: MethodResult, table: str) -> str:
    if isinstance(had := result.summary.get(table), str):  # a peer's, which may have brought its own
        return had
    part = result.config.get(table)
    name = part.get("name") if isinstance(part, dict) else part
    if name == "own":  # given as an object in Python
        return f"custom {table}"
    return name if isinstance(name, str) else ""


def _sections(
    results: Sequence[MethodResult], methods: Sequence[MethodFigures], further: Sequence[Section]
) -> list[Markup]:
    order = [_figures, _plots, _faults, _meaning, *further, _record]
    made = [section(results, methods) for section in order]
    return [each if isinstance(each, Markup) else element("section", each) for each in made if each]


def _figures(results: Sequence[MethodResult], methods: Sequence[MethodFigures]) -> Markup:
    """Every figure of every method, in one table."""
    del results
    return element("section", element("h2", "Side by side" if len(methods) > 1 else "Figures"), overview(methods))


def _plots(results: Sequence[MethodResult], methods: Sequence[MethodFigures]) -> Markup:
    """Accuracy and loss over rounds and bytes."""
    del results
    rows = rows_of(methods)
    return element("section", element("h2", "Plots"), *([legend(rows)] if len(rows) > 1 else []), gallery(methods))


def _faults(results: Sequence[MethodResult], methods: Sequence[MethodFigures]) -> Markup | None:
    """What went wrong, if anything did."""
    del results
    return fault_section(methods) or None


def _meaning(results: Sequence[MethodResult], methods: Sequence[MethodFigures]) -> Markup:
    """What the figures do and do not say."""
    notes = [element("li", element("strong", f"{names}: ") if names else "", note) for names, note in notes_of(results)]
    own = [element("h3", "Notes of the run"), element("ul", *notes, class_="plain")] if notes else []
    items = [element("li", statement) for statement in caveats(results, methods)]
    return element(
        "section", element("h2", "What these figures do and do not say"), element("ul", *items, class_="plain"), *own
    )


def _record(results: Sequence[MethodResult], methods: Sequence[MethodFigures]) -> Markup:
    """Digests, configuration and versions."""
    del methods
    return record(results)


Section = Callable[[Sequence[MethodResult], Sequence[MethodFigures]], str | None]
"""Makes a section of the report; plain text is escaped, what `eris.report.markup.element` made is not."""

SECTIONS: Registry[Section] = Registry(
    "report section",
    "eris.sections",
    {"figures": _figures, "plots": _plots, "faults": _faults, "meaning": _meaning, "record": _record},
    refuses=lambda thing: "" if callable(thing) else "it cannot be called with a run's results",
)


def _embedded(methods: Sequence[MethodFigures]) -> dict[str, object]:
    baseline = baseline_of(methods)
    return {
        "baseline": baseline.name,
        "same_model_as_baseline": [m.name for m in methods if m is not baseline and same_model(m, baseline)],
        "methods": [asdict(method) for method in methods],
    }
