"""Coordinators that write false plans: every field that a peer can check is one that it does check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eris.errors import ErisError, FloorError, Reason, Refused
from eris.protocol.agreement import effective_contributors
from eris.protocol.floor import Floor
from eris.protocol.roster import Roster, RosterEntry
from eris.protocol.round_plan import Deadlines, RoundPlan
from tests.adversary.parties import forge_plans
from tests.peer.town import settings, town

CONFIG = settings("members=4", "aggregators=3", "rounds=3", "server.min_contributors=2")


def _as_roster(plan: RoundPlan, change: Callable[[RosterEntry], RosterEntry]) -> RoundPlan:
    return replace(plan, roster=Roster(change(entry) for entry in plan.roster))


FORGERIES: dict[str, Callable[[RoundPlan], RoundPlan]] = {
    "run": lambda plan: replace(plan, run="another"),
    "normalisation": lambda plan: replace(plan, normalisation="none"),
    "participation": lambda plan: replace(plan, participation=1e-30),
    "min_contributors": lambda plan: replace(plan, min_contributors=0),
    "deadlines": lambda plan: replace(plan, deadlines=Deadlines(1e18, 1e18)),
    "participants": lambda plan: replace(plan, participants=plan.participants[1:]),
    "assignment": lambda plan: replace(plan, assignment=(*plan.assignment[:-1], 3)),
    "reference_begins": lambda plan: replace(plan, reference_epoch=1, reference_begins=plan.round + 5),
    "draw": lambda plan: replace(plan, draw=plan.draw + 1),
    "roster": lambda plan: _as_roster(plan, lambda e: replace(e, name="phantom") if e.peer == 2 else e),
}


def refusals(tmp_path: Path, floor: Floor, weights: Callable[[str], float] | None = None) -> list[ErisError]:
    """Play under real TLS with whatever coordinator there is; return how each peer ended. Nothing has been sent."""
    with town(tmp_path, CONFIG, round=10.0, aggregators=["amber", "birch", "cedar"]) as place:
        nodes = {name: place.node(name, floor=floor) for name in place.names}
        for name, node in nodes.items():
            if weights is not None:
                node._admission._weight = weights(name)
        for name, node in nodes.items():
            place.start(name, node.run)
        found = []
        for name in place.names:
            with pytest.raises(ErisError) as ended:
                place.wait(name)
            found.append(ended.value)
        assert all(account.sent == 0 for node in nodes.values() for account in node.links.clients.accounts(place.names))
        return found


@pytest.mark.parametrize("field", FORGERIES)
def test_prevented_a_plan_that_says_other_than_agreed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """Prevented: refused with the field, before anything is trained or sent; exit code 12, never a traceback."""
    forge_plans(monkeypatch, FORGERIES[field])
    for error in refusals(tmp_path, Floor(min_contributors=1)):
        assert isinstance(error, Refused)
        assert (error.reason, error.where.get("field", field)) == (Reason.WRONG_PLAN, field)


def test_prevented_weights_that_make_a_mean_of_many_one_members_update(tmp_path: Path) -> None:
    """Prevented: heads are many, but by weight the mean would be worth one; exit code 13."""
    for error in refusals(tmp_path, Floor(min_contributors=2), lambda name: 1e9 if name == "birch" else 1.0):
        assert isinstance(error, FloorError)
        assert "is worth 1.00 equal contributors" in str(error)


def test_prevented_a_plan_with_one_aggregator_for_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevented by the floor that a federation's file gives who names none."""
    forge_plans(monkeypatch, lambda plan: replace(plan, assignment=(0,) * plan.shards))
    with town(tmp_path / "file", CONFIG) as place:
        floor = place.federation().floor
    for error in refusals(tmp_path, floor):
        assert isinstance(error, FloorError)


def test_effective_contributors() -> None:
    def of(*weights: float) -> float:
        roster = Roster(RosterEntry(peer, f"peer-{peer}", weight) for peer, weight in enumerate(weights))
        peers = tuple(range(len(weights)))
        plan = RoundPlan("run", 0, 0, "", "", roster, peers, (0,))
        return effective_contributors(plan, peers)

    assert of(7.0, 7.0, 7.0) == pytest.approx(3)
    assert of(1.0, 1e-300, 1e-300) == pytest.approx(1)
    assert of(2.0**53, 2.0**53) == pytest.approx(2)
    assert of(3.0, 2.0, 1.0) == pytest.approx(36 / 14)
