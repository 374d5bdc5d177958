"""A real browser without a window, by the W3C protocol that chromedriver speaks over HTTP."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
MISSING = BROWSER is None or shutil.which("chromedriver") is None
WHY_NOT = "no chromium with its chromedriver here (Debian: chromium, chromium-driver)"
_ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server"]


class Browser:
    """One window."""

    def __init__(self, server: str, profile: Path, size: tuple[int, int], *, dark: bool) -> None:
        arguments = [*_ARGUMENTS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"]
        arguments += ["--force-dark-mode"] if dark else []
        wanted = {"goog:chromeOptions": {"args": arguments, "binary": BROWSER}, "goog:loggingPrefs": {"browser": "ALL"}}
        session = _call("POST", f"{server}/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"{server}/session/{session['sessionId']}"

    def open(self, address: str) -> None:
        self._do("POST", "url", {"url": address})

    def ask(self, script: str) -> Any:
        return self._do("POST", "execute/sync", {"script": script, "args": []})

    def text(self, selector: str) -> str:
        return str(self.ask(f"return (document.querySelector({json.dumps(selector)}) || {{}}).innerText || ''"))

    def press(self, keys: str) -> None:
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._do("POST", "actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def wait(self, holds: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
        until = time.monotonic() + seconds
        while not (found := holds()):
            assert time.monotonic() < until, (
                f"{what}: not in {seconds} s\n{self.text('body')[:3000]}\n{self.complaints()}"
            )
            time.sleep(0.1)
        return found

    def complaints(self) -> list[str]:
        """Return what the console says of errors, blocked requests and broken policies."""
        return [
            entry["message"] for entry in self._do("POST", "se/log", {"type": "browser"}) if entry["level"] == "SEVERE"
        ]

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._do("GET", "screenshot")))

    def close(self) -> None:
        _call("DELETE", self._session)

    def _do(self, method: str, what: str, data: dict[str, Any] | None = None) -> Any:
        return _call(method, f"{self._session}/{what}", data)


def _call(method: str, address: str, data: dict[str, Any] | None = None) -> Any:
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)["value"]


@contextmanager
def browser(folder: Path, size: tuple[int, int] = (1300, 1500), *, dark: bool = False) -> Iterator[Browser]:
    """Start a browser with a profile of its own; it ends with the block."""
    log = folder / "chromedriver.log"
    with log.open("wb") as file, subprocess.Popen(["chromedriver", "--port=0"], stdout=file, stderr=file) as driver:
        try:
            window = Browser(_place_of(log), folder / "profile", size, dark=dark)
            try:
                yield window
            finally:
                window.close()
        finally:
            driver.terminate()


def _place_of(log: Path) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for line in log.read_text().splitlines():
            if "started successfully on port" in line:
                return f"http://127.0.0.1:{line.rstrip('.').split()[-1]}"
        time.sleep(0.05)
    raise AssertionError(log.read_text())
