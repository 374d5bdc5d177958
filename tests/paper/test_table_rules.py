"""Every cell of the paper's communication tables, from n, K, A, rate, p and r alone."""

import builtins
import json
import re
from pathlib import Path

import pytest

from eris.errors import ConfigError
from eris.paper.panels import PANELS, main_text, panel, rows
from eris.paper.table_rules import BaselineSettings, formula_time, share_text, size_text, table_row, time_text
from eris.planner import Fleet, scenario

PAPER = json.loads((Path(__file__).parent / "fixtures" / "communication.json").read_text(encoding="utf-8"))
CELLS = ("compression", "upload", "download", "total", "time")


def cases():
    for name, facts in PAPER["panels"].items():
        for number, (label, *cells) in enumerate(facts["rows"]):
            for column, cell in zip(CELLS, cells, strict=True):
                yield pytest.param(name, number, column, cell, id=f"{name}-{label}-{column}")


CASES = list(cases())


def test_there_are_220_cells():
    assert len(CASES) == 220


@pytest.mark.parametrize(("name", "number", "column", "cell"), CASES)
def test_every_cell_is_reproduced_to_the_printed_digit(name, number, column, cell):
    assert rows(PANELS[name])[number].cells[CELLS.index(column)] == cell


def test_the_inputs_of_the_panels_are_the_papers():
    for name, facts in PAPER["panels"].items():
        chosen = PANELS[name]
        assert (chosen.n, chosen.members, chosen.degree) == (facts["values"], facts["members"], facts["degree"])


def test_no_table_is_read(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError(f"a file is opened: {args}")

    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "read_text", refuse)
    assert rows(PANELS["mnist"])[0].cells[0] == "100%"


def test_another_model_gives_another_table():
    """The cells follow from the inputs: nothing is remembered."""
    row = table_row("eris+dsc", n=2_600_000_000, members=10, rate=20e6, keep=0.01)
    assert (size_text(row.upload), time_text(row.time)) == ("93.6 MB", "472.68 s")


@pytest.mark.parametrize("name", PANELS)
def test_twice_the_rate_halves_every_time(name):
    for slow, fast in zip(rows(PANELS[name], rate=20e6), rows(PANELS[name], rate=40e6), strict=True):
        assert fast.row.time == slow.row.time / 2
        assert fast.cells[:4] == slow.cells[:4]


def printed_number(text):
    number, unit = re.fullmatch(r"([\d.]+)(GB|MB|s|%)", text).groups()
    return float(number), {"GB": 1e9, "MB": 1e6, "s": 1, "%": 0.01}[unit], len(number.partition(".")[2])


def test_the_main_text_table_to_the_printed_digit():
    panels = main_text()
    for number, (_, *cells) in enumerate(PAPER["main_text"]):
        for name, (size, time) in zip(panels, (cells[:2], cells[2:]), strict=True):
            row = panels[name][number].row
            upload, share = re.fullmatch(r"(\S+) \((\S+)\)", size).groups()
            for text, value in ((upload, row.upload), (share, row.compression), (time, row.time)):
                printed, unit, digits = printed_number(text)
                # a tie is rounded down in print where binary floats lie just below it (17.325 → 17.32)
                assert abs(value / unit - printed) <= 0.5 * 10**-digits + 1e-9, (name, text, value)
    assert sum(len(lines) for lines in panels.values()) == 2 * len(PAPER["main_text"])


ROWS = {
    "Shatter": ("shatter", {}),
    "Ako (p=5)": ("ako", {}),
    "ERIS": ("eris", {}),
    "ERIS (+DSC with ω_SoteriaFL)": ("eris+dsc", {"keep": 0.05}),
    "ERIS (+DSC)": ("eris+dsc", {}),
}
FORMULA = ("time_s_formula_r4", "time_s_printed_formula", "time_s_printed_formula_with_worst_case_non_aggregator")


@pytest.mark.parametrize("name", PANELS)
def test_the_formulas_of_the_text_give_what_they_give(name):
    facts, checked = PAPER["panels"][name], 0
    for label, strict in facts["strict"].items():
        for key in set(strict) & set(FORMULA):
            method, changes = ROWS[label]
            fleet = Fleet.uniform(facts["members"], facts["rate"])
            round = scenario(n=facts["values"], fleet=fleet, **({"keep": PANELS[name].keep} | changes))
            assert formula_time(method, round) == pytest.approx(strict[key], rel=1e-9)
            checked += 1
    assert checked == 5


def ratios(members, aggregators):
    """Return how many times faster ERIS+DSC is than FedAvg and SoteriaFL: by the table's rule."""
    times = {
        method: table_row(
            method, n=10**7, members=members, aggregators=aggregators, rate=12.5e6, keep=0.05,
        ).time
        for method in ("fedavg", "soteriafl", "eris+dsc")
    }  # fmt: skip
    return times["fedavg"] / times["eris+dsc"], times["soteriafl"] / times["eris+dsc"]


@pytest.mark.parametrize("key", PAPER["claims"])
def test_the_speed_ups_claimed_in_the_text(key):
    members, aggregators = (int(part.split("=")[1]) for part in key.split(","))
    facts = PAPER["claims"][key]
    assert ratios(members, aggregators) == pytest.approx(
        (facts["fedavg_over_eris_simple"], facts["soteria_over_eris_simple"]), rel=1e-9
    )
    if not facts["A_le_K"]:
        with pytest.raises(ConfigError, match="aggregators are members"):
            scenario(n=10**7, fleet=Fleet.uniform(members, 12.5e6), aggregators=aggregators)
        return
    round = scenario(n=10**7, fleet=Fleet.uniform(members, 12.5e6), aggregators=aggregators, keep=0.05)
    dsc = formula_time("eris+dsc", round)
    assert formula_time("fedavg", round) / dsc == pytest.approx(facts["fedavg_over_eris_strict"], rel=1e-9)
    assert formula_time("soteriafl", round) / dsc == pytest.approx(facts["soteria_over_eris_strict"], rel=1e-9)


def test_105_times_needs_more_aggregators_than_members():
    assert ratios(10, 50) == pytest.approx((105.82, 55.56), abs=0.01)
    assert ratios(50, 50) == pytest.approx((97.2, 51.0), abs=0.05)


def test_texts():
    assert [size_text(8.02e3), size_text(999_994), size_text(1e6), size_text(1e9)] == [
        "8.02 KB", "999.99 KB", "1.0 MB", "1.0 GB",
    ]  # fmt: skip
    assert [share_text(0.99), share_text(0.006), share_text(0.033)] == ["99%", "0.6%", "3.3%"]


def test_unknown_names_are_refused():
    with pytest.raises(ConfigError, match="no panel is named 'svhn'"):
        panel("svhn")
    with pytest.raises(ConfigError, match="no method is named"):
        table_row("fedprox", n=1, members=1, rate=1.0)
    with pytest.raises(ConfigError, match="no method is named"):
        formula_time("fedprox", scenario(n=1, fleet=Fleet.uniform(2, 1.0)))


def test_settings_of_the_baselines_count():
    plain = table_row("priprune", n=100, members=2, rate=1.0)
    other = table_row("priprune", n=100, members=2, rate=1.0, baselines=BaselineSettings(prune=0.1))
    assert (plain.upload, other.upload) == (pytest.approx(280), pytest.approx(360))
