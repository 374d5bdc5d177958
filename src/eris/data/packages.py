"""Fetch data that is inside packages of the public registries, with the registries' own clients.

A client runs as a separate process with a time limit, in an empty folder, and uses the registries it is configured for.
The archive is checked against the known sha256 and unpacked; eris runs nothing in it. (pip asks a source archive for
its metadata, which runs its build script; it is given the sha256 and checks it first.)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from eris.data.columns import sha256_of
from eris.errors import DataError

__all__ = ["Package", "Progress", "run_with_limit", "unpack"]

Progress = Callable[[str, float | None], None]
"""Called with what is being done, and the share of it that is done (None: unknown)."""

_TIME_LIMIT = 900.0


@dataclass(frozen=True, slots=True)
class Package:
    """One version of one package."""

    registry: Literal["npm", "pypi", "debian"]
    name: str
    version: str
    megabytes: float
    sha256: str = ""
    sdist: bool = False

    def __str__(self) -> str:
        return f"{self.registry} {self.name} {self.version}".strip()

    def fetch(self, folder: Path, progress: Progress) -> Path:
        """Download the archive into `folder`, check it and unpack it; return where its files are."""
        download, content = folder / "download", folder / "content"
        download.mkdir()
        command = self._command(download)
        if shutil.which(command[0]) is None:
            raise DataError(f"{Path(command[0]).name} is not installed on this machine")
        run_with_limit(command, download, progress, f"fetching {self}", self.megabytes * 1e6)
        archive = self._archive(download)
        if self.sha256 and sha256_of(archive) != self.sha256:
            raise DataError(f"{archive.name} does not have the known sha256 {self.sha256[:12]}…")
        progress(f"unpacking {archive.name}", None)
        unpack(archive, content)
        return content

    def _command(self, download: Path) -> list[str]:
        if self.registry == "npm":
            return ["npm", "pack", f"{self.name}@{self.version}", "--silent", "--ignore-scripts", "--cache", "cache"]
        if self.registry == "debian":
            return ["apt-get", "download", "--quiet", self.name]
        wanted = download / "wanted.txt"
        wanted.write_text(
            f"{self.name}=={self.version}" + (f" --hash=sha256:{self.sha256}" if self.sha256 else "") + "\n"
        )
        kind = ["--no-binary", self.name] if self.sdist else ["--only-binary", ":all:"]
        quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-cache-dir"]
        return [sys.executable, "-m", "pip", "download", *quiet, *kind, "--requirement", wanted.name]

    def _archive(self, download: Path) -> Path:
        suffixes = {"npm": (".tgz",), "debian": (".deb",), "pypi": (".whl", ".tar.gz", ".zip")}[self.registry]
        archives = [path for path in download.iterdir() if path.name.endswith(suffixes)]
        if len(archives) != 1:
            raise DataError(f"{self} has {len(archives)} archives instead of one")
        return archives[0]


def run_with_limit(
    command: list[str], folder: Path, progress: Progress, what: str, expected_bytes: float, limit: float = _TIME_LIMIT
) -> None:
    """Run a client in `folder` until it is done or its time is up.

    Args:
        command: the client and its arguments.
        folder: where it works; what has arrived there is measured against `expected_bytes`.
        progress: called with `what` and the share that has arrived.
        what: what is being done, in words.
        expected_bytes: size of the download.
        limit: seconds it may take.
    """
    temporary = folder / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    log = folder / "client.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _watch(process, folder, progress, what, expected_bytes, limit)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    shutil.rmtree(temporary, ignore_errors=True)
    if process.returncode:
        raise DataError(f"{Path(command[0]).name} ended with code {process.returncode}: {_last_line(log)}")


def _watch(
    process: subprocess.Popen[bytes], folder: Path, progress: Progress, what: str, expected: float, limit: float
) -> None:
    interval, waited = 0.2, 0.0
    while True:
        try:
            process.wait(interval)
            return
        except subprocess.TimeoutExpired:
            waited += interval
        if waited > limit:
            raise DataError(f"no answer within {limit:.0f} s")
        progress(what, min(0.99, _size(folder) / expected) if expected else None)


def _size(folder: Path) -> int:
    total = 0
    for root, _, files in os.walk(folder):  # files come and go while the client works
        for file in files:
            with contextlib.suppress(OSError):
                total += Path(root, file).stat().st_size
    return total


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"


def unpack(archive: Path, content: Path) -> None:
    """Unpack a tar, zip, wheel or Debian archive; members that would leave the folder are refused."""
    content.mkdir(parents=True, exist_ok=True)
    try:
        if archive.suffix == ".deb":
            subprocess.run(["dpkg-deb", "--extract", str(archive), str(content)], check=True, capture_output=True)
        elif zipfile.is_zipfile(archive):
            _unzip(archive, content)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(content, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, subprocess.CalledProcessError) as error:
        raise DataError(f"{archive.name} cannot be unpacked: {error}") from error


def _unzip(archive: Path, content: Path) -> None:
    with zipfile.ZipFile(archive) as pack:
        for name in pack.namelist():
            if not (content / name).resolve().is_relative_to(content.resolve()):
                raise DataError(f"{archive.name} would write outside its folder: {name}")
            pack.extract(name, content)
