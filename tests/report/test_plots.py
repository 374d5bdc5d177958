"""What stands on the axes."""

import re

from eris.report.plots import PlotLine, Row, curves


def letters(*points: tuple[int, float]) -> list[str]:
    line = PlotLine(Row("ERIS", 1), *zip(*points, strict=True))
    page = curves([line], x_label="round", alternative="accuracy", y_format=lambda value: f"{value:.0%}")
    return re.findall(r"<text[^>]*>([^<]*)", str(page))


def test_rounds_are_whole_numbers():
    assert letters((0, 0.5), (10, 0.9))[:6] == ["0", "2", "4", "6", "8", "10"]


def test_a_single_round_stands_between_its_neighbours():
    assert letters((30, 0.9))[:3] == ["29", "30", "31"]
