"""What is needed to run it again: configuration, versions, digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eris.report.figures import label_of
from eris.report.markup import Markup, element
from eris.report.results import MethodResult

__all__ = ["record"]


def record(results: Sequence[MethodResult]) -> Markup:
    """Return the section with everything that is needed to repeat the run."""
    parts = [_digests(results), _versions(results), *_configurations(results)]
    return element("section", element("h2", "To run it again"), *(part for part in parts if part))


def _digests(results: Sequence[MethodResult]) -> Markup | None:
    found = [(label_of(result.name), result.summary.get("model_digest")) for result in results]
    known = [(label, digest) for label, digest in found if digest]
    if not known:
        return None
    explained = element(
        "p", "SHA-256 of the final model, as float32 in the order of its spec. Equal digests are equal models.",
        class_="note",
    )  # fmt: skip
    rows = [element("tr", element("th", label, scope="row"), _code_cell(str(digest))) for label, digest in known]
    return _folded("Digests of the final models", explained, _table(("Method", "Digest"), rows))


def _versions(results: Sequence[MethodResult]) -> Markup | None:
    found: dict[str, str] = {}
    for result in results:
        versions = result.summary.get("versions")
        for name, version in versions.items() if isinstance(versions, Mapping) else ():
            found.setdefault(str(name), str(version))
    if not found:
        return None
    rows = [element("tr", element("th", name, scope="row"), _code_cell(version)) for name, version in found.items()]
    return _folded("Versions", _table(("Package", "Version"), rows))


def _configurations(results: Sequence[MethodResult]) -> list[Markup]:
    """Return each configuration once; those that differ in nothing but the method's name are one."""
    kinds: dict[str, list[MethodResult]] = {}
    for result in results:
        if result.config_text.strip():
            rest = {key: value for key, value in result.config.items() if key != "method"}
            kinds.setdefault(repr(rest) if rest else result.config_text, []).append(result)
    return [_configuration(alike) for alike in kinds.values()]


def _configuration(alike: Sequence[MethodResult]) -> Markup:
    title = f"Configuration of {', '.join(label_of(result.name) for result in alike)}"
    code = element("pre", element("code", alike[0].config_text))
    if len(alike) == 1:
        return _folded(title, code)
    names = ", ".join(result.name for result in alike)
    return _folded(title, element("p", f"The same for all except the method: {names}.", class_="note"), code)


def _folded(title: str, *content: Markup) -> Markup:
    return element("details", element("summary", title), *content)


def _table(head: tuple[str, ...], rows: Sequence[Markup]) -> Markup:
    titles = element("tr", *(element("th", title, scope="col") for title in head))
    return element("table", element("thead", titles), element("tbody", *rows), class_="words")


def _code_cell(text: str) -> Markup:
    return element("td", element("code", text))
