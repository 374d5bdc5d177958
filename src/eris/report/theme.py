"""Colours and type of the report, for the page and its plots alike.

The plots carry names of colours, not colours: so they follow the reader's light or dark setting, and print in light.
The series colours are those of Okabe and Ito, which stay apart for colour-blind readers, darkened (or lightened) until
each has a contrast of at least 4.5 to the page; lines differ in dash and marker as well.
"""

from __future__ import annotations

__all__ = ["DARK", "DASHES", "LIGHT", "MARKERS", "SHAPES", "STYLE", "series"]

LIGHT = {
    "page": "#f6f7f9", "surface": "#ffffff", "ink": "#16202b", "muted": "#55606d", "grid": "#dfe4ea",
    "alarm": "#b3261e",
    "series-0": "#5a6572", "series-1": "#0067a3", "series-2": "#b34700", "series-3": "#00735a",
    "series-4": "#9c3b76", "series-5": "#7a5c00", "series-6": "#4b4fb8", "series-7": "#6b4a3a",
}  # fmt: skip
DARK = {
    "page": "#10151b", "surface": "#181f27", "ink": "#e6ebf0", "muted": "#a3aeba", "grid": "#313b46",
    "alarm": "#ff8a80",
    "series-0": "#aab4c0", "series-1": "#5cb8ef", "series-2": "#f59457", "series-3": "#3ccca2",
    "series-4": "#e59fca", "series-5": "#e3b93a", "series-6": "#a9adff", "series-7": "#d2aa94",
}  # fmt: skip

DASHES: tuple[tuple[float, ...], ...] = ((), (5, 3), (2, 2), (8, 2, 2, 2), (), (5, 3), (2, 2), (8, 2, 2, 2))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
SHAPES = (  # the same, for the key: outlines in a box of 12
    "M6 1a5 5 0 1 0 .01 0z", "M1.5 1.5h9v9h-9z", "M6 1l5 10H1z", "M6 0l6 6-6 6-6-6z", "M6 11L1 1h10z",
    "M4 0h4v4h4v4H8v4H4V8H0V4h4z", "M3 0l3 3 3-3 3 3-3 3 3 3-3 3-3-3-3 3-3-3 3-3-3-3z", "M6 0l6 4.6L9.7 12H2.3L0 4.6z",
)  # fmt: skip


def series(slot: int) -> str:
    """Return the name of a method's colour; after eight methods they begin again.

    >>> series(1), series(9)
    ('series-1', 'series-1')
    """
    return f"series-{slot % 8}"


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


STYLE = (
    f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
    f"@media print{{:root{{color-scheme:light;{_variables(LIGHT)}--page:#ffffff;}}}}"
    """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
 "Helvetica Neue",Arial,"DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1120px;margin:0 auto;padding:48px 24px 72px}
header{margin-bottom:36px}
.eyebrow{margin:0 0 10px;color:var(--muted);font-size:.85rem;letter-spacing:.02em}
h1{margin:0;max-width:44ch;font-size:1.9rem;line-height:1.28;font-weight:650;letter-spacing:-.012em;text-wrap:balance}
h2{margin:52px 0 14px;font-size:1.25rem;line-height:1.3;font-weight:650}
h3{margin:0 0 2px;font-size:1rem;line-height:1.35;font-weight:650}
p{margin:0 0 12px;max-width:74ch}
.lead{margin:14px 0 0;color:var(--muted);font-size:1.05rem}
.note{color:var(--muted);font-size:.9rem}
.warning{margin:20px 0 0;padding:10px 14px;border-left:4px solid var(--alarm);background:var(--surface)}
.legend{display:flex;flex-wrap:wrap;gap:6px 22px;margin:8px 0 16px;padding:0;list-style:none;font-size:.9rem}
.legend svg{width:13px;height:13px;margin-right:8px;vertical-align:-1px}
figure{display:flex;flex-direction:column}
figure .plot{margin:auto 0}
.card,figure{margin:0;padding:18px 20px;background:var(--surface);border:1px solid var(--grid);border-radius:10px}
.card{overflow-x:auto}
.plots{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:18px}
.wide{grid-column:1/-1}
figcaption{margin-bottom:10px}
figcaption p{margin:0;color:var(--muted);font-size:.88rem;line-height:1.45}
.plot{overflow-x:auto}
.plot svg{display:block;width:100%;height:auto}
.plot svg *{stroke-linejoin:round;stroke-linecap:butt}
.plot+table{margin-top:20px}
.plot text{font-family:inherit!important;paint-order:stroke;stroke:var(--surface);stroke-width:2.5px}
table{width:100%;border-collapse:collapse;font-size:.95rem}
caption{padding-bottom:10px;color:var(--muted);font-size:.9rem;text-align:left}
th,td{padding:9px 14px;border-bottom:1px solid var(--grid);text-align:right;vertical-align:top;white-space:nowrap}
th:first-child,td:first-child{padding-left:0;text-align:left;white-space:normal}
th:last-child,td:last-child{padding-right:0}
thead th{border-bottom:2px solid var(--ink);font-weight:650}
tbody tr:last-child>*{border-bottom:0}
tbody th{font-weight:450}
.figures tbody th{min-width:15rem}
.many th,.many td{padding-left:9px;padding-right:9px;font-size:.92rem}
td small{display:block;color:var(--muted);font-size:.82rem}
table.words td,table.words th,td.words{white-space:normal}
table.words td,table.words th{text-align:left}
td.words{max-width:16rem;font-size:.86rem}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.86em}
code{overflow-wrap:anywhere}
pre{margin:12px 0 0;overflow-x:auto;line-height:1.5}
details{margin:0 0 10px;padding:12px 20px;background:var(--surface);border:1px solid var(--grid);border-radius:10px}
summary{cursor:pointer;font-weight:550}
ul.plain{max-width:80ch;margin:10px 0 0;padding-left:1.2em}
ul.plain li{margin-bottom:8px}
footer{margin-top:48px;color:var(--muted);font-size:.85rem}
:focus-visible{outline:3px solid var(--series-1);outline-offset:2px}
@media screen and (max-width:820px){main{padding:28px 14px 48px}.plots{grid-template-columns:minmax(0,1fr)}
 h1{font-size:1.5rem}.figures tbody th{min-width:9rem}.wide .plot svg{min-width:680px}}
@media print{body{font-size:9.5pt}main{max-width:none;padding:0}header{margin-bottom:18px}h1{font-size:17pt}
 h2{margin:22px 0 8px;break-after:avoid}.legend{break-after:avoid}th,td{padding-top:4px;padding-bottom:4px}
 .plots{gap:10px}.card,figure,details{padding:10px 12px}
 figure,.card,details,tr{break-inside:avoid}details::details-content{content-visibility:visible;display:block}
 pre{white-space:pre-wrap}}
"""
)
