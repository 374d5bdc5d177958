"""docs/three-machines.md, command by command, every machine on a network of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.test_docs import ROOT

PAGE = (ROOT / "docs" / "three-machines.md").read_text(encoding="utf-8")
MACHINES = {"hub": "10.78.0.1", "amber": "10.78.0.2", "birch": "10.78.0.3", "cedar": "10.78.0.4"}
PROGRAMS = ("ip", "prometheus", "promtool")
LACKING = [program for program in PROGRAMS if shutil.which(program) is None]
SHORTER = {"15s": "1s", "for: 5m": "for: 5s"}  # nobody waits five minutes for an alert here

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(bool(LACKING), reason=f"{', '.join(LACKING)} not installed (Debian: iproute2, prometheus)"),
    pytest.mark.timeout(900),
]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


@pytest.fixture
def networks() -> Iterator[dict[str, str]]:
    """A namespace for each machine, joined by a bridge in the hub's; they are gone afterwards."""
    names = {name: f"eris-{os.getpid()}-three-{name}" for name in MACHINES}
    with ExitStack() as stack:
        for namespace in names.values():
            stack.callback(subprocess.run, ["ip", "netns", "delete", namespace], capture_output=True, check=False)
            ip("netns", "add", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
        ip("-n", names["hub"], "link", "add", "bridge", "type", "bridge")
        ip("-n", names["hub"], "address", "add", f"{MACHINES['hub']}/24", "dev", "bridge")
        ip("-n", names["hub"], "link", "set", "bridge", "up")
        for name in ("amber", "birch", "cedar"):
            ip("-n", names["hub"], "link", "add", name, "type", "veth", "peer", "lan", "netns", names[name])
            ip("-n", names["hub"], "link", "set", name, "master", "bridge", "up")
            ip("-n", names[name], "address", "add", f"{MACHINES[name]}/24", "dev", "lan")
            ip("-n", names[name], "link", "set", "lan", "up")
        yield names


def steps() -> list[tuple[str, str]]:
    """Return every command of the page with the machine that the words before it name last."""
    found, machine = [], ""
    for named, text in re.findall(r"[Oo]n \*\*(\w+)\*\*|^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        machine = named or machine
        found += [(machine, line.removeprefix("$ ")) for line in text.splitlines() if line.startswith("$ ")]
    return found


class Machines:
    """Runs commands where the page says, and keeps those that go on."""

    def __init__(self, networks: dict[str, str], folder: Path) -> None:
        self._networks, self.folder = networks, folder
        self.going_on: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1"}
        self._environment["ERIS_BUDGET"] = str(folder / "budget")

    def do(self, machine: str, line: str) -> str:
        words = ["ip", "netns", "exec", self._networks[machine], "bash", "-c"]
        if line.endswith("&"):
            name = f"{machine}-{line.split()[0]}"
            log = self.folder / f"{name}.log"
            with log.open("wb") as file:
                command = [*words, f"exec {line[:-1]}"]
                child = subprocess.Popen(command, cwd=self.folder, env=self._environment, stdout=file, stderr=file)
            self.going_on[name] = child, log
            return ""
        done = subprocess.run(
            [*words, line],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{machine}: {line}\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done.stdout

    def fetch(self, machine: str, address: str) -> str:
        """Ask a page of a machine from that machine itself."""
        code = f"import urllib.request as r; print(r.urlopen('{address}', timeout=30).read(400000).decode())"
        return self.do(machine, f'python -c "{code}"')

    def until(self, holds: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
        end = time.monotonic() + seconds
        while not (found := holds()):
            assert time.monotonic() < end, f"{what}\n{self.logs()}"
            time.sleep(0.5)
        return found

    def page_of(self, name: str) -> str:
        log = self.going_on[name][1]
        found = self.until(lambda: re.search(r"live page: (\S+)", log.read_text()), f"{name} has no live page")
        return str(found[1])

    def logs(self) -> str:
        return "\n".join(f"── {name}\n{log.read_text()[-1500:]}" for name, (_, log) in self.going_on.items())

    def end(self) -> None:
        for child, _ in self.going_on.values():
            if child.poll() is None:
                child.kill()
            child.wait()


def test_a_person_can_follow_the_page(tmp_path: Path, networks: dict[str, str]) -> None:
    machines = Machines(networks, tmp_path)
    (settings,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "FEDERATION.toml").write_text(settings)
    (tmp_path / "prometheus").mkdir()
    for file in ("prometheus.yaml", "alerts.yaml"):
        text = (ROOT / "deploy" / "prometheus" / file).read_text(encoding="utf-8")
        for long, short in SHORTER.items():
            text = text.replace(long, short)
        (tmp_path / "prometheus" / file).write_text(text)
    seen: list[str] = []
    try:
        for machine, line in steps():
            if line.startswith("eris status"):  # the third has just been told to join
                look_at_the_pages(machines)
            if line.startswith("promtool query"):
                said = machines.until(lambda line=line: machines.do("hub", f"{line} || true").strip(), line)
                assert "=>" in said, said
            elif line.startswith("eris stop"):
                alerts_fire(machines)
                machines.do(machine, line)
            else:
                seen.append(machines.do(machine, line))
            if line.startswith("eris coordinator"):
                machines.page_of("hub-eris")  # a person reads what it prints, too
        for name in ("hub-eris", "amber-eris", "birch-eris"):
            child, _ = machines.going_on[name]
            assert child.wait(120) == 24, machines.logs()  # stopped by hand
    finally:
        machines.end()
    assert any("3 of 3" in text for text in seen)  # `eris watch`
    assert all((tmp_path / "budget" / name).is_dir() for name in ("amber", "birch", "cedar"))


def look_at_the_pages(machines: Machines) -> None:
    for name in ("hub-eris", "amber-eris"):
        machine, address = name.split("-")[0], machines.page_of(name)
        machines.until(
            lambda m=machine, a=address: '"state":"training"' in first_event(machines, m, a), f"{name} trains"
        )
        assert "<title>eris</title>" in machines.fetch(machine, address)
        if machine == "amber":
            with pytest.raises(OSError, match="refused"):  # from another network: nobody is there
                urllib.request.urlopen(address, timeout=5)


def first_event(machines: Machines, machine: str, address: str) -> str:
    asked = f"a = r.urlopen('{address}events', timeout=30); a.readline(); print(a.readline().decode())"
    return machines.do(machine, f'python -c "import urllib.request as r; {asked}"')


def alerts_fire(machines: Machines) -> None:
    """See the one alert that three aggregators raise, then pull a plug and see the other."""
    machines.until(lambda: "ErisShowsTooMuch" in firing(machines), "ErisShowsTooMuch")
    assert "ErisPeerGone" not in firing(machines)
    machines.going_on["cedar-eris"][0].kill()
    machines.until(lambda: "ErisPeerGone" in firing(machines), "ErisPeerGone", 180)


def firing(machines: Machines) -> set[str]:
    answer = json.loads(machines.fetch("hub", "http://10.78.0.1:9090/api/v1/alerts"))
    return {alert["labels"]["alertname"] for alert in answer["data"]["alerts"] if alert["state"] == "firing"}


def test_the_page_names_every_machine_it_uses() -> None:
    used = {machine for machine, _ in steps()}
    assert used == set(MACHINES)
    assert all(address in PAGE for address in MACHINES.values())
