"""A docstring's `>>>` examples become code on the site; Markdown alone would take them for a quotation."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


class Doctests(Extension):
    """Put fences around the examples of every docstring."""

    def on_object(self, *, obj: Object, **others: Any) -> None:
        """Change the docstring of a class, function, attribute or module as soon as it is known."""
        del others
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"\n```pycon\n{found[0]}\n```\n", text)
