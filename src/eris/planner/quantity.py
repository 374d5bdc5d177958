"""Quantities as people write them: `1.65M` values, `2GB`, `20MB/s`, `100Mbit/s`, `1%`. All units are decimal.

>>> parse_count("1.65M"), parse_bytes("2GB"), parse_rate("20MB/s"), parse_rate("100Mbit/s"), parse_share("0.6%")
(1650000, 2000000000.0, 20000000.0, 12500000.0, 0.006)
"""

from __future__ import annotations

import math
import re

from eris.errors import ConfigError

__all__ = ["parse_bytes", "parse_count", "parse_rate", "parse_share"]

_NUMBER = r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*"
_COUNT = re.compile(_NUMBER + r"([kmbgt]?)\s*", re.IGNORECASE)
_BYTES = re.compile(_NUMBER + r"([kmgt]?)b?\s*", re.IGNORECASE)
_RATE = re.compile(_NUMBER + r"([kmgt]?)(b|byte|bytes|bit|bits|bps)?\s*(?:/\s*s)?\s*", re.IGNORECASE)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}


def _match(pattern: re.Pattern[str], text: str | float, what: str, example: str) -> tuple[float, str, str]:
    found = pattern.fullmatch(str(text).replace("_", "").replace(",", ""))
    if found is None or not math.isfinite(float(found[1])):
        raise ConfigError(f"{what} is {text!r}", fix=f"write it like {example}")
    unit = found[3] if found.re.groups == 3 and found[3] else ""
    return float(found[1]), found[2].lower(), unit.lower()


def parse_count(text: str | float) -> int:
    """Return a whole number: `62K`, `1.65M`, `1.3B` or plain digits."""
    number, factor, _ = _match(_COUNT, text, "model size", "61706, 62K, 1.65M or 1.3B")
    return round(number * _FACTORS[factor])


def parse_bytes(text: str | float) -> float:
    """Return bytes: `500MB`, `2GB`, or a plain number of bytes."""
    number, factor, _ = _match(_BYTES, text, "memory", "500MB or 2GB")
    return number * _FACTORS[factor]


def parse_rate(text: str | float) -> float:
    """Return bytes a second: `20MB/s`, `100Mbit/s`, or a plain number of bytes a second.

    `Mb/s` is refused: it is read as megabits by some and as megabytes by others.
    """
    number, factor, unit = _match(_RATE, text, "rate", "20MB/s or 100Mbit/s")
    if unit == "b" and not str(text).rstrip("/s ").endswith("B"):
        raise ConfigError(f"rate is {text!r}, which may mean bits or bytes", fix="write 20MB/s or 160Mbit/s")
    return number * _FACTORS[factor] / (8 if unit in ("bit", "bits", "bps") else 1)


def parse_share(text: str | float) -> float:
    """Return a share of one: `1%` or `0.01`; it must lie in (0, 1]."""
    percent = isinstance(text, str) and text.strip().endswith("%")
    plain = str(text).strip().removesuffix("%").strip()
    try:
        # decimal digits first, so that 0.6% is the float 0.006 and not 0.006 plus a rounding
        share = float(f"{plain}e-2") if percent and "e" not in plain.lower() else float(plain) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise ConfigError(f"share is {text!r}", fix="write it like 0.01 or 1%, above 0 and at most 1 (100%)")
    return share
