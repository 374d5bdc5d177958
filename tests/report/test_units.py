import math

from hypothesis import given
from hypothesis import strategies as st

from eris.report.units import MISSING, format_bytes, format_percent, format_seconds

FACTORS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
SECONDS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}


@given(st.integers(0, 10**17))
def test_bytes_can_be_read_back(count: int) -> None:
    number, unit = format_bytes(count).split()
    assert math.isclose(float(number.replace(",", "")) * FACTORS[unit], count, rel_tol=0.006)


@given(st.floats(1e-6, 59.9))
def test_seconds_can_be_read_back(seconds: float) -> None:
    number, unit = format_seconds(seconds).split()
    assert math.isclose(float(number) * SECONDS[unit], seconds, rel_tol=0.006)


@given(st.floats(60, 1e6))
def test_long_times_can_be_read_back(seconds: float) -> None:
    first, unit, second, _ = format_seconds(seconds).split()
    whole = int(first.replace(",", ""))
    read = whole * 60 + int(second) if unit == "min" else whole * 3600 + int(second) * 60
    assert abs(read - seconds) <= (60 if unit == "h" else 1)


@given(st.floats(1e-5, 1))
def test_percent_can_be_read_back_and_never_claims_all_or_nothing(share: float) -> None:
    text = format_percent(share).removesuffix(" %")
    assert (text == "100") == (share == 1)
    assert math.isclose(float(text.lstrip("<>")) / 100, share, rel_tol=0.06)


@given(st.sampled_from([None, math.nan, math.inf, -math.inf]))
def test_what_is_not_known_is_a_dash(value: float | None) -> None:
    assert {format_bytes(value), format_seconds(value), format_percent(value)} == {MISSING}
