"""eris commands as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1"}


def eris(*words: object, cwd: Path, code: int = 0, seconds: float = 120.0) -> str:
    """Run a command to its end and return what it printed; its exit code must be `code`."""
    done = subprocess.run(
        [sys.executable, "-m", "eris", *map(str, words)],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == code, f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


class Running:
    """A command that goes on; its output is in a file."""

    def __init__(self, words: tuple[object, ...], cwd: Path, log: Path, inside: str = "") -> None:
        self.log, prefix = log, ["ip", "netns", "exec", inside] if inside else []
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "eris", *map(str, words)],
                cwd=cwd,
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def wait(self, code: int = 0, seconds: float = 60.0) -> str:
        """Wait for its end and return what it printed."""
        try:
            ended: int | None = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            ended = None
        text = self.log.read_text()
        assert ended == code, f"ended with {ended}, not {code}:\n{text}"
        return text


@contextmanager
def running(*words: object, cwd: Path, log: Path, inside: str = "") -> Iterator[Running]:
    """Start a command (inside a network namespace); if it runs at the end of the block, it is ended by its id."""
    command = Running(words, cwd, log, inside)
    try:
        yield command
    finally:
        if command.process.poll() is None:
            command.process.kill()
        command.process.wait()
