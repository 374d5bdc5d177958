"""The rule of take-overs by itself: random schedules of candidacies, votes, crashes, lost and late messages.

Peers keep what they promised and their log; coordinators and their disks may vanish at any moment. Whatever happens, no
round ever has two settled verdicts, and every mandate goes on behind all that were settled before it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.errors import Reason, Refused
from eris.protocol.seal import CertifiedSeal, Seal
from eris.protocol.take_over import (
    Candidacy,
    LogEnd,
    Mandate,
    Promise,
    Vote,
    first_epoch,
    is_majority,
    majority_of,
    require_candidacy,
    require_mandate,
    require_vote,
    term_of,
)
from eris.protocol.verdict import GENESIS
from eris.wire.schema import decode, digest_of, encode

FEDERATION, CANDIDATES = "fe" * 32, ("coordinator", "reserve", "spare")
PEERS = ("amber", "birch", "cedar", "dogwood", "elder", "fir", "gorse")


def sign(name: str, purpose: str, message: bytes) -> str:
    return digest_of(f"{name} {purpose} ".encode() + message)


def is_signed(name: str, certificate: bytes, purpose: str, message: bytes, signature: str) -> bool:
    return certificate == name.encode() and signature == sign(name, purpose, message)


def is_sealed(certified: CertifiedSeal) -> bool:
    return certified.certificate.decode() in CANDIDATES and certified.seal.signature == "5e"


def candidacy_of(name: str, term: int, nonce: int = 0, *, federation: str = FEDERATION) -> Candidacy:
    made = Candidacy(federation, term, name, f"{nonce:064x}", name.encode())
    return replace(made, signature=sign(name, "candidacy", made.signed_bytes))


def vote_of(voter: str, candidacy: Candidacy, log: LogEnd | None = None, **changes: object) -> Vote:
    end = log or LogEnd()
    seal = Seal("run", end.epoch, max(end.rounds - 1, 0), "99" * 32, end.verdict, signature="5e")
    shown = CertifiedSeal(seal, b"coordinator") if end.rounds else None
    return resigned(replace(Vote(candidacy.digest, voter, "5a" * 32, end, shown, voter.encode()), **changes))


def resigned(vote: Vote) -> Vote:
    return replace(vote, signature=sign(vote.voter, "vote", replace(vote, signature="").signed_bytes))


def require(mandate: Mandate, listed: tuple[str, ...] = PEERS[:5]) -> None:
    rule = {"federation": FEDERATION, "candidates": CANDIDATES, "listed": listed}
    require_mandate(mandate, **rule, is_signed=is_signed, is_sealed=is_sealed)  # type: ignore[arg-type]


# ── a world that loses messages and machines ─────────────────────────────────────────────────────────────────────────


@dataclass
class _Peer:
    """What a peer has on disk."""

    name: str
    promise: Promise = field(default_factory=Promise)
    log: list[tuple[int, str]] = field(default_factory=list)  # epoch and digest of each round's verdict
    adopted: int = 0  # term of the last mandate that it keeps

    @property
    def end(self) -> LogEnd:
        epoch, verdict = self.log[-1] if self.log else (0, GENESIS)
        return LogEnd(self.adopted, epoch, len(self.log), verdict)


@dataclass
class _Coordinator:
    """One that was voted in, or the first; `reported` are peers that spoke under the plan of the round in flight."""

    term: int
    candidacy: str
    log: list[tuple[int, str]]
    reported: set[str] = field(default_factory=set)


class _World:
    """Peers, coordinators old and new, and what is under way between them. `chance` is the schedule."""

    def __init__(self, count: int, chance: random.Random) -> None:
        self.chance, self.listed = chance, PEERS[:count]
        self.peers = {name: _Peer(name) for name in self.listed}
        self.coordinators = [_Coordinator(0, "", [])]
        self.candidacies: list[Candidacy] = []
        self.votes: list[tuple[Vote, Candidacy, list[tuple[int, str]]]] = []
        self.settled: dict[int, tuple[str, int]] = {}  # round → verdict, and the first term in which it was
        self.elected: set[str] = set()
        self.written: dict[int, set[str]] = {}

    def step(self) -> None:
        what = (self.ask, self.vote, self.elect, self.follow, self.write, self.vanish)
        self.chance.choices(what, weights=(1, 6, 2, 10, 5, 1))[0]()
        self._note_settled()

    def ask(self) -> None:
        """Somebody asks for the votes of some term: the next one, a higher one, or one that is long taken."""
        highest = max((one.term for one in self.candidacies), default=0)
        term = self.chance.randint(1, highest + 2)
        self.candidacies.append(candidacy_of(self.chance.choice(CANDIDATES), term, len(self.candidacies)))

    def vote(self) -> None:
        """A peer hears of a candidacy, at any time after it was announced; its vote may be under way for ever."""
        if not self.candidacies:
            return
        peer, candidacy = self.chance.choice(list(self.peers.values())), self.chance.choice(self.candidacies)
        if peer.promise.allows(candidacy.term, candidacy.digest) and peer.adopted < candidacy.term:
            peer.promise = Promise(candidacy.term, candidacy.digest)
            self.votes.append((vote_of(peer.name, candidacy, peer.end), candidacy, list(peer.log)))

    def elect(self) -> None:
        """A candidate counts some of the votes that have come; with more than half it begins."""
        if not self.candidacies:
            return
        candidacy = self.chance.choice(self.candidacies)
        came = [entry for entry in self.votes if entry[1] is candidacy and self.chance.random() < 0.9]
        mandate = Mandate(candidacy, tuple({vote.voter: vote for vote, _, _ in came}.values()))
        try:
            require(mandate, self.listed)
        except Refused as refused:
            if refused.reason is not Reason.TOO_FEW:
                raise
            return
        if candidacy.digest in self.elected:
            return  # who asks counts once; after a crash it asks anew
        self.elected.add(candidacy.digest)
        log = next(log for vote, _, log in came if vote.log == mandate.base)
        self._require_settled_in(log, candidacy.term)
        self.coordinators.append(_Coordinator(candidacy.term, candidacy.digest, list(log)))

    def follow(self) -> None:
        """A peer hears of a coordinator, whichever: it catches up, keeps the mandate, and reports under the plan."""
        coordinator, peer = self.chance.choice(self.coordinators), self.chance.choice(list(self.peers.values()))
        if not peer.promise.allows(coordinator.term, coordinator.candidacy):
            return
        if coordinator.term > peer.promise.term:
            peer.promise = Promise(coordinator.term, coordinator.candidacy)
        behind = self.chance.random() < 0.3 and coordinator.term == peer.adopted
        if behind:  # it was told only a part of it so far
            known = min(len(coordinator.log), len(peer.log) + 1)
            peer.log = max(peer.log, coordinator.log[:known], key=len)
            return
        peer.log, peer.adopted = list(coordinator.log), coordinator.term
        coordinator.reported.add(peer.name)

    def write(self) -> None:
        """A coordinator, deposed or not, writes the verdict of its round, if it may."""
        coordinator = self.chance.choice(self.coordinators)
        if not is_majority(len(coordinator.reported), len(self.listed)):
            return
        verdict = f"{self.chance.getrandbits(256):064x}"
        coordinator.log.append((first_epoch(coordinator.term), verdict))
        self.written.setdefault(len(coordinator.log) - 1, set()).add(verdict)
        coordinator.reported.clear()
        if len(coordinator.log) > 1:
            self._settle(len(coordinator.log) - 2, coordinator.log[-2][1], coordinator.term)

    def vanish(self) -> None:
        """A coordinator is gone with its disk; sometimes votes are lost."""
        if len(self.coordinators) > 1 and self.chance.random() < 0.2:
            self.coordinators.remove(self.chance.choice(self.coordinators))
        if self.votes and self.chance.random() < 0.3:
            self.votes.remove(self.chance.choice(self.votes))

    def _note_settled(self) -> None:
        """A verdict that more than half keep under its own coordinator is settled, whether anybody knows it or not."""
        for coordinator in self.coordinators:
            for round, entry in enumerate(coordinator.log):
                if term_of(entry[0]) == coordinator.term:
                    keep = [p for p in self.peers.values() if p.adopted == coordinator.term and entry in p.log]
                    if is_majority(len(keep), len(self.listed)):
                        self._settle(round, entry[1], coordinator.term)

    def _settle(self, round: int, verdict: str, term: int) -> None:
        known, since = self.settled.get(round, (verdict, term))
        assert known == verdict, f"two verdicts of round {round} are believed"
        self.settled[round] = verdict, min(since, term)

    def _require_settled_in(self, log: list[tuple[int, str]], term: int) -> None:
        """A mandate that is counted late, behind a higher one that stands, is followed by nobody: it may be behind."""
        for round, (verdict, since) in self.settled.items():
            if since < term:
                kept = [digest for _, digest in log[round : round + 1]]
                assert kept == [verdict], f"round {round} was settled, and is lost"


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 7), st.integers(20, 400), st.integers(0, 2**32))
def test_no_two_verdicts_of_a_round_are_ever_both_believed(count: int, steps: int, seed: int) -> None:
    world = _World(count, random.Random(seed))
    for _ in range(steps):
        world.step()


def test_schedules_reach_what_they_are_meant_to() -> None:
    """The property is not true for lack of events: rounds are taken over, and overwritten before they settle."""
    worlds = [_World(3 + seed % 3, random.Random(seed)) for seed in range(150)]
    for world in worlds:
        for _ in range(400):
            world.step()
    assert sum(len(world.settled) for world in worlds) > 500
    assert sum(max((one.term for one in world.coordinators), default=0) > 2 for world in worlds) > 50
    assert sum(any(len(verdicts) > 1 for verdicts in world.written.values()) for world in worlds) > 20


def _with(change: str) -> None:
    """Play until a broken rule is found out."""
    for seed in range(400):
        world = _World(3 + seed % 3, random.Random(seed))
        for _ in range(400):
            world.step()
    pytest.fail(f"nobody noticed: {change}")


@pytest.mark.parametrize("broken", ["promise", "majority", "base", "term", "report"])
def test_without_any_part_of_the_rule_two_verdicts_are_believed(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = __name__
    if broken == "promise":
        monkeypatch.setattr(Promise, "allows", lambda self, term, candidacy: True)
    elif broken == "majority":
        monkeypatch.setattr("eris.protocol.take_over.majority_of", lambda listed: listed // 2)
    elif broken == "base":
        monkeypatch.setattr(Mandate, "base", property(lambda self: min(vote.log for vote in self.votes)))
    elif broken == "term":
        ranked = property(lambda self: max((v.log for v in self.votes), key=lambda log: (log.rounds, log.verdict)))
        monkeypatch.setattr(Mandate, "base", ranked)
    else:
        monkeypatch.setattr(f"{here}._World.write", _write_alone)
    with pytest.raises(AssertionError):
        _with(broken)


def _write_alone(world: _World) -> None:
    """Write a verdict whoever has reported."""
    coordinator = world.chance.choice(world.coordinators)
    coordinator.reported |= set(world.listed)
    coordinator.log.append((first_epoch(coordinator.term), f"{world.chance.getrandbits(256):064x}"))
    if len(coordinator.log) > 1:
        world._settle(len(coordinator.log) - 2, coordinator.log[-2][1], coordinator.term)


# ── what is no vote, and no mandate ──────────────────────────────────────────────────────────────────────────────────


def mandate_of(*voters: str, term: int = 1, **changes: object) -> Mandate:
    candidacy = candidacy_of("reserve", term)
    return Mandate(candidacy, tuple(vote_of(voter, candidacy, **changes) for voter in voters))


def test_more_than_half_of_the_listed_are_a_mandate_and_it_survives_the_wire() -> None:
    mandate = mandate_of("amber", "birch", "cedar")
    require(mandate)
    again = decode(Mandate, encode(mandate))
    require(again)
    assert again == mandate
    assert again.base == LogEnd()
    assert [majority_of(count) for count in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]


def test_prevented_a_minority_takes_over() -> None:
    with pytest.raises(Refused, match="2 of 5 listed peers voted for reserve in term 1") as caught:
        require(mandate_of("amber", "birch"))
    assert caught.value.reason is Reason.TOO_FEW
    with pytest.raises(Refused, match="2 of 4"):
        require(mandate_of("amber", "birch"), PEERS[:4])


def test_prevented_a_vote_is_counted_twice() -> None:
    with pytest.raises(Refused, match="2 of 5 listed peers voted"):
        require(mandate_of("amber", "birch", "birch"))


def test_prevented_a_forged_vote() -> None:
    good = mandate_of("amber", "birch")
    candidacy = good.candidacy
    forged = replace(vote_of("cedar", candidacy), signature=sign("reserve", "vote", b"cedar"))
    stranger = vote_of("mallory", candidacy)
    dressed = vote_of("cedar", candidacy, certificate=b"birch")
    moved = replace(vote_of("cedar", candidacy), log=LogEnd(0, 0, 3, "aa" * 32))
    for vote in (forged, dressed, moved):
        with pytest.raises(Refused, match="not signed by its voter"):
            require(replace(good, votes=(*good.votes, vote)))
    with pytest.raises(Refused, match="mallory has no vote"):
        require(replace(good, votes=(*good.votes, stranger)))


def test_prevented_a_vote_of_another_run_term_or_try_is_used_again() -> None:
    candidacy = candidacy_of("reserve", 2)
    mine = tuple(vote_of(voter, candidacy) for voter in ("amber", "birch"))
    for other in (
        candidacy_of("reserve", 1),
        candidacy_of("reserve", 2, nonce=9),
        candidacy_of("spare", 2),
        candidacy_of("reserve", 2, federation="00" * 32),
    ):
        with pytest.raises(Refused, match="the vote is for another candidacy"):
            require(Mandate(candidacy, (*mine, vote_of("cedar", other))))
    elsewhere = candidacy_of("reserve", 2, federation="00" * 32)
    with pytest.raises(Refused, match="another federation"):
        require(Mandate(elsewhere, tuple(vote_of(voter, elsewhere) for voter in PEERS[:3])))


def test_prevented_who_is_not_listed_or_signs_for_another_is_no_candidate() -> None:
    rule = {"federation": FEDERATION, "candidates": CANDIDATES, "is_signed": is_signed}
    with pytest.raises(Refused, match="amber cannot coordinate in term 1"):
        require_candidacy(candidacy_of("amber", 1), **rule)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="cannot coordinate in term 0"):
        require_candidacy(candidacy_of("reserve", 0), **rule)  # type: ignore[arg-type]
    stolen = replace(candidacy_of("reserve", 1), certificate=b"spare")
    with pytest.raises(Refused, match="not signed by its author"):
        require_candidacy(stolen, **rule)  # type: ignore[arg-type]


def test_prevented_a_coordinator_leaves_out_a_verdict_that_its_voters_hold() -> None:
    """The log that a term goes on from is computed from the votes; it is nowhere the coordinator's to say."""
    candidacy = candidacy_of("reserve", 1)
    ends = (LogEnd(0, 0, 2, "aa" * 32), LogEnd(0, 0, 4, "bb" * 32), LogEnd())
    votes = tuple(vote_of(voter, candidacy, end) for voter, end in zip(PEERS, ends, strict=False))
    mandate = Mandate(candidacy, votes)
    require(mandate)
    assert mandate.base == ends[1]


@pytest.mark.parametrize(
    "log",
    [LogEnd(0, 0, 3, "aa" * 32), LogEnd(0, 1, 2, "bb" * 32), LogEnd(1, 0, 2, "bb" * 32), LogEnd(0, 0, 0, GENESIS)],
)
def test_prevented_a_voter_claims_a_log_that_no_coordinator_sealed(log: LogEnd) -> None:
    candidacy = candidacy_of("reserve", 1)
    honest = vote_of("amber", candidacy, LogEnd(0, 0, 2, "bb" * 32))
    lied = resigned(replace(honest, log=log))
    rule = {"listed": PEERS[:5], "is_signed": is_signed, "is_sealed": is_sealed}
    require_vote(honest, candidacy, **rule)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="claims a log that its seal does not show"):
        require_vote(lied, candidacy, **rule)  # type: ignore[arg-type]
    unsealed = resigned(replace(honest, seal=None))
    with pytest.raises(Refused, match="claims a log"):
        require_vote(unsealed, candidacy, **rule)  # type: ignore[arg-type]
