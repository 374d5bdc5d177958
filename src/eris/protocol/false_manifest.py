"""Manifests that no honest aggregator signs, whatever it was sent: proof that their author lies.

A manifest can be held against the plan it names: who takes part, who owns the shard, how many contributors there must
be, and the scalar that their weights give. It can be held against a receipt that its author signed, too: the member who
got one must be among the contributors. Values are another matter: a mean that is too long, or on which two aggregators
disagree, accuses nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eris.errors import Reason
from eris.protocol.messages import Equivocation, Manifest, Receipt
from eris.protocol.roster import Roster
from eris.protocol.round_plan import RoundPlan
from eris.protocol.seal import CertifiedSeal
from eris.protocol.steps import counts_as_steps
from eris.wire.schema import Binary, Number, document

__all__ = ["FalseManifest", "Lie", "LieProof", "lie_of"]


@document(25)
@dataclass(frozen=True, slots=True)
class FalseManifest:
    """A signed manifest that contradicts the plan it names or a receipt of its author; the coordinator keeps it."""

    manifest: Manifest
    receipt: Receipt | None = None  # given to a member that the manifest leaves out

    @property
    def aggregator(self) -> int:
        """Who signed it."""
        return self.manifest.aggregator

    @property
    def reason(self) -> Reason:
        """Why its author is excluded."""
        return Reason.FALSE_MANIFEST

    @property
    def what(self) -> str:
        """The reason in words."""
        what = "the plan" if self.receipt is None else "a receipt of its own"
        return f"this peer signed a manifest that {what} contradicts"


@document(22)
@dataclass(frozen=True, slots=True)
class LieProof:
    """Why an aggregator is excluded, with everything a stranger needs to check it."""

    manifests: tuple[Manifest, ...]  # a false one, or two for one shard
    certificate: Binary = field(repr=False)  # of the aggregator, DER
    plan: Binary = field(repr=False)  # the round's plan as it travels, and its roster likewise
    roster: Binary = field(repr=False)
    seal: CertifiedSeal  # of the plan
    receipt: Receipt | None = None  # the receipt that a single manifest contradicts

    @property
    def aggregator(self) -> int:
        """The accused aggregator."""
        return self.manifests[0].aggregator

    def lie(self) -> str:
        """Return in words what is false, assuming good signatures; empty if an honest peer may have signed this."""
        roster = Roster.decode(self.roster)
        plan = RoundPlan.decode(self.plan, lambda _: roster)
        if self.seal.seal.plan != plan.digest or any(manifest.plan != plan.digest for manifest in self.manifests):
            return ""
        match self.manifests:
            case (only,):
                return lie_of(plan, only, self.receipt)
            case (first, second) if (first.aggregator, first.shard) == (second.aggregator, second.shard):
                return "two manifests for one shard" if first.digest != second.digest else ""
        return ""

    def names(self) -> tuple[Number, str]:
        """Return the number and name of the accused, by the plan's roster."""
        roster = Roster.decode(self.roster)
        return self.aggregator, next((entry.name for entry in roster if entry.peer == self.aggregator), "")


Lie = Equivocation | FalseManifest


def lie_of(plan: RoundPlan, manifest: Manifest, receipt: Receipt | None = None) -> str:
    """Return in words what no honest aggregator would sign under this plan; empty if the manifest is possible.

    With a receipt of the same aggregator for the same shard, leaving out the receipt's member is a lie as well.
    """
    contributors = manifest.contributors
    if manifest.round != plan.round:
        return f"a round {manifest.round} that is not the plan's"
    if not 0 <= manifest.shard < plan.shards or manifest.aggregator not in plan.aggregators_of(manifest.shard):
        return f"shard {manifest.shard}, which is not its own"
    if list(contributors) != sorted(set(contributors) & plan.participant_set):
        return "contributors that do not take part"
    if len(contributors) < plan.least_contributors:
        return f"a mean of {len(contributors)}, but {plan.least_contributors} are needed"
    if manifest.c not in (1.0, float(plan.scale(contributors))):  # a median has c = 1
        return f"c = {manifest.c}, which its contributors do not give"
    if not counts_as_steps(manifest.steps):
        return f"{manifest.steps} local steps"
    if receipt is not None and _leaves_out(manifest, receipt):
        return f"a mean without peer {receipt.member}, whose contribution it had acknowledged"
    return ""


def _leaves_out(manifest: Manifest, receipt: Receipt) -> bool:
    """Whether a receipt is from the manifest's author and round, and its member is not among the contributors.

    An honest aggregator gives no receipt once a shard is cut, and abstains after a restart.
    """
    same = (receipt.plan, receipt.shard, receipt.aggregator) == (manifest.plan, manifest.shard, manifest.aggregator)
    return same and receipt.member not in manifest.contributors
