"""What commands leave on the screen and on the disk: lines that fit, sentences instead of tracebacks, reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from eris.report import write_report
from eris.web.follow_folder import FolderFollower
from tests.cli.processes import eris

SMALL = ("--set", "data.name=synthetic-clouds", "--set", "rounds=2", "--set", "workers=1")


def on_a_terminal_of_80(*words: str, cwd: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "eris", *words],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "line", ["data list", "data list --sources", "list", "list methods --options", "compare --list"]
)
def test_a_table_fits_80_columns(tmp_path: Path, line: str) -> None:
    lines = on_a_terminal_of_80(*line.split(), cwd=tmp_path)
    assert [text for text in lines if cell_len(text) > 80] == []


def test_every_data_set_has_one_line(tmp_path: Path) -> None:
    lines = on_a_terminal_of_80("data", "list", cwd=tmp_path)
    names = [row["name"] for row in json.loads("".join(on_a_terminal_of_80("data", "list", "--json", cwd=tmp_path)))]
    assert [line.split()[0] for line in lines[1 : 1 + len(names)]] == names


def test_a_task_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    eris("certs", "init", "ca", "--federation", "grove", cwd=tmp_path)
    eris("certs", "issue", "ca", "amber", cwd=tmp_path)
    settings = 'name = "grove"\ncoordinator = "127.0.0.1:9"\npeers = ["amber", "birch", "cedar"]\n'
    (tmp_path / "FEDERATION.toml").write_text(f'method = "eris"\n[federation]\n{settings}')
    before = sorted(tmp_path.rglob("*"))
    said = eris("join", "FEDERATION.toml", "--peer", "amber", "--task", "nowhere:Task", cwd=tmp_path, code=2)
    assert "nowhere" in said
    assert sorted(tmp_path.rglob("*")) == before


def test_a_replay_of_nothing_is_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "verdicts.jsonl").write_text("")
    options = ("--set", "method=eris", "--out", "again")
    said = eris("run", "--replay", "verdicts.jsonl", *options, cwd=tmp_path, code=2)
    assert "no round has a verdict" in said
    assert not (tmp_path / "again").exists()


def test_a_damaged_summary_is_survived(tmp_path: Path) -> None:
    eris("run", *SMALL, "--set", "method=eris", "--out", "run", "--quiet", cwd=tmp_path)
    for summary in ("", '{"half', "[]", '{"bytes": 3, "exposure": "x", "privacy": [], "notes": 7}'):
        (tmp_path / "run" / "summary.json").write_text(summary)
        assert write_report(tmp_path / "run").exists()
        follower = FolderFollower(tmp_path / "run")
        follower.look()
        assert follower.facts.whole()["run"]["round"] == 2


def test_a_federation_of_processes_has_a_report(tmp_path: Path) -> None:
    said = eris("up", *SMALL, "--peers", 3, "--report", "--out", "up", cwd=tmp_path, seconds=240)
    assert "report: up/peers/peer-0/report.html" in said
    page = (tmp_path / "up" / "peers" / "peer-0" / "report.html").read_text()
    assert "exchange" in page  # seconds for each stage
    summary = json.loads((tmp_path / "up" / "peers" / "peer-0" / "summary.json").read_text())
    assert "budget" not in summary  # noise that anybody can reproduce is nobody's budget


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interruption:
    def find_spec(self, name, *rest):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interruption())
sys.argv = ["eris", "plan", "62K"]
from eris.__main__ import main
main()
"""


def test_ctrl_c_while_numpy_is_imported_shows_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_an_extra_in_brackets_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    from eris.cli import _say
    from eris.errors import MissingExtra

    _say(str(MissingExtra("matplotlib", "report", "a picture")))
    assert "pip install 'eris-fl[report]'" in capsys.readouterr().err


def test_a_folder_with_brackets_is_printed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERIS_DATA", str(tmp_path / "[data]"))
    assert "/[data]" in "".join(on_a_terminal_of_80("data", "list", cwd=tmp_path))
