"""The paper's figures: their numbers, and that they are drawn."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import ConfigError
from eris.paper.duration_figures import AGGREGATORS, FigureRequest, _spread, curves, draw
from eris.planner import Fleet, distribution_time, scenario


def named(kind, question):
    return {curve.label: curve for curve in curves(kind, question)}


def test_time_against_clients():
    found = named("clients", FigureRequest())
    assert {curve.aggregators for curve in found.values() if curve.method == "eris+dsc"} == {*AGGREGATORS, None}
    assert found["ERIS+DSC, A = 50"].x[0] == 50  # never more aggregators than members
    assert found["FedAvg"].seconds[0] == pytest.approx(2 * 10 * 4e7 / 12.5e6)
    fedavg, all_aggregate = found["FedAvg"].seconds, found["ERIS, A = K"].seconds
    assert fedavg[-1] / fedavg[0] == pytest.approx(30)
    assert all_aggregate[-1] / all_aggregate[0] < 1.12  # flat: (K−1)/K
    for x, seconds in zip(found["ERIS+DSC, A = 5"].x, found["ERIS+DSC, A = 5"].seconds, strict=True):
        round = scenario(n=10**7, fleet=Fleet.uniform(int(x), 12.5e6), aggregators=5, keep=0.05)
        assert seconds == distribution_time("eris+dsc", round)


def test_the_printed_formulas_leave_ako_and_shatter_flat():
    found = named("clients", FigureRequest(as_printed=True))
    for label in ("Ako", "Shatter"):
        assert len(set(found[label].seconds)) == 1
    assert (
        named("clients", FigureRequest())["Ako"].seconds[-1] > 20 * named("clients", FigureRequest())["Ako"].seconds[0]
    )


def test_time_grows_with_size_and_falls_with_rate():
    for label, curve in named("size", FigureRequest()).items():
        assert list(curve.seconds) == sorted(curve.seconds), label
    for label, curve in named("rate", FigureRequest()).items():
        assert list(curve.seconds) == sorted(curve.seconds, reverse=True), label
    assert "ERIS+DSC, A = 50" not in named("size", FigureRequest())  # that is A = K there


@pytest.mark.parametrize("kinds", [("clients", "size", "rate"), ("rate",)])
def test_figures_are_drawn(tmp_path, kinds):
    pytest.importorskip("matplotlib")
    path = tmp_path / "plan.png"
    draw(path, FigureRequest(), kinds=kinds)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    assert (width, height) == (960 * len(kinds), 840)


def test_what_cannot_be_drawn_is_said(tmp_path):
    with pytest.raises(ConfigError, match="no figure is named 'energy'"):
        draw(tmp_path / "x.png", FigureRequest(), kinds=("energy",))
    with pytest.raises(ConfigError, match="cannot be written"):
        draw(tmp_path / "x.docx", FigureRequest(), kinds=("rate",))


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12), st.floats(0.01, 2))
def test_names_of_lines_never_overlap(wanted, step):
    wanted = sorted(wanted)
    places = _spread(wanted, step)
    assert len(places) == len(wanted)
    assert all(after - before >= step * (1 - 1e-6) for before, after in pairwise(places))
    if all(after - before >= step for before, after in pairwise(wanted)):
        assert places == pytest.approx(wanted)
