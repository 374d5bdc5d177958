"""Manifests that no honest aggregator signs, whatever others sent it: proof that their author lies.

What a manifest says of itself can be held against the plan that it names: who takes part, who owns the shard, how many
there must be, and the scalar that their weights give. So can a receipt that its author signed: whoever had one is among
the contributors. Values are another matter: a mean that is too long, or that two aggregators do not agree on, accuses
nobody.
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
    """A signed manifest that contradicts the plan it names, or a receipt of its author; kept by the coordinator."""

    manifest: Manifest
    receipt: Receipt | None = None  # of a member that the manifest leaves out

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
        """The same in words."""
        what = "the plan" if self.receipt is None else "a receipt of its own"
        return f"this peer signed a manifest that {what} contradicts"


@document(22)
@dataclass(frozen=True, slots=True)
class LieProof:
    """Why an aggregator is excluded, with all that a stranger needs to check it."""

    manifests: tuple[Manifest, ...]  # one that is false, or two for one shard
    certificate: Binary = field(repr=False)  # of the aggregator, DER
    plan: Binary = field(repr=False)  # of the round, and its roster, as they travel
    roster: Binary = field(repr=False)
    seal: CertifiedSeal  # of the plan
    receipt: Receipt | None = None  # that the only manifest contradicts

    @property
    def aggregator(self) -> int:
        """Whom it accuses."""
        return self.manifests[0].aggregator

    def lie(self) -> str:
        """Return what is false if the signatures are good, in words; empty if an honest peer may have signed this."""
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
        """Return the accused one's number and name, by the plan's roster."""
        roster = Roster.decode(self.roster)
        return self.aggregator, next((entry.name for entry in roster if entry.peer == self.aggregator), "")


Lie = Equivocation | FalseManifest


def lie_of(plan: RoundPlan, manifest: Manifest, receipt: Receipt | None = None) -> str:
    """Return what in a manifest no honest aggregator signs under this plan, in words; empty if there is nothing.

    With a receipt of the same aggregator for the same shard: nor one without the member that it is for.
    """
    contributors = manifest.contributors
    if manifest.round != plan.round:
        return f"a round {manifest.round} that is not the plan's"
    if not 0 <= manifest.shard < plan.shards or manifest.aggregator not in plan.aggregators_of(manifest.shard):
        return f"shard {manifest.shard}, which is not its own"
    if list(contributors) != sorted(set(contributors) & plan.participant_set):
        return "contributors that do not take part"
    if len(contributors) < plan.least_contributors:
        return f"a mean of {len(contributors)}, {plan.least_contributors} are needed"
    if manifest.c not in (1.0, float(plan.scale(contributors))):  # a median has 1
        return f"c = {manifest.c}, which its contributors do not give"
    if not counts_as_steps(manifest.steps):
        return f"{manifest.steps} local steps"
    if receipt is not None and _leaves_out(manifest, receipt):
        return f"a mean without peer {receipt.member}, whose contribution it had acknowledged"
    return ""


def _leaves_out(manifest: Manifest, receipt: Receipt) -> bool:
    """Whether a receipt is of the manifest's own author and round, and its member is not among the contributors.

    An honest aggregator gives none once a shard is cut, and abstains after a restart.
    """
    same = (receipt.plan, receipt.shard, receipt.aggregator) == (manifest.plan, manifest.shard, manifest.aggregator)
    return same and receipt.member not in manifest.contributors
