"""HTML that is escaped by construction.

Text is text: only what `element` made, or what is wrapped in `Markup` by hand, goes out as it is.

>>> print(element("td", "<b> & co", title='"'))
<td title="&quot;">&lt;b&gt; &amp; co</td>
>>> print(element("p", "see ", element("b", "here"), class_="note"))
<p class="note">see <b>here</b></p>
>>> print(element("meta", charset="utf-8"))
<meta charset="utf-8">
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Markup", "data_block", "element", "join"]

_VOID = frozenset({"br", "hr", "img", "link", "meta"})


class Markup(str):
    """A piece of HTML that is safe to put on the page as it stands."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: str | bool | None) -> Markup:
    """Make one element; a trailing underscore keeps `class_` clear of Python's word, the others become hyphens."""
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{join(children)}</{tag}>")


def join(children: Iterable[str]) -> Markup:
    """Put pieces one after the other, escaping those that are plain text."""
    return Markup("".join(piece if isinstance(piece, Markup) else html.escape(piece) for piece in children))


def _attribute(name: str, value: str | bool | None) -> str:
    written = name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {written}" if value is True else f' {written}="{html.escape(value)}"'


def data_block(identity: str, value: object) -> Markup:
    """Embed plain data as JSON that no browser runs and that no string inside can end early.

    >>> print(data_block("x", {"a": "</script>", "b": float("nan")}))
    <script type="application/json" id="x">{"a": "\\u003c/script\\u003e", "b": null}</script>
    """
    text = json.dumps(_finite(value), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(f'<script type="application/json" id="{html.escape(identity)}">{text}</script>')


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value
