"""Coordinators that tell two stories, hide a plan, or do not sign what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eris.cli import certs
from eris.coordinate.run import CoordinatorRun
from eris.errors import Reason, Refused
from eris.peer.witness import HEARD, PROOF, Witness
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import SEAL_PURPOSE, CertifiedSeal, Contradiction, PlanName, Seal
from eris.protocol.verdict import Verdict
from eris.transport.authority import Authority
from eris.transport.credentials import Credentials
from eris.transport.sealed import read_proof, require_proof, write_proof
from tests.adversary.parties import TwoFacedCoordinator
from tests.peer.town import settings, simulated, town
from tests.protocol.documents import PLAN, VERDICT

CONFIG = settings("members=4", "aggregators=4", "rounds=3", "server.min_contributors=2")


def test_detected_two_plans_for_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detected: whoever meets a peer of the other story has both signatures, and passes them on; all end by name."""
    with town(tmp_path, CONFIG, round=20.0) as place:
        TwoFacedCoordinator(monkeypatch, place, {"cedar", "dogwood"}, lambda plan: replace(plan, attest=True))
        nodes = {name: place.node(name, folder=tmp_path / "peers" / name) for name in place.names}
        for name, node in nodes.items():
            place.start(name, node.run)
        for name in place.names:
            with pytest.raises(Refused, match="the coordinator signed two plans") as ended:
                place.wait(name)
            assert ended.value.reason is Reason.EQUIVOCATION
            proof = tmp_path / "peers" / name / PROOF
            require_proof(read_proof(proof), nodes[name].credentials.issued)
            checked = CliRunner().invoke(certs.certs, ["check-proof", str(proof), str(tmp_path / "ca")])
            assert checked.exit_code == 0, checked.output
            assert "signed by a coordinator of this CA" in checked.output
        stranger = Authority.create(tmp_path / "other", "town").issue("amber")
        with pytest.raises(Refused, match="did not sign both"):
            require_proof(read_proof(proof), Credentials(stranger).issued)


@pytest.mark.parametrize("whose", ["nobody", "a peer", "another purpose"])
def test_prevented_a_plan_that_the_coordinator_did_not_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """Prevented: refused before anything is trained or sent; exit code 12."""
    with town(tmp_path, CONFIG, round=20.0) as place:
        signs = Credentials(place.credentials["amber" if whose == "a peer" else "coordinator"])

        def sealed(run: CoordinatorRun, document: RoundPlan | Verdict) -> Seal:
            seal = Seal.of(document)
            purpose = "manifest" if whose == "another purpose" else SEAL_PURPOSE
            signature = "" if whose == "nobody" else signs.sign(purpose, seal.signed_bytes).hex()
            return replace(seal, signature=signature)

        monkeypatch.setattr(CoordinatorRun, "sealed", sealed)
        nodes = {name: place.node(name) for name in place.names}
        for name, node in nodes.items():
            place.start(name, node.run)
        for name in place.names:
            with pytest.raises(Refused, match="the plan is not signed by the coordinator") as ended:
                place.wait(name)
            assert ended.value.reason is Reason.BAD_SIGNATURE
        assert all(account.sent == 0 for node in nodes.values() for account in node.links.clients.accounts(place.names))


class Signer:
    """A coordinator's key, and a peer that listens to it."""

    def __init__(self, folder: Path) -> None:
        authority = Authority.create(folder / "ca", "town")
        self._coordinator, self.peer = (Credentials(authority.issue(name)) for name in ("coordinator", "amber"))
        self.folder = folder / "amber"

    def witness(self) -> Witness:
        return Witness(self.peer, PLAN.run, lambda: self._coordinator.identity.certificate, self.folder)

    def seal(self, document: RoundPlan | Verdict, supersedes: PlanName | None = None) -> Seal:
        seal = Seal.of(document, supersedes)
        return replace(seal, signature=self._coordinator.sign(SEAL_PURPOSE, seal.signed_bytes).hex())

    def certified(self, document: RoundPlan | Verdict, supersedes: PlanName | None = None) -> CertifiedSeal:
        return CertifiedSeal(self.seal(document, supersedes), self._coordinator.identity.certificate)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path)


def at(epoch: int, round: int, **changes: object) -> RoundPlan:
    return replace(PLAN, epoch=epoch, round=round, **changes)


def name_of(plan: RoundPlan) -> PlanName:
    return PlanName(*plan.when, plan.digest)


def test_prevented_a_lower_plan_is_not_answered_even_after_a_restart(signer: Signer) -> None:
    """Prevented: what was heard last is on disk before anything is done under it."""
    first, later = at(0, 3), at(0, 5)
    assert signer.witness().hear(first, signer.seal(first))
    assert signer.witness().hear(later, signer.seal(later))
    again = signer.witness()
    assert not again.hear(at(0, 4), signer.seal(at(0, 4)))
    assert not again.hear(first, signer.seal(first))
    assert again.hear(later, signer.seal(later))  # the round in flight, after a restart of either side


