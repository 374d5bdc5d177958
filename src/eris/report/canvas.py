"""From a matplotlib figure to SVG that lives inside the page: real text, the page's colours, nothing from outside."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eris.errors import MissingExtra
from eris.report.markup import Markup, element
from eris.report.theme import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["colour", "drawing", "plain_axes", "to_svg"]

# matplotlib wants numbers for colours: each name gets one that nothing else uses, exchanged for the name in the SVG.
_STAND_INS = {name: f"#a0b0{position:02x}" for position, name in enumerate(LIGHT)}
_NAMES = {stand_in: name for name, stand_in in _STAND_INS.items()}

_SETTINGS: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": _STAND_INS["grid"],
    "axes.labelcolor": _STAND_INS["muted"],
    "axes.labelsize": 8.5,
    "font.size": 8.5,
    "grid.color": _STAND_INS["grid"],
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.9,
    "svg.fonttype": "none",
    "text.color": _STAND_INS["ink"],
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "text.usetex": False,
    "xtick.color": _STAND_INS["grid"],
    "xtick.labelcolor": _STAND_INS["muted"],
    "ytick.color": _STAND_INS["grid"],
    "ytick.labelcolor": _STAND_INS["muted"],
}


def colour(name: str) -> str:
    """Return what to hand to matplotlib for a colour of the theme."""
    return _STAND_INS[name]


@contextmanager
def drawing(salt: str) -> Iterator[None]:
    """Draw with the report's settings and leave the caller's as they were.

    The salt makes the identifiers inside one SVG its own and the same every time.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra("matplotlib", "report", "drawing the plots of a report") from error
    with warnings.catch_warnings(), mpl.rc_context():
        warnings.simplefilter("ignore")  # a letter that the font lacks is drawn by the reader's own font
        mpl.rcdefaults()
        mpl.rcParams.update({**_SETTINGS, "svg.hashsalt": salt})
        yield


def plain_axes(axes: Axes, *, grid: str = "y") -> None:
    """Leave only what helps reading: one set of thin lines, no box, no ticks."""
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    if grid in ("x", "y"):
        axes.grid(visible=True, axis="x" if grid == "x" else "y")


def to_svg(figure: Figure, alternative: str) -> Markup:
    """Write a figure as an inline SVG whose alternative text says what it shows."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    box = re.search(r'viewBox="([^"]*)"', text)
    body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<style\b.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r"<defs>\s*</defs>", "", body)
    body = re.sub(r'<g id="[^"]*"', "<g", body)  # repeated in every figure, pointed to by none
    body = re.sub(r"(fill|stroke): (#[0-9a-f]{6})", _named, body)
    size = box.group(1) if box else "0 0 1 1"
    return element("svg", Markup(body), role="img", viewBox=size, aria_label=alternative)


def _named(match: re.Match[str]) -> str:
    name = _NAMES.get(match.group(2))
    return f"{match.group(1)}: var(--{name})" if name else match.group(0)
