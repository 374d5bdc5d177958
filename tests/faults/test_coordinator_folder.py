"""The coordinator's database: died in the middle of an entry, moved, brought back from a backup."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.fleet import NAMES, Fleet, fleet, lost, missing
from tests.faults.process import Fault

DATABASE = "coordinator.sqlite"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def entries(folder: Path, beside: Path) -> int:
    """Count the entries of a database, in a copy: who opens one mends it."""
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(folder, beside)
    with closing(sqlite3.connect(beside / DATABASE)) as database:
        return int(database.execute("SELECT count(*) FROM entries").fetchone()[0])


def goes_on_undisturbed(made: Fleet) -> bool:
    """Bring the coordinator back, and see whether anybody noticed."""
    made.start("coordinator")
    pairs = made.check(*NAMES)
    whole = not lost(pairs) and not any(missing(pairs, peer) for peer in range(len(NAMES)))
    return whole and made.undisturbed() == made.events("amber", "end")[0]["model_digest"]


@pytest.mark.parametrize("moment", ["planned", "written"])
def test_a_coordinator_that_dies_in_the_middle_of_an_entry_costs_nothing(tmp_path: Path, moment: str) -> None:
    """What nobody was told of may be gone: a plan or a verdict of which only a part has come to the disk."""
    with fleet(tmp_path, "fedadam-dsc") as made:
        made.start_all(coordinator=Fault(moment))
        made.wait_dead("coordinator")
        before = entries(tmp_path / "state", tmp_path / "copy")
        with (tmp_path / "state" / f"{DATABASE}-wal").open("r+b") as log:
            log.truncate(log.seek(0, 2) - 100)
        assert entries(tmp_path / "state", tmp_path / "copy") == before - 1
        assert goes_on_undisturbed(made)


def test_a_folder_that_is_moved_goes_on_elsewhere(tmp_path: Path) -> None:
    with fleet(tmp_path, "fedadam-dsc") as made:
        made.start_all(coordinator=Fault("written"))
        made.wait_dead("coordinator")
        shutil.move(tmp_path / "state", tmp_path / "elsewhere")
        made.state = "elsewhere"
        assert (tmp_path / made.state / f"{DATABASE}-wal").stat().st_size > 0  # it is moved with the rest
        assert goes_on_undisturbed(made)


def test_a_backup_that_is_made_while_it_runs_can_be_gone_on_from(tmp_path: Path) -> None:
    with fleet(tmp_path, "fedadam-dsc") as made:
        made.start_all(coordinator=Fault("planned", "stop"))  # it lives and has its file open, but writes no more
        made.wait_for("coordinator", "fault")
        made.state = "restored"
        (tmp_path / made.state).mkdir()
        with (
            closing(sqlite3.connect(tmp_path / "state" / DATABASE)) as running,
            closing(sqlite3.connect(tmp_path / made.state / DATABASE)) as copy,
        ):
            running.backup(copy)  # as `.backup` does
        made.kill("coordinator")
        shutil.rmtree(tmp_path / "state")
        assert goes_on_undisturbed(made)