def test_an_honest_rewind_names_the_plan_it_supersedes_and_none_is_hidden(signer: Signer) -> None:
    """Prevented: a new epoch that leaves out a plan which this peer has heard is not answered."""
    witness, last = signer.witness(), at(0, 5)
    assert witness.hear(last, signer.seal(last))
    back = at(1, 2)
    assert not witness.hear(back, signer.seal(back))  # names nothing
    assert not witness.hear(at(2, 2), signer.seal(at(2, 2), name_of(at(0, 3))))  # names an older one
    assert witness.hear(back, signer.seal(back, name_of(last)))
    missed = at(4, 2)  # this peer was away: what is superseded is later than what it knows
    assert witness.hear(missed, signer.seal(missed, name_of(at(3, 9))))


@pytest.mark.parametrize("story", ["plan", "verdict", "superseded", "epoch"])
def test_detected_whatever_no_honest_coordinator_signs_twice(signer: Signer, story: str) -> None:
    """Detected: kept in the peer's folder, and checked by anybody who has the CA's certificate."""
    witness, plan = signer.witness(), at(1, 3)
    verdict = replace(VERDICT, plan=plan.digest, epoch=1, round=3)
    before = name_of(at(0, 9))
    witness.hear(plan, signer.seal(plan, before))
    witness.hear(verdict, signer.seal(verdict, before))
    other = {
        "plan": signer.certified(at(1, 3, attest=True), before),
        "verdict": signer.certified(replace(verdict, late=()), before),
        "superseded": signer.certified(at(2, 0), PlanName(1, 3, "ab" * 32)),
        "epoch": signer.certified(at(1, 4), name_of(at(0, 8))),
    }[story]
    with pytest.raises(Refused, match="the coordinator signed two") as ended:
        witness.compare(other)
    assert ended.value.reason is Reason.EQUIVOCATION
    require_proof(read_proof(signer.folder / PROOF), signer.peer.issued)


def test_prevented_nobody_frames_an_honest_coordinator(signer: Signer, tmp_path: Path) -> None:
    """Prevented: two honest statements, or one that somebody else signed, are no proof."""
    plan, later = at(0, 3), at(1, 3)
    honest = signer.certified(plan), signer.certified(later, name_of(plan))
    witness = signer.witness()
    for pair, why in (
        (honest, "an honest coordinator may have signed both"),
        ((honest[0], honest[0]), "an honest coordinator may have signed both"),
        ((honest[0], replace(honest[0], seal=Seal.of(at(0, 3, attest=True)))), "did not sign both"),
        (
            (
                honest[0],
                CertifiedSeal(
                    replace(
                        (forged := Seal.of(at(0, 3, attest=True))),
                        signature=signer.peer.sign(SEAL_PURPOSE, forged.signed_bytes).hex(),
                    ),
                    signer.peer.identity.certificate,
                ),
            ),
            "did not sign both",
        ),
    ):
        with pytest.raises(Refused, match=why):
            witness.convict(Contradiction(*pair))
    assert witness.proof is None
    write_proof(Contradiction(*honest), tmp_path / "no.json")
    checked = CliRunner().invoke(certs.certs, ["check-proof", str(tmp_path / "no.json"), str(tmp_path / "ca")])
    assert checked.exit_code != 0


def test_a_torn_line_is_of_a_plan_that_nothing_was_done_under(signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was heard is added line by line, and the file begun anew now and then."""
    monkeypatch.setattr("eris.peer.witness._LINES", 4)
    witness = signer.witness()
    for round in range(7):
        assert witness.hear(at(0, round), signer.seal(at(0, round)))
    kept = (signer.folder / HEARD).read_bytes()
    assert len(kept.splitlines()) == 3
    assert signer.witness().last == witness.last
    (signer.folder / HEARD).write_bytes(kept[:-9])
    assert signer.witness().last.seal.when == (0, 5)
    assert not signer.witness().hear(at(0, 4), signer.seal(at(0, 4)))


def test_a_damaged_memory_is_none(signer: Signer) -> None:
    plan = at(0, 3)
    signer.witness().hear(plan, signer.seal(plan))
    (signer.folder / HEARD).write_text('{"seal": 1}')
    assert signer.witness().last is None


def test_an_honest_coordinator_that_comes_back_contradicts_nobody(tmp_path: Path) -> None:
    """What honest recovery needs: restarted in the middle of the run, it goes on, and nobody has a proof."""
    with town(tmp_path, CONFIG, round=20.0) as place:
        nodes = {name: place.node(name) for name in place.names}

        def restart(event: object) -> None:
            if not restarted:
                restarted.append(event)
                place.coordinator.close()
                place.coordinator = place.open_coordinator()

        restarted: list[object] = []
        nodes["amber"].fault_points.listener = lambda point, _: restart(point) if point == "stepped" else None
        for name, node in nodes.items():
            place.start(name, node.run)
        place.wait()
        assert restarted
        assert all(node.line.witness.proof is None for node in nodes.values())
        assert {node.model_digest() for node in nodes.values()} == {simulated(CONFIG, tmp_path / "simulated")}
