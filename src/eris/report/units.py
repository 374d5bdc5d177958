"""Numbers as people read them: decimal bytes, seconds, percent. Terminal, report and planner write them the same way.

A number that a run did not give is a dash, never a zero:

>>> format_bytes(None), format_percent(float("nan"))
('–', '–')
"""

from __future__ import annotations

import math

__all__ = [
    "MISSING",
    "format_bytes",
    "format_count",
    "format_counted",
    "format_percent",
    "format_points",
    "format_rate",
    "format_ratio",
    "format_round_bytes",
    "format_seconds",
]

MISSING = "–"
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _three_digits(value: float) -> str:
    """Return about three significant digits, without an exponent."""
    size = abs(value)
    decimals = 0 if size >= 99.95 or size == 0 else 1 if size >= 9.995 else 2
    return f"{value:,.{decimals}f}"


def format_bytes(count: float | None) -> str:
    """Write bytes in decimal units, the ones bandwidths are given in (20 MB/s is 20,000,000 bytes a second).

    >>> format_bytes(246_824), format_bytes(7_404), format_bytes(12), format_bytes(999_999)
    ('247 kB', '7.40 kB', '12 B', '1.00 MB')
    """
    if count is None or not _known(count):
        return MISSING
    size, unit = abs(count), 0
    while size >= 999.5 and unit < len(_BYTE_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    number = f"{size:.0f}" if unit == 0 and size == int(size) else _three_digits(size)
    return f"{'-' if count < 0 else ''}{number} {_BYTE_UNITS[unit]}"


def format_rate(rate: float | None) -> str:
    """Write bytes per second, without zeros that say nothing.

    >>> format_rate(20e6), format_rate(12.5e6)
    ('20 MB/s', '12.5 MB/s')
    """
    if rate is None or not _known(rate):
        return MISSING
    return f"{format_round_bytes(rate)}/s"


def format_round_bytes(count: float | None) -> str:
    """Write bytes like `format_bytes`, without zeros behind the point: for axes and settings.

    >>> format_round_bytes(1_000_000), format_round_bytes(2_500), format_round_bytes(100)
    ('1 MB', '2.5 kB', '100 B')
    """
    number, space, unit = format_bytes(count).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number}{space}{unit}"


def format_seconds(seconds: float | None) -> str:
    """Write a duration in the unit that suits it.

    >>> format_seconds(0.0000021), format_seconds(0.0248), format_seconds(7.5), format_seconds(98), format_seconds(7265)
    ('2.10 µs', '24.8 ms', '7.50 s', '1 min 38 s', '2 h 1 min')
    """
    if seconds is None or not _known(seconds):
        return MISSING
    if seconds < 0:
        return "-" + format_seconds(-seconds)
    if seconds < 0.000_999_5:
        return f"{_three_digits(seconds * 1e6)} µs"
    if seconds < 0.999_5:
        return f"{_three_digits(seconds * 1e3)} ms"
    if seconds < 59.95:
        return f"{_three_digits(seconds)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def format_percent(share: float | None, decimals: int | None = None) -> str:
    """Write a share of one as percent; small shares keep two significant digits.

    >>> format_percent(0.9642), format_percent(0.1), format_percent(1), format_percent(0.0033), format_percent(0.00012)
    ('96.4 %', '10.0 %', '100 %', '0.33 %', '0.012 %')

    A share that is not all is never written as 100 %, and one that is not nothing never as 0 %:

    >>> format_percent(0.99996), format_percent(0.9999), format_percent(4e-9)
    ('>99.9 %', '>99.9 %', '<0.001 %')
    """
    if share is None or not _known(share):
        return MISSING
    percent = share * 100
    if decimals is not None:
        return f"{percent:.{decimals}f} %"
    if 99.95 <= percent < 100:
        return ">99.9 %"
    if percent in (0, 100):
        return f"{percent:.0f} %"
    if 0 < percent < 0.001:
        return "<0.001 %"
    size = abs(percent)
    return f"{percent:.{1 if size >= 9.995 else 2 if size >= 0.0995 else 3 if size >= 0.00995 else 4}f} %"


def format_points(difference: float | None) -> str:
    """Write a difference of two shares in percentage points, with its sign.

    >>> format_points(-0.0031), format_points(0.02), format_points(0)
    ('−0.3 points', '+2.0 points', '±0.0 points')
    """
    if difference is None or not _known(difference):
        return MISSING
    points = round(difference * 100, 1)
    sign = "+" if points > 0 else "−" if points < 0 else "±"
    return f"{sign}{abs(points):.1f} points"


def format_ratio(ratio: float | None) -> str:
    """Write how many times.

    >>> format_ratio(30.96), format_ratio(1.5), format_ratio(1234.5)
    ('31×', '1.5×', '1,234×')
    """
    if ratio is None or not _known(ratio):
        return MISSING
    return f"{ratio:,.0f}×" if ratio >= 9.95 else f"{ratio:.1f}×"


def format_count(count: float | None) -> str:
    """Write a count with its thousands apart.

    >>> format_count(61_706)
    '61,706'
    """
    if count is None or not _known(count):
        return MISSING
    return f"{count:,.0f}"


def format_counted(count: int, noun: str) -> str:
    """Write how many there are of what, in the plural unless it is one.

    >>> format_counted(1, "round"), format_counted(30, "round"), format_counted(0, "shard")
    ('1 round', '30 rounds', '0 shards')
    """
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"
