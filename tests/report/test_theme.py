import pytest

from eris.report.theme import DARK, LIGHT


def luminance(colour: str) -> float:
    """WCAG 2 relative luminance."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_everything_written_can_be_read(theme: dict[str, str]) -> None:
    written = [name for name in theme if name not in ("page", "surface", "grid")]
    for name in written:
        for ground in ("page", "surface"):
            assert contrast(theme[name], theme[ground]) >= 4.5, (name, ground)


def test_both_themes_know_the_same_colours() -> None:
    assert list(LIGHT) == list(DARK)
