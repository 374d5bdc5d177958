"""deploy/: a real Prometheus scrapes a real run of four processes and has an answer to every question asked there.

An alert that does not fire has no answer, so its comparisons are asked as yes or no (`bool`): what must be there is the
series that is compared.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.processes import eris, running

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PEERS = ("amber", "birch", "cedar")
PROGRAMS = ("prometheus", "prometheus-node-exporter")
MISSING = [program for program in PROGRAMS if shutil.which(program) is None]
SETTINGS = """
method = "eris"
rounds = 100000

[data]
name = "synthetic-clouds"

[federation]
name = "cardio"
coordinator = "127.0.0.1:{port}"
peers = ["amber", "birch", "cedar"]
"""

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} (Debian packages) not installed"),
    pytest.mark.timeout(600),
]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]


@contextmanager
def started(*words: object, log: Path) -> Iterator[None]:
    with log.open("wb") as file, subprocess.Popen([*map(str, words)], stdout=file, stderr=file) as child:
        try:
            yield
        finally:
            child.kill()


class Prometheus:
    """A server that can be asked."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, expression: str) -> list[dict[str, Any]]:
        words = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self._address}/query?{words}", timeout=30) as answer:
            return list(json.load(answer)["data"]["result"])

    def firing(self) -> set[str]:
        with urllib.request.urlopen(f"{self._address}/alerts", timeout=30) as answer:
            return {alert["labels"]["alertname"] for alert in json.load(answer)["data"]["alerts"]}

    def wait_for(self, expression: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.ask(expression):
                    return
            except OSError:
                pass  # it is not up yet
            time.sleep(1)
        pytest.fail(f"no answer to {expression}")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("watched")
    control, server, node, *metrics = free_ports(7)
    (folder / "FEDERATION.toml").write_text(SETTINGS.format(port=control), encoding="utf-8")
    eris("certs", "init", "certs", "--federation", "cardio", cwd=folder)
    for name in ("coordinator", *PEERS):
        eris("certs", "issue", "certs", name, cwd=folder)
    targets = dict(zip(("coordinator:9465", *(f"{peer}:9464" for peer in PEERS)), metrics, strict=True))
    settings = (DEPLOY / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8").replace("15s", "1s")
    for target, port in (*targets.items(), ("node-exporter:9100", node)):
        assert target in settings
        settings = settings.replace(target, f"127.0.0.1:{port}")
    (folder / "prometheus.yaml").write_text(settings, encoding="utf-8")
    shutil.copy(DEPLOY / "prometheus" / "alerts.yaml", folder)
    with ExitStack() as stack:
        for name, port in zip(("coordinator", *PEERS), metrics, strict=True):
            options = ("--credentials", f"certs/peers/{name}", "--metrics", port)
            role = ("coordinator",) if name == "coordinator" else ("join",)
            place = ("--state", "state") if name == "coordinator" else ("--peer", name, "--out", name)
            words = (*role, "FEDERATION.toml", *options, *place)
            stack.enter_context(running(*words, cwd=folder, log=folder / f"{name}.log"))
        exporter = ("prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{node}")
        stack.enter_context(started(*exporter, log=folder / "node.log"))
        options = (f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}")
        address = f"--web.listen-address=127.0.0.1:{server}"
        stack.enter_context(started("prometheus", *options, address, log=folder / "prometheus.log"))
        prometheus = Prometheus(server)
        prometheus.wait_for("count(eris_rounds > 3) == 3", 120)
        prometheus.wait_for("count_over_time(eris_rounds[1m]) > 10", 60)
        yield prometheus


def questions() -> dict[str, str]:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    asked = {rule["alert"]: re.sub(r" (==|<|>) ", r" \1 bool ", rule["expr"]) for rule in rules}
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "eris.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            asked[f"{panel['id']} {panel['title']} {target['refId']}"] = re.sub(r"\$\w+", ".*", target["expr"])
    return asked


@pytest.mark.parametrize("name", questions())
def test_a_question_has_an_answer(watched: Prometheus, name: str) -> None:
    answer = watched.ask(questions()[name])
    assert answer, questions()[name]
    assert all(each["value"][1] != "NaN" for each in answer), answer


def test_a_healthy_run_wakes_nobody_but_whoever_set_a_limit_below_its_shares(watched: Prometheus) -> None:
    (share,) = {each["value"][1] for each in watched.ask("eris_largest_share")}
    assert float(share) > 0.25  # three aggregators: one sees a third
    deadline = time.monotonic() + 30
    while "ErisShowsTooMuch" not in watched.firing() and time.monotonic() < deadline:
        time.sleep(1)
    quiet = {"ErisStandsStill", "ErisPeerGone", "ErisProcessGone", "ErisLosesShards", "ErisRoundsAreSlow"}
    assert "ErisShowsTooMuch" in watched.firing()
    assert not watched.firing() & quiet
