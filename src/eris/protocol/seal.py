"""The coordinator's signature on which plan, and which verdict, a round has.

A seal accompanies a plan or a verdict and names it by digest. It is short, so it can be shown to a peer that was
refused. A coordinator that tells two stories has signed both: two contradictory seals are the proof, and anyone with
the CA's certificate can check it without us.

>>> first, second = Seal("run", 0, 3, "aa" * 32), Seal("run", 0, 3, "bb" * 32)
>>> first.contradicts(second), first.contradicts(Seal("run", 1, 3, "bb" * 32, supersedes=first.name))
(True, False)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.wire.schema import Binary, Digest, Number, Signature, Text, document, encode

__all__ = ["SEAL_PURPOSE", "CertifiedSeal", "Contradiction", "EpochBegun", "PlanName", "Seal"]

SEAL_PURPOSE = "seal"  # part of what is signed


@dataclass(frozen=True, slots=True)
class PlanName:
    """Identifies a plan: its epoch and round, and its digest."""

    epoch: Number
    round: Number
    plan: Digest

    @property
    def when(self) -> tuple[int, int]:
        """Epoch and round, which rise from plan to plan."""
        return self.epoch, self.round


@document(15)
@dataclass(frozen=True, slots=True)
class EpochBegun:
    """A new epoch follows the last plan of earlier epochs; journalled before its first plan is signed."""

    epoch: Number
    supersedes: PlanName


@document(16)
@dataclass(frozen=True)
class Seal:
    """The coordinator's word on a round: its plan and, once it exists, its verdict."""

    run: Text
    epoch: Number
    round: Number
    plan: Digest
    verdict: Digest = ""  # empty in a plan's seal
    supersedes: PlanName | None = None  # last plan of all earlier epochs; the same in every seal of an epoch
    signature: Signature = ""

    @classmethod
    def of(cls, document: RoundPlan | Verdict, supersedes: PlanName | None = None) -> Seal:
        """Return the seal to be signed for a plan or a verdict."""
        if isinstance(document, RoundPlan):
            return cls(document.run, document.epoch, document.round, document.digest, supersedes=supersedes)
        return cls(document.run, document.epoch, document.round, document.plan, document.digest, supersedes)

    def is_of(self, document: RoundPlan | Verdict) -> bool:
        """Whether this is the seal of a plan or a verdict."""
        return replace(self, signature="") == Seal.of(document, self.supersedes)

    @property
    def name(self) -> PlanName:
        """The plan it is about."""
        return PlanName(self.epoch, self.round, self.plan)

    @property
    def when(self) -> tuple[int, int]:
        """Epoch and round of that plan."""
        return self.epoch, self.round

    @cached_property
    def signed_bytes(self) -> bytes:
        """Everything but the signature."""
        return encode(replace(self, signature=""))

    def contradicts(self, other: Seal) -> bool:
        """Whether no honest coordinator would sign both.

        A round has one plan in an epoch, a plan has one verdict, and an epoch follows one plan. What is signed is on
        disk first, so neither a crash nor a restart makes an honest coordinator sign twice.
        """
        if self.run != other.run:
            return False
        plans = {name.when: name.plan for name in self._named()}
        if any(plans.get(name.when, name.plan) != name.plan for name in other._named()):
            return True
        if self.epoch == other.epoch and self.supersedes != other.supersedes:
            return True
        return self.when == other.when and "" not in (self.verdict, other.verdict) and self.verdict != other.verdict

    def _named(self) -> tuple[PlanName, ...]:
        return (self.name,) if self.supersedes is None else (self.name, self.supersedes)


@dataclass(frozen=True, slots=True)
class CertifiedSeal:
    """A seal with its coordinator's certificate (DER): all that a stranger needs to check it."""

    seal: Seal
    certificate: Binary = field(repr=False)


@document(17)
@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two seals of one coordinator that no honest one would both sign: proof of foul play."""

    first: CertifiedSeal
    second: CertifiedSeal

    def __str__(self) -> str:
        one, other = self.first.seal, self.second.seal
        what = "two verdicts" if one.plan == other.plan and one.when == other.when else "two plans"
        return f"the coordinator signed {what}: epoch {one.epoch}, round {one.round}, and {other.epoch}, {other.round}"
