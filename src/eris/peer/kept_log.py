"""A log of sealed verdicts, in order, kept by a peer or a standby besides the coordinator.

A log follows one coordinator at a time. Where that coordinator's history differs from what is kept, the log goes back
to what they have in common, and records that as an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from eris.errors import Reason, Refused
from eris.peer.journal import SealedRound, SqliteJournal
from eris.protocol.journal import Rewind
from eris.protocol.roster import Roster
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import CertifiedSeal
from eris.protocol.take_over import LogEnd, Mandate
from eris.protocol.verdict import GENESIS, Verdict
from eris.transport.calls import KeptRound

__all__ = ["KEPT", "KeptLog", "pack_round", "unpack_round"]

KEPT = "kept.sqlite"  # in a peer's folder
_PAGE = 16  # rounds at a time


class KeptLog:
    """A log on disk; every call returns once its changes are durable."""

    def __init__(self, path: Path) -> None:
        self.journal = SqliteJournal(path)
        self._ends = [(verdict.epoch, verdict.digest) for _, verdict in self.journal.since(0)]

    @property
    def rounds(self) -> int:
        """How many rounds have a verdict here."""
        return len(self._ends)

    @property
    def chain(self) -> str:
        """Digest of the last verdict."""
        return self._ends[-1][1] if self._ends else GENESIS

    def end(self, term: int) -> LogEnd:
        """Return where the log ends, given that it follows the coordinator of this term."""
        epoch = self._ends[-1][0] if self._ends else 0
        return LogEnd(term, epoch, self.rounds, self.chain)

    def seal(self) -> CertifiedSeal | None:
        """Return the seal of the last verdict; None if there is none."""
        return self.journal.seal_of(self.chain) if self._ends else None

    def holds(self, end: LogEnd) -> bool:
        """Whether the log goes at least as far as another one, by the same verdicts."""
        return self.rounds >= end.rounds and (not end.rounds or self._ends[end.rounds - 1][1] == end.verdict)

    def keep(self, played: SealedRound) -> bool:
        """Add a round; if it does not follow the last one, change nothing and return False."""
        plan, verdict = played.plan, played.verdict
        follows = (plan.round, plan.chain, verdict.plan) == (self.rounds, self.chain, plan.digest)
        if not follows or (verdict.round, verdict.previous) != (plan.round, plan.chain):
            return False
        self.journal.append_round(played)
        self._ends.append((verdict.epoch, verdict.digest))
        return True

    def align(self, since: Callable[[int], Sequence[SealedRound]]) -> None:
        """Bring the log to exactly a coordinator's history; `since` returns its rounds from a given one on."""
        common = self.rounds
        while common and not self._agrees(since(common - 1), common - 1):
            common -= 1
        self.go_back(common)
        while page := since(self.rounds):
            for played in page:
                if not self.keep(played):
                    raise Refused(
                        Reason.WRONG_CHAIN,
                        "a round in the coordinator's history does not follow the one before it",
                        fix="the coordinator is not honest, or its journal is damaged",
                        round=played.verdict.round,
                    )

    def _agrees(self, page: Sequence[SealedRound], round: int) -> bool:
        return bool(page) and page[0].verdict.digest == self._ends[round][1]

    def go_back(self, round: int) -> None:
        """Forget the rounds from a given one on; their entries stay, followed by one that takes them back."""
        if round < self.rounds:
            self.journal.append(Rewind(round))
            del self._ends[round:]

    def note_mandates(self, mandates: Iterable[Mandate]) -> None:
        """Keep mandates that are not kept yet."""
        known = {mandate.term for mandate in self.journal.mandates()}
        for mandate in mandates:
            if mandate.term not in known:
                self.journal.append(mandate)

    def since(self, round: int) -> list[SealedRound]:
        """Return a page of rounds, from a given one on."""
        found = []
        for plan, verdict in self.journal.since(round)[:_PAGE]:
            seals = self.journal.seal_of(plan.digest), self.journal.seal_of(verdict.digest)
            if seals[0] is None or seals[1] is None:
                break
            found.append(SealedRound(plan, verdict, seals[0], seals[1]))
        return found

    def close(self) -> None:
        """Close the file."""
        self.journal.close()


def pack_round(played: SealedRound) -> KeptRound:
    """Return a round as it travels."""
    plan, verdict = played.plan, played.verdict
    seals = played.plan_seal, played.verdict_seal
    return KeptRound(plan.encoded, Roster(plan.roster).encoded, verdict.encoded, *seals)


def unpack_round(kept: KeptRound, is_sealed: Callable[[CertifiedSeal], bool]) -> SealedRound:
    """Decode a kept round; refuse it unless the coordinator of its term signed both documents."""
    roster = Roster.decode(kept.roster)

    def find(digest: str) -> Roster:
        if digest != roster.digest:
            raise Refused(Reason.WRONG_DIGEST, "the roster is not the one that the plan cites")
        return roster

    plan, verdict = RoundPlan.decode(kept.plan, find), Verdict.decode(kept.verdict)
    for document, certified in ((plan, kept.plan_seal), (verdict, kept.verdict_seal)):
        if not certified.seal.is_of(document) or not is_sealed(certified):
            raise Refused(Reason.BAD_SIGNATURE, "a kept round is not signed by its coordinator", round=plan.round)
    return SealedRound(plan, verdict, kept.plan_seal, kept.verdict_seal)
