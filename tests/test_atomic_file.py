"""Files that are whole or not there."""

import os
import stat

import pytest

from eris.atomic_file import write_atomically
from eris.errors import CheckpointError, DiskError


def test_a_name_always_stands_for_a_whole_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"first")
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(DiskError, match="no space"):
        write_atomically(path, b"second")
    assert path.read_bytes() == b"first"
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_whatever_ends_the_writing_nothing_is_left_of_it(tmp_path):
    def pieces():
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", pieces())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_an_error_with_a_fix(tmp_path):
    with pytest.raises(CheckpointError, match="use another folder") as told:
        write_atomically(tmp_path / "nowhere" / "file", b"bytes")
    assert "make room" not in str(told.value)


def test_a_secret_is_never_readable_for_others(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"open to all")
    path.chmod(0o644)
    write_atomically(path, b"mine", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
