"""Folders that nobody named are never shared."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from eris.simulate.stamped_folder import stamped_folder


def test_folders_of_one_second_get_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "20260101-000000")
    found = [stamped_folder("compare") for _ in range(3)]
    assert [str(path) for path in found] == [f"runs/20260101-000000-compare{more}" for more in ("", "-2", "-3")]
    assert all(path.is_dir() for path in found)
