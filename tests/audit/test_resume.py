"""An audit that was interrupted goes on where it was, and comes to the same."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from eris.audit.membership_run import AuditedRun, AuditPlan, audit_membership
from eris.audit.membership_sweep import run_sweep, sweep_by_name
from eris.audit.observer import parse_observer
from eris.config import load_config
from eris.errors import CheckpointError, ConfigError, RunStopped
from eris.events import RoundEnded, RunEnded
from eris.simulate.run import resume, run

FEW = ["data.name=synthetic-clouds", "data.samples=16", "members=5", "rounds=3", "workers=1"]
OBSERVERS = (parse_observer("aggregator"),)
PLAN = AuditPlan(OBSERVERS, ("adaptive",), views=2, tosses=19)


def configured(*changes):
    return load_config(changes=[*FEW, *changes])


class Rounds:
    """Counts rounds, and asks to stop after some."""

    def __init__(self, most=10**9):
        self.done, self.most, self.runs = 0, most, 0

    def __call__(self, event):
        self.done += isinstance(event, RoundEnded)
        self.runs += isinstance(event, RunEnded)

    def stopped(self):
        return self.done >= self.most


@pytest.mark.parametrize(("method", "left"), [("eris", 1), ("gossip", 2)])
def test_what_was_finished_is_not_trained_again(tmp_path, method, left):
    config = configured(f'method=["fedavg", "{method}"]')
    whole = audit_membership(config, tmp_path / "whole", PLAN)
    first = Rounds(most=4)
    with pytest.raises(RunStopped):
        audit_membership(config, tmp_path / "part", PLAN, listeners=[first], stopped=first.stopped)
    assert not (tmp_path / "part" / "membership.json").exists()
    second = Rounds()
    found = audit_membership(config, tmp_path / "part", PLAN, listeners=[second])
    # Of the second method alone. That a round has ended is said while the next one trains; a busy machine may not
    # finish that one before it stops.
    assert left <= second.done <= 2
    assert second.runs == 2
    assert [trial.plain() for trial in found] == [trial.plain() for trial in whole]
    third = Rounds()
    audit_membership(config, tmp_path / "part", PLAN, listeners=[third])
    assert third.done == 0


KILLED = """
import functools, os, pathlib, signal, sys
import eris.audit.membership_run as audit
from eris.audit.observer import parse_observer
from eris.config import load_config
from eris.events import MemberTrained

def kill(event):
    if isinstance(event, MemberTrained) and event.round == 4 and event.member >= 2:
        os.kill(os.getpid(), signal.SIGKILL)

