"""What a report says its figures do not mean: of each kind of run only what is true of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eris.report.caveats import caveats
from eris.report.figures import figures_of
from eris.report.results import read_run

from .conftest import write_method

CLEAR, SUMS = "in the clear", "nobody's own values"


def said(folder: Path) -> str:
    results = read_run(folder)
    return "\n".join(caveats(results, [figures_of(result) for result in results]))


def masked_by_settings(folder: Path, method: str) -> None:
    write_method(folder, method)
    with (folder / "config.toml").open("a", encoding="utf-8") as config:
        config.write('\n[privacy]\nmasking = "pairs"\n')


@pytest.mark.parametrize("method", ["eris+masked", "eris+dsc+masked"])
def test_masked_shards_are_not_said_to_be_seen_in_the_clear(tmp_path: Path, method: str) -> None:
    write_method(tmp_path, method)
    told = said(tmp_path)
    assert CLEAR not in told
    assert "stays at one shard" not in told
    for left in (
        SUMS,
        "published mean",
        "An aggregator and its unmasker together see their shard",
        "two sums that differ by one member",
        "Nobody can be named",
        "median, trimmed mean",
    ):
        assert left in told, left


def test_masks_may_come_from_the_settings_alone(tmp_path: Path) -> None:
    masked_by_settings(tmp_path, "eris")
    assert CLEAR not in said(tmp_path)
    assert SUMS in said(tmp_path)


def test_of_both_kinds_of_runs_both_are_told(tmp_path: Path) -> None:
    for method in ("eris", "eris+masked"):
        write_method(tmp_path / method, method)
    assert CLEAR in said(tmp_path)
    assert SUMS in said(tmp_path)


def test_plain_shards_tell_what_one_of_them_shows(tmp_path: Path) -> None:
    write_method(tmp_path, "eris")
    told = said(tmp_path)
    assert SUMS not in told
    assert "one shard tells about membership what the whole update tells (AUC 0.98 from one of eight" in told
    assert "hides little" not in told


def test_compression_is_said_to_hide_little(tmp_path: Path) -> None:
    write_method(tmp_path, "eris+dsc")
    assert "hides little: 2.5 % of an update" in said(tmp_path)


def test_a_server_sees_everything_and_there_are_no_shards(tmp_path: Path) -> None:
    write_method(tmp_path, "fedavg")
    assert CLEAR not in said(tmp_path)
    assert SUMS not in said(tmp_path)
    assert "the server sees the whole update" in said(tmp_path)
