"""What one peer knows of itself, beside what its events tell: its floor, what it has spent, its certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from eris.methods.masked import smallest_sum
from eris.privacy.ring_noise import RingNoise
from eris.web.live_facts import LiveFacts, masking_of

if TYPE_CHECKING:
    from eris.peer.budget import RunBudget
    from eris.peer.node import Node

__all__ = ["PeerFacts"]


class PeerFacts:
    """Completes the facts of one peer; `refresh` is called before they are shown.

    `node` knows the run, `budget` what this member has spent over all runs, `expiry` when its certificate ends.
    """

    def __init__(self, facts: LiveFacts, node: Node, budget: RunBudget | None, expiry: Callable[[], float]) -> None:
        self._facts, self._node, self._budget, self._expiry = facts, node, budget, expiry
        self._accounted = -1  # rounds
        floor = node.settings.floor
        facts.note(
            federation=node.federation.name,
            floor={
                "max_share": floor.share(node.recipe, 0),
                "min_aggregators": floor.min_aggregators,
                "min_contributors": floor.min_contributors,
            },
            masking=masking_of(node.federation.config),
        )

    def refresh(self) -> None:
        """Take up what may have changed."""
        self._facts.note(expires=self._expiry())
        if (own := self._node.line.allegiance) is not None:
            self._facts.note(coordinator={"name": own.mandates.name_of(own.term), "term": own.term})
        if self._budget is None or self._budget.spent.sent == self._accounted:
            return
        self._accounted = sent = self._budget.spent.sent
        noise, config, total = self._node.composition.noise, self._node.federation.config, self._budget.total
        if noise is not None:
            claim = "; reproducible noise: no privacy claim" if self._node.reproducible else ""
            spent = noise.spent(sent, config.privacy.delta)
            if isinstance(noise, RingNoise) and noise.shares:
                alone = replace(noise, multiplier=noise.alone(smallest_sum(config))).spent(sent, config.privacy.delta)
                claim = f"; to an aggregator with its unmaskers ε = {alone.value:.3g}{claim}"
            self._facts.note(epsilon=f"ε = {spent.value:.3g}", privacy=f"{spent}{claim}")
        worth = f"{total.updates_shown:.3g} updates' worth at one peer at most"
        value = " · ".join(f"ε = {epsilon.value:.3g}" for epsilon in total.epsilons) or "no ε"
        self._facts.note(budget={"value": value, "more": f"{total}; {worth}"})
