import io
from pathlib import Path

from rich.console import Console

from eris.methods import METHODS
from eris.report.tables import summary_table

from .conftest import write_method


def text_of(*summaries: dict) -> str:
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        console.print(summary_table(list(summaries)))
    return capture.get()


def test_the_table_fits_a_terminal_and_shows_the_summary(tmp_path: Path) -> None:
    text = text_of(write_method(tmp_path / "f", "fedavg"), write_method(tmp_path / "d", "eris+dsc"))
    assert "…" not in text
    fedavg, dsc = (line.split() for line in text.splitlines() if line.strip().startswith(("FedAvg", "ERIS")))
    assert fedavg == ["FedAvg", "96.4", "%", "247", "kB", "247", "kB", "100", "%", "247", "ms"]
    assert dsc == ["ERIS+DSC", "95.8", "%", "7.21", "kB", "7.21", "kB", "0.32", "%", "721", "µs"]


def test_the_longest_names_of_methods_cut_no_heading() -> None:
    bytes_ = {"up_per_member_round": 999_499.0, "down_per_member_round": 999_499.0}
    wide = {"final_accuracy": 0.9642, "bytes": bytes_, "rounds": 1, "exposure": {"largest_share_per_round": 0.99996}}
    text = text_of(*({"method": name, **wide, "distribution_seconds": 3599} for name in METHODS))
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_rate_behind_the_estimate_is_named() -> None:
    titles = [str(column.header) for column in summary_table([], rate=1e6).columns]
    assert titles[-1] == "time to\ndistribute\nat 1 MB/s\n(estimate)"
    assert "MB/s" not in str(summary_table([], rate=None).columns[-1].header)


def test_what_a_summary_lacks_is_a_dash_and_a_name_is_no_markup() -> None:
    (line,) = (line for line in text_of({"method": "[red]x"}).splitlines() if "[red]x" in line)
    assert line.split() == ["[red]x", "–", "–", "–", "–", "–"]
