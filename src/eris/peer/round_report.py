"""How a round went, as one peer saw it."""

from __future__ import annotations

from dataclasses import dataclass

from eris.events import RoleBytes
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict

__all__ = ["RoundReport"]


@dataclass(frozen=True, slots=True)
class RoundReport:
    """A round's plan and verdict, with what it cost this peer."""

    plan: RoundPlan
    verdict: Verdict
    loss: float
    seconds: float
    member: RoleBytes  # what went over links this peer dialled: its own parts up, published shards down
    aggregator: RoleBytes  # over links others dialled: published shards up, contributions down

    @property
    def bytes_up(self) -> int:
        """All bytes this peer sent."""
        return int(self.member.up + self.aggregator.up)

    @property
    def bytes_down(self) -> int:
        """All bytes this peer received."""
        return int(self.member.down + self.aggregator.down)