out, observer, *changes = sys.argv[1:]
audit.run = functools.partial(audit.run, checkpoint_seconds=float(os.environ["SECONDS_BETWEEN"]))
plan = audit.AuditPlan((parse_observer(observer),), ("adaptive",), views=2, tosses=19)
audit.audit_membership(load_config(changes=changes), pathlib.Path(out), plan, listeners=[kill])
"""


@pytest.mark.parametrize(
    ("observer", "changes", "left"),
    [
        ("aggregator", ("method=eris+dsc", "compression.keep=0.3", "shards.schedule=rotate"), 3),
        ("coalition:2", ("method=eris", "local.momentum=0.9", "local.keep_state=true", "participation=0.8"), 3),
        ("aggregator", ("method=eris+dsc", "compression.keep=0.3", "compression.masks=independent"), 3),
        ("server", ("method=fedavg", "server.optimizer=fedadam"), 3),
        ("wire", ("method=gossip", "local.momentum=0.9", "local.keep_state=true", "baselines.degree=2"), 3),
        ("neighbour", ("method=shatter",), 3),
        ("broadcast", ("method=eris+dsc", "compression.keep=0.3"), 7),  # killed before its second checkpoint
    ],
    ids=["compressed", "momentum", "secret masks", "server", "wire", "neighbour", "no checkpoint yet"],
)
def test_who_is_killed_in_the_middle_of_a_round_comes_to_the_same(tmp_path, observer, changes, left):
    """A real process is killed; what it had heard, and every observer's running estimates, are in the checkpoint."""
    settings = [*FEW, "rounds=7", *changes]
    plan = AuditPlan((parse_observer(observer),), PLAN.attacks, views=2, tosses=19)
    whole, part, config = tmp_path / "whole", tmp_path / "part", load_config(changes=settings)
    audit_membership(config, whole, plan)
    process = subprocess.run(
        [sys.executable, "-c", KILLED, str(part), observer, *settings],
        env={"SECONDS_BETWEEN": "0" if left == 3 else "1e9"},
        timeout=120,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL
    again = Rounds()
    audit_membership(config, part, plan, listeners=[again])
    assert again.done == left  # the rounds before the last checkpoint are not done again
    assert (part / "membership.json").read_bytes() == (whole / "membership.json").read_bytes()


def test_a_listener_that_was_not_there_from_the_beginning_is_told_so(tmp_path):
    config, few = configured("method=eris"), Rounds(most=2)
    attempt = AuditedRun(config, tmp_path / "audited", PLAN)
    run(config, tmp_path / "plain", task=attempt.task, listeners=[few], stopped=few.stopped)
    with pytest.raises(CheckpointError, match="missed the first ones"):
        resume(tmp_path / "plain", task=attempt.task, listeners=[attempt])


def test_another_attack_needs_no_training(tmp_path):
    config = configured("method=eris")
    audit_membership(config, tmp_path, PLAN)
    listener = Rounds()
    other = AuditPlan(OBSERVERS, ("paper",), views=2, tosses=19)
    (trial,) = audit_membership(config, tmp_path, other, listeners=[listener])
    assert listener.done == 0
    assert trial.results[0].attack == "paper"


def test_other_settings_are_refused(tmp_path):
    audit_membership(configured("method=eris"), tmp_path, PLAN)
    for config, plan in (
        (configured("method=eris", "seed=9"), PLAN),
        (configured("method=eris"), AuditPlan(OBSERVERS, PLAN.attacks, views=1)),
    ):
        with pytest.raises(ConfigError, match="other settings"):
            audit_membership(config, tmp_path, plan)


def test_a_run_that_is_no_audit_is_left_alone(tmp_path):
    config = configured("method=eris")
    run(config, tmp_path / "runs" / "eris")
    with pytest.raises(ConfigError, match="something other than an audit"):
        audit_membership(config, tmp_path, PLAN)
    assert (tmp_path / "runs" / "eris" / "summary.json").exists()


def test_a_sweep_goes_on(tmp_path):
    sweep, few = sweep_by_name("rotation"), Rounds(most=4)
    options = {
        "views": 1,
        "tosses": 19,
    }
    with pytest.raises(RunStopped):
        run_sweep(sweep, FEW, tmp_path, PLAN.attacks, listeners=[few], stopped=few.stopped, **options)
    again = Rounds()
    points = run_sweep(sweep, FEW, tmp_path, PLAN.attacks, listeners=[again], **options)
    assert again.done == 4  # two of the second training's were done before
    assert [point["label"] for point in points] == ["fixed", "redraw", "rotate"]
    written = json.loads((tmp_path / "sweep-rotation.json").read_text())
    assert written["points"][0]["results"][0]["figures"] == points[0]["results"][0]["figures"]


def test_fewer_rounds_can_be_asked_about(tmp_path):
    """The scores of the first rounds are those of a shorter training."""
    short, long = (configured("method=eris", f"rounds={rounds}") for rounds in (2, 3))
    for config, name in ((short, "short"), (long, "long")):
        attempt = AuditedRun(config, tmp_path / name, PLAN)
        run(config, tmp_path / name, task=attempt.task, listeners=[attempt])
    found = [AuditedRun(config, tmp_path / name, PLAN) for config, name in ((short, "short"), (long, "long"))]
    assert found[1].results(2)[0].by_round == found[0].results()[0].by_round
    assert found[1].results(2)[0].rounds == 2
