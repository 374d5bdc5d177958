"""Coordinators that nobody voted in, or that contradict their voters, over real TLS with real certificates."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from eris.coordinate.service import CoordinatorService
from eris.coordinate.take_over import TakeOver, take_over
from eris.errors import ConfigError, Reason, Refused, RunStopped
from eris.peer.allegiance import PROMISE, Allegiance
from eris.peer.federation_file import FederationFile
from eris.peer.journal import SealedRound
from eris.peer.kept_log import KEPT
from eris.peer.mandates import Mandates
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import SEAL_PURPOSE, CertifiedSeal, Seal
from eris.protocol.take_over import Candidacy, Mandate, Promise, Vote, first_epoch
from eris.protocol.verdict import GENESIS, Verdict
from eris.transport.authority import Authority
from eris.transport.calls import StandingAnswer, StandingRequest
from eris.transport.control_client import ControlClient
from eris.transport.control_server import ControlServer
from eris.transport.credentials import Credentials
from tests.peer.town import settings
from tests.protocol.documents import PLAN, VERDICT

CONFIG = settings("members=3", "aggregators=3", "rounds=3", "server.min_contributors=2")
PEERS = ("amber", "birch", "cedar")


class Grove:
    """Three listed peers with folders, a coordinator that signs, and two standbys."""

    def __init__(self, folder: Path) -> None:
        self.folder, authority = folder, Authority.create(folder / "ca", "grove")
        names = ("coordinator", "reserve", "spare", "mallory", *PEERS)
        self.own = {name: Credentials(authority.issue(name)) for name in names}
        table = {"name": "grove", "coordinator": "127.0.0.1:1", "peers": PEERS, "connect": 0.5}
        self.federation = FederationFile(
            {**table, "standbys": {"reserve": "127.0.0.1:2", "spare": "127.0.0.1:3"}}, CONFIG
        )

    def peer(self, name: str) -> Allegiance:
        """A peer as it is when it is started."""
        return Allegiance(self.federation, self.own[name], self.folder / name)

    def candidate(self, name: str = "reserve") -> TakeOver:
        return TakeOver(self.federation, self.own[name])

    def candidacy(self, name: str, term: int) -> Candidacy:
        return self.candidate(name)._ask_for(term)

    def elect(self, candidacy: Candidacy, *peers: Allegiance) -> Mandate:
        return Mandate(candidacy, tuple(peer.vote(candidacy) for peer in peers))

    def round(self, number: int, chain: str, *, signer: str = "coordinator", epoch: int = 0) -> SealedRound:
        plan = replace(PLAN, epoch=epoch, round=number, chain=chain)
        verdict = replace(VERDICT, epoch=epoch, round=number, plan=plan.digest, previous=chain)
        return SealedRound(plan, verdict, self.seal(plan, signer), self.seal(verdict, signer))

    def seal(self, document: RoundPlan | Verdict, signer: str = "coordinator") -> CertifiedSeal:
        seal, own = Seal.of(document), self.own[signer]
        return CertifiedSeal(
            replace(seal, signature=own.sign(SEAL_PURPOSE, seal.signed_bytes).hex()), own.identity.certificate
        )

    def give_rounds(self, peer: Allegiance, count: int) -> list[SealedRound]:
        rounds, chain = [], GENESIS
        for number in range(count):
            rounds.append(self.round(number, chain))
            chain = rounds[-1].verdict.digest
            assert peer.log.keep(rounds[-1])
        return rounds


@pytest.fixture
def grove(tmp_path: Path) -> Grove:
    return Grove(tmp_path)


def test_prevented_a_promise_is_forgotten_in_a_restart(grove: Grove) -> None:
    """Prevented: it is on disk before the vote is given; another one for the same term is refused, and a lower term."""
    first, rival = grove.candidacy("reserve", 2), grove.candidacy("spare", 2)
    vote = grove.peer("amber").vote(first)
    assert (grove.folder / "amber" / PROMISE).exists()
    again = grove.peer("amber")
    assert again.waits
    assert again.promise == Promise(2, first.digest)
    assert again.vote(first).log == vote.log  # the same again, if it was not heard
    for other in (rival, grove.candidacy("reserve", 2), grove.candidacy("spare", 1)):
        with pytest.raises(Refused, match="is already committed in term 2") as caught:
            again.vote(other)
        assert caught.value.reason is Reason.WRONG_EPOCH
    assert again.vote(grove.candidacy("spare", 3)).seat == vote.seat


def test_prevented_an_old_coordinator_that_comes_back_is_not_answered(grove: Grove) -> None:
    amber, birch = grove.peer("amber"), grove.peer("birch")
    plan = replace(PLAN, epoch=5, round=7)
    assert amber.hears(plan)
    amber.accept([grove.elect(grove.candidacy("reserve", 1), amber, birch)])
    assert not amber.waits
    for restarted in (amber, grove.peer("amber")):
        assert not restarted.hears(plan)
        assert not restarted.hears(replace(VERDICT, epoch=5))
        assert restarted.hears(replace(PLAN, epoch=first_epoch(1)))


def test_prevented_two_of_four_or_a_forger_takes_over(grove: Grove) -> None:
    amber, birch, cedar = map(grove.peer, PEERS)
    candidacy = grove.candidacy("reserve", 1)
    one = grove.elect(candidacy, amber)
    with pytest.raises(Refused, match="1 of 3 listed peers voted") as caught:
        cedar.accept([one])
    assert caught.value.reason is Reason.TOO_FEW
    with pytest.raises(Refused, match="1 of 3 listed peers voted"):
        cedar.accept([replace(one, votes=one.votes * 2)])
    good = birch.vote(candidacy)
    forged = replace(good, signature=grove.own["reserve"].sign("vote", good.signed_bytes).hex())
    stolen = replace(good, voter="cedar")
    for vote in (forged, stolen, replace(good, certificate=grove.own["mallory"].identity.certificate)):
        with pytest.raises(Refused, match=r"not signed by its voter|from an earlier run"):
            cedar.accept([replace(one, votes=(*one.votes, vote))])
    assert (cedar.term, cedar.promise.term) == (0, 0)
    assert cedar.accept([replace(one, votes=(*one.votes, good))]) is not None


def test_prevented_who_is_not_listed_gets_no_vote(grove: Grove) -> None:
    mallory = grove.own["mallory"]
    made = Candidacy(grove.federation.digest, 1, "mallory", "00" * 32, mallory.identity.certificate)
    asked = replace(made, signature=mallory.sign("candidacy", made.signed_bytes).hex())
    dressed = replace(made, name="reserve")
    amber = grove.peer("amber")
    with pytest.raises(Refused, match="mallory cannot coordinate"):
        amber.vote(asked)
    with pytest.raises(Refused, match="not signed by its author"):
        amber.vote(replace(dressed, signature=mallory.sign("candidacy", dressed.signed_bytes).hex()))
    assert not amber.waits


def test_prevented_a_mandate_of_an_earlier_run_of_the_same_file(grove: Grove, tmp_path: Path) -> None:
    """Prevented: the folder of each run has its own seat; whoever voted in the earlier one knows that it did not."""
    old = grove.elect(grove.candidacy("reserve", 1), grove.peer("amber"), grove.peer("birch"))
    fresh = Allegiance(grove.federation, grove.own["amber"], tmp_path / "again")
    with pytest.raises(Refused, match="from an earlier run"):
        fresh.accept([old])
    assert fresh.term == 0


def test_detected_two_mandates_for_one_term(grove: Grove, tmp_path: Path) -> None:
    """Detected: birch forgot its promise, and voted twice; the second mandate is refused, and shows who it was."""
    amber, birch, cedar = map(grove.peer, PEERS)
    first = grove.elect(grove.candidacy("reserve", 1), amber, birch)
    forgetful = Allegiance(grove.federation, grove.own["birch"], tmp_path / "forgetful")
    second = grove.elect(grove.candidacy("spare", 1), forgetful, cedar)
    watcher = Mandates(grove.federation, grove.own["amber"])
    watcher.learn(first)
    with pytest.raises(Refused, match="two mandates for term 1, of reserve and of spare") as caught:
        watcher.learn(second)
    assert caught.value.reason is Reason.EQUIVOCATION
    assert {vote.voter for vote in first.votes} & {vote.voter for vote in second.votes} == {"birch"}


def test_prevented_a_coordinator_goes_on_from_less_than_its_voters_hold(grove: Grove) -> None:
    amber, birch, cedar = map(grove.peer, PEERS)
    rounds = grove.give_rounds(amber, 3)
    grove.give_rounds(birch, 2)
    mandate = grove.elect(grove.candidacy("reserve", 1), amber, birch)
    assert (mandate.base.rounds, mandate.base.verdict) == (3, rounds[2].verdict.digest)
    assert cedar.accept([mandate]) is not None
    first = first_epoch(1)
    for lower in (
        replace(PLAN, epoch=first, round=2, chain=rounds[1].verdict.digest),
        replace(PLAN, epoch=first, round=3, chain="ab" * 32),
    ):
        with pytest.raises(Refused, match="does not continue from the last verdict that its voters hold"):
            cedar.require_base(lower)
    cedar.require_base(replace(PLAN, epoch=first, round=3, chain=rounds[2].verdict.digest))
    with pytest.raises(Refused, match="lacks the last verdict that its voters hold"):
        cedar.align(lambda since: rounds[since:2])
    assert not cedar.keeps_up_to(rounds[1].verdict.digest)
    cedar.align(lambda since: rounds[since:])
    assert cedar.keeps_up_to(rounds[2].verdict.digest)
    with pytest.raises(Refused, match="does not follow the one before"):
        cedar.align(lambda since: rounds[since:] or [grove.round(3, "cd" * 32)][since - 3 :])


def test_what_was_never_settled_is_dropped_for_what_was(grove: Grove) -> None:
    """cedar alone heard round 2 of the old coordinator; the others voted without it. It keeps what they go on with."""
    amber, birch, cedar = map(grove.peer, PEERS)
    rounds = grove.give_rounds(cedar, 3)
    for peer in (amber, birch):
        grove.give_rounds(peer, 2)
    cedar.accept([grove.elect(grove.candidacy("reserve", 1), amber, birch)])
    other = grove.round(2, rounds[1].verdict.digest, signer="reserve", epoch=first_epoch(1))
    cedar.align(lambda since: [*rounds[:2], other][since:])
    again = grove.peer("cedar")
    assert again.log.chain == other.verdict.digest != rounds[2].verdict.digest
    assert again.vote(grove.candidacy("spare", 2)).log.term == 1
    assert (grove.folder / "cedar" / KEPT).exists()


def test_prevented_a_seal_counts_only_in_its_coordinators_term(grove: Grove) -> None:
    amber, birch = grove.peer("amber"), grove.peer("birch")
    late, early = replace(PLAN, epoch=first_epoch(1)), replace(PLAN, epoch=3)
    assert not amber.mandates.is_sealed(grove.seal(late, "reserve"))  # nobody has voted yet
    amber.accept([grove.elect(grove.candidacy("reserve", 1), amber, birch)])
    sealed = amber.mandates.is_sealed
    assert sealed(grove.seal(late, "reserve"))
    assert sealed(grove.seal(early))
    assert not sealed(grove.seal(late))  # the old one, in the new term
    assert not sealed(grove.seal(late, "spare"))
    assert not sealed(grove.seal(early, "reserve"))  # the new one, as if it had been there before


def test_over_tls_a_minority_waits_and_votes_are_counted_once(grove: Grove, tmp_path: Path) -> None:
    """A vote that arrives twice is one; a candidate that is not voted in says who is missing; others are refused."""
    candidate = grove.candidate()
    with ControlServer(
        grove.own["reserve"], ("127.0.0.1", 0), candidate, require_allowed=candidate.require_allowed
    ) as server:

        def line(name: str) -> ControlClient:
            return ControlClient(grove.own[name], server.address, name="reserve")

        amber = grove.peer("amber")
        with line("amber") as client:
            asked = client.fetch(StandingRequest(), StandingAnswer).candidacy
            assert asked is not None
            vote = amber.vote(asked)
            client.report(vote)
            client.report(vote)
            with pytest.raises(Refused, match="is taking over and coordinates nothing yet: 1 of 2 votes for term 1"):
                client.leave()
            with pytest.raises(Refused, match="coordinates nothing yet"):
                client.report(grove.peer("birch").vote(asked))  # birch's vote is birch's to bring
            assert "1 of 2 votes" in client.status().why
        with line("mallory") as client, pytest.raises(Refused, match="mallory may not call Fetch"):
            client.fetch(StandingRequest(), StandingAnswer)
        with pytest.raises(RunStopped, match="not voted in: 1 of 2 votes for term 1; no word from birch, cedar"):
            candidate.wait(0.5)
        with line("cedar") as client:  # it has promised itself to another, in a higher term
            higher = client.fetch(StandingRequest(4, "ab" * 32), StandingAnswer).candidacy
        assert higher is not None
        assert higher.term == 5
        with line("amber") as client, pytest.raises(Refused, match="the vote is for another candidacy"):
            client.report(vote)


def test_a_standby_that_was_not_voted_in_does_not_coordinate(grove: Grove, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="coordinator coordinates in term 0, not reserve"):
        CoordinatorService(grove.federation, grove.own["reserve"], tmp_path / "state", listen=("127.0.0.1", 0))
    began = time.monotonic()
    with pytest.raises(RunStopped, match="0 of 2 votes"):
        take_over(grove.federation, grove.own["reserve"], tmp_path / "state", listen=("127.0.0.1", 0), wait=0.3)
    assert time.monotonic() - began < 30.0


def test_a_vote_of_a_liar_is_worth_what_its_seal_shows(grove: Grove) -> None:
    candidacy, cedar = grove.candidacy("reserve", 1), grove.peer("cedar")
    grove.give_rounds(cedar, 1)
    honest: Vote = cedar.vote(candidacy)
    lied = replace(honest, log=replace(honest.log, rounds=9, verdict="ab" * 32))
    signed = replace(lied, signature=grove.own["cedar"].sign("vote", replace(lied, signature="").signed_bytes).hex())
    candidate = grove.candidate()
    with pytest.raises(Refused, match="claims a log that its seal does not show"):
        candidate.mandates.require_vote(signed, candidacy)
    candidate.mandates.require_vote(honest, candidacy)
