"""Coordinators that speak for members: other weights, other organisations, phantoms, and members that were dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eris.coordinate.service import CoordinatorService
from eris.errors import ConfigError, ErisError, Reason, Refused
from eris.peer.federation_file import FederationFile
from eris.protocol.floor import Floor
from eris.protocol.roster import Roster, RosterEntry, SignedLeave
from eris.protocol.round_plan import RoundPlan
from tests.adversary.parties import forge_plans
from tests.peer.town import Town, settings, town

CONFIG = settings("members=4", "aggregators=3", "rounds=3", "server.min_contributors=2")
FORGED: dict[str, Callable[[RosterEntry], RosterEntry]] = {
    "weight": lambda entry: replace(entry, weight=entry.weight + 1),
    "organisation": lambda entry: replace(entry, organisation="acme"),
    "counter": lambda entry: replace(entry, counter=entry.counter + 1),
    "signature": lambda entry: replace(entry, signature=""),
}


def endings(place: Town) -> list[ErisError]:
    nodes = {name: place.node(name, floor=Floor(min_contributors=1)) for name in place.names}
    for name, node in nodes.items():
        place.start(name, node.run)
    found = []
    for name in place.names:
        with pytest.raises(ErisError) as ended:
            place.wait(name)
        found.append(ended.value)
    return found


@pytest.mark.parametrize("field", FORGED)
def test_prevented_an_entry_that_its_member_did_not_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """Prevented: refused by every peer before anything is trained or sent; exit code 12."""

    def forged(plan: RoundPlan) -> RoundPlan:
        return replace(plan, roster=Roster(FORGED[field](e) if e.peer == 1 else e for e in plan.roster))

    forge_plans(monkeypatch, forged)
    with town(tmp_path, CONFIG, round=10.0) as place:
        for error in endings(place):
            assert isinstance(error, Refused)
            assert (error.reason, error.where.get("field")) == (Reason.WRONG_PLAN, "roster")
            assert "birch did not sign" in str(error)


def test_prevented_a_member_that_is_dropped_to_steer_the_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevented: without its own signed leave, or the CA's word, nobody is taken off a roster."""

    def without_one(plan: RoundPlan) -> RoundPlan:
        if not plan.round:
            return plan
        left = Roster(entry for entry in plan.roster if entry.peer != 3)
        return replace(plan, roster=left, participants=tuple(entry.peer for entry in left))

    forge_plans(monkeypatch, without_one)
    with town(tmp_path, CONFIG, round=10.0) as place:
        nodes = {name: place.node(name, floor=Floor(min_contributors=1)) for name in place.names}
        for name, node in nodes.items():
            place.start(name, node.run)
        for name in place.names[:3]:
            with pytest.raises(Refused, match="lacks dogwood, who did not leave") as ended:
                place.wait(name)
            assert (ended.value.reason, ended.value.where["field"]) == (Reason.WRONG_PLAN, "roster")


@pytest.mark.parametrize("lie", ["another's", "an older one"])
def test_prevented_a_leave_that_is_not_the_members_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    """Prevented: the leave of another peer, or from before the member signed its entry, explains nothing."""
    honest = CoordinatorService.leave

    def leave(self: CoordinatorService, caller: object, request: object) -> object:
        signed: SignedLeave = request.leave  # type: ignore[attr-defined]
        if signed is not None:
            change = {"name": "amber"} if lie == "another's" else {"counter": 1}
            forged = replace(signed, claim=replace(signed.claim, **change))
            self._run.leave(3, forged)
        return honest(self, caller, replace(request, leave=None))  # type: ignore[arg-type, type-var]

    monkeypatch.setattr(CoordinatorService, "leave", leave)
    with town(tmp_path, CONFIG, round=10.0) as place:
        nodes = {name: place.node(name, floor=Floor(min_contributors=1)) for name in place.names}
        leaver = nodes["dogwood"]
        leaver.fault_points.listener = lambda point, facts: (
            leaver.line.control.leave(for_good=True) if (point, facts.get("round")) == ("plan", 1) else None
        )
        for name, node in nodes.items():
            place.start(name, node.run)
        for name in place.names[:3]:
            with pytest.raises(Refused, match="lacks dogwood, who did not leave"):
                place.wait(name)


def test_who_leaves_for_good_is_missed_by_nobody(tmp_path: Path) -> None:
    """What honest members need: a signed leave explains why somebody is gone, and the run ends well without it."""
    config = settings("members=4", "aggregators=3", "rounds=6", "server.min_contributors=2")
    with town(tmp_path, config, round=20.0) as place:
        nodes = {name: place.node(name) for name in place.names}
        leaver = nodes["dogwood"]
        leaver.fault_points.listener = lambda point, facts: (
            leaver.line.control.leave(for_good=True) if (point, facts.get("round")) == ("plan", 1) else None
        )
        for name, node in nodes.items():
            place.start(name, node.run)
        place.wait()
        assert len({node.model_digest() for name, node in nodes.items() if name != "dogwood"}) == 1
        assert len(place.coordinator.coordinator.roster) == 3  # type: ignore[union-attr]


def test_prevented_an_organisation_other_than_the_file_says(tmp_path: Path) -> None:
    organisations = {"acme": ["amber", "birch"]}
    with town(tmp_path, CONFIG, round=10.0, organisations=organisations) as place:
        pretender = place.node("cedar", organisation="acme")
        with pytest.raises(Refused, match="says otherwise"):
            pretender.run()
        nodes = {name: place.node(name) for name in place.names}
        for name, node in nodes.items():
            place.start(name, node.run)
        place.wait()
        roster = {entry.name: entry.organisation for entry in place.coordinator.coordinator.roster.values()}  # type: ignore[union-attr]
        assert roster == {"amber": "acme", "birch": "acme", "cedar": "", "dogwood": ""}


def test_organisations_name_peers_and_each_once() -> None:
    table = {"name": "town", "coordinator": "127.0.0.1:1", "peers": ["birch", "cedar", "dogwood"]}
    for wrong in ({"acme": ["mallory"]}, {"acme": ["birch"], "bravo": ["birch"]}):
        with pytest.raises(ConfigError):
            FederationFile({**table, "organisations": wrong}, settings("members=3", "aggregators=3"))


def test_prevented_an_older_entry_of_a_member_again(tmp_path: Path) -> None:
    """Prevented in memory too: what a member signed first does not come back once it signed another one."""
    from eris.protocol.roster_watch import EntryCheck, RosterWatch
    from tests.protocol.documents import PLAN

    watch = RosterWatch(lambda _: EntryCheck.GOOD, lambda _: False, lambda _: (), lambda *_: False)

    def plan(counter: int) -> RoundPlan:
        return replace(PLAN, roster=Roster(replace(entry, counter=counter) for entry in PLAN.roster))

    watch.follow(plan(1))
    watch.follow(plan(5))
    with pytest.raises(Refused, match="replaced since"):
        watch.follow(plan(4))
