"""Two coordinators on two sides of a cut cable, each process in a network namespace of its own.

One side goes on, the other waits, no round has two verdicts that anybody follows; when the cable is mended, all come
together again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eris.peer.kept_log import KEPT, KeptLog
from eris.protocol.take_over import term_of
from eris.protocol.verdict import Verdict
from tests.faults.fleet import NAMES, fleet
from tests.faults.process import Fault
from tests.faults.test_take_over import STANDBY, check_kept, terms

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LEFT, RIGHT = ("coordinator", "amber", "birch"), (STANDBY, "cedar", "dogwood", "elder")
CHANGES = ["server.min_contributors=2"]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


class Networks:
    """Two switches with a cable between them; everybody has a line to one of the two."""

    def __init__(self, stack: ExitStack) -> None:
        self._hub, self.homes = f"eris-{os.getpid()}-hub", dict[str, tuple[str, str]]()
        self._make(self._hub, stack)
        for switch in ("left", "right"):
            ip("-n", self._hub, "link", "add", switch, "type", "bridge")
            ip("-n", self._hub, "link", "set", switch, "up")
        ip("-n", self._hub, "link", "add", "cable", "type", "veth", "peer", "elbac")
        for end, switch in (("cable", "left"), ("elbac", "right")):
            ip("-n", self._hub, "link", "set", end, "master", switch, "up")
        for number, name in enumerate((*LEFT, *RIGHT), start=1):
            home = f"eris-{os.getpid()}-{name}", f"10.79.0.{number}"
            self._make(home[0], stack)
            ip("-n", self._hub, "link", "add", name, "type", "veth", "peer", "lan", "netns", home[0])
            ip("-n", self._hub, "link", "set", name, "master", "left" if name in LEFT else "right", "up")
            ip("-n", home[0], "address", "add", f"{home[1]}/24", "dev", "lan")
            ip("-n", home[0], "link", "set", "lan", "up")
            self.homes[name] = home

    def _make(self, namespace: str, stack: ExitStack) -> None:
        stack.callback(subprocess.run, ["ip", "netns", "delete", namespace], capture_output=True, check=False)
        ip("netns", "add", namespace)
        ip("-n", namespace, "link", "set", "lo", "up")

    def cut(self, *lines: str) -> None:
        """Let nothing through: of the cable, or of somebody's line."""
        for line in lines:
            ip("-n", self._hub, "link", "set", line, "down")

    def mend(self, *lines: str) -> None:
        for line in lines:
            ip("-n", self._hub, "link", "set", line, "up")


@pytest.fixture
def networks() -> Iterator[Networks]:
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root, and ip of iproute2")
    with ExitStack() as stack:
        yield Networks(stack)


@pytest.mark.parametrize("method", ["fedavg", "fedadam-dsc"])
def test_of_two_coordinators_on_two_sides_one_goes_on_and_the_other_waits(
    tmp_path: Path, networks: Networks, method: str
) -> None:
    options = {"standbys": (STANDBY,), "connect": 3.0, "round": 10.0, "homes": networks.homes}
    with fleet(tmp_path, method, changes=CHANGES, **options) as made:
        made.linger = 120.0
        made.start_all(coordinator=Fault("planned", "stop", round=3))
        made.wait_for("coordinator", "fault")
        networks.cut("cable")
        made.thaw("coordinator")  # it tells the peers on its side alone of round 3
        made.start(STANDBY)
        made.wait_for(STANDBY, "written", count=3, seconds=150.0)
        made.wait_for_log("coordinator", "of 5 members are present, but the quorum is 3", seconds=60.0)
        before = [line["round"] for line in made.events("coordinator", "written")]
        after = [line["round"] for line in made.events(STANDBY, "written")]
        assert (before, after) == ([0, 1, 2], [3, 4, 5])  # no round has two verdicts
        assert all(len(made.events(name, "stepped")) <= 3 for name in ("amber", "birch"))
        assert made.alive("coordinator")  # and waits
        networks.mend("cable")
        pairs = made.check(*NAMES)
        check_kept(made, *NAMES)
        assert made.wait_for("coordinator", "end")["how"].startswith(f"{STANDBY} has taken over in term 1")
        assert [line["round"] for line in made.events("coordinator", "written")] == [0, 1, 2]
    assert terms(pairs) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("method", ["fedavg", "fedadam-dsc"])
def test_whoever_alone_heard_a_verdict_that_was_never_settled_does_not_follow_it(
    tmp_path: Path, networks: Networks, method: str
) -> None:
    """The coordinator's last verdict reaches elder and nobody else; then both are cut off, and the others go on."""
    others = tuple(name for name in NAMES if name != "elder")
    options = {"standbys": (STANDBY,), "connect": 3.0, "round": 10.0, "homes": networks.homes}
    with fleet(tmp_path, method, changes=CHANGES, **options) as made:
        made.linger = 120.0
        made.start_all(coordinator=Fault("written", "stop", round=3))
        made.wait_for("coordinator", "fault")
        networks.cut(*others)
        made.thaw("coordinator")
        whispered = _kept_by_elder(tmp_path)
        made.kill("coordinator")
        networks.cut("elder", "coordinator")  # whose kernel would still deliver what it had said
        networks.mend(*others)
        made.start(STANDBY)
        made.wait_for(STANDBY, "written", count=3, seconds=150.0)
        assert len(made.events("elder", "stepped")) == 3  # it has it on disk, and waits
        networks.mend("elder")
        pairs = made.check(*NAMES)  # elder's history is everybody's, and so is its model
        check_kept(made, *NAMES)
        assert "the run went back" not in made.log("elder")
    assert terms(pairs) == [0, 0, 0, 1, 1, 1]
    assert (whispered.round, term_of(whispered.epoch)) == (3, 0)
    assert whispered not in [verdict for _, verdict in pairs]


def _kept_by_elder(folder: Path) -> Verdict:
    """Wait until elder has the verdict of round 3 on its disk, and return it."""
    until = time.monotonic() + 60.0
    while time.monotonic() < until:
        log = KeptLog(folder / "peers" / "elder" / KEPT)
        found = log.since(3)
        log.close()
        if found:
            return found[0].verdict
        time.sleep(0.2)
    raise AssertionError("elder did not hear it")
