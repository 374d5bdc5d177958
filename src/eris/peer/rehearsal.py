"""A round before there is one: does the first plan this configuration leads to respect a member's floor?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from eris.checkpoint import GENERATIONS
from eris.compose import compose
from eris.errors import ErisError
from eris.local.task import BlockTask
from eris.peer.disk_need import disk_need, state_bytes
from eris.peer.doctor import Finding, examine_disk
from eris.peer.federation import Federation
from eris.peer.node_settings import SPILL_ABOVE
from eris.peer.own_task import task_for
from eris.protocol.coordinator import Coordinator
from eris.protocol.floor import Floor, shares
from eris.protocol.journal import Entry
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RosterEntry, RoundPlan
from eris.protocol.rules import Rules

__all__ = ["examine_task", "first_plan"]


class _NoJournal:
    def append(self, entry: Entry, /) -> None:
        del entry

    def __iter__(self) -> Iterator[Entry]:
        return iter(())


def examine_task(
    federation: Federation,
    path: str | None,
    floor: Floor,
    peer: int,
    folder: Path,
    *,
    spill_above: int = SPILL_ABOVE,
) -> Iterator[Finding]:
    """Look at this peer's learning problem, the room it needs on disk, and the first plan against the floor."""
    try:
        task = task_for(path, federation.config, peer)
        yield Finding("task", True, f"{task.spec.n:,} parameters, {task.samples(peer):,} samples of this peer")
        recipe = compose(federation.config, task.spec, [task.samples(peer)] * federation.config.members).recipe
    except ErisError as error:
        yield Finding.of("task", error)
        return
    in_files = disk_need(
        recipe, above=spill_above, members=federation.config.members, in_blocks=isinstance(task, BlockTask)
    )
    remembered = sum(vector.nbytes for vector in task.memory(peer).values())
    kept = (GENERATIONS + 1) * (state_bytes(recipe) + remembered) + 4 * recipe.spec.n
    yield from examine_disk(folder, needed=sum(in_files.values()) + kept)
    try:
        plan = first_plan(federation, recipe)
        floor.check(plan, recipe, peer)
        yield Finding(
            "floor", True, f"{plan.shards} shards, the largest share another sees is {_largest(plan, recipe, peer):.1%}"
        )
    except ErisError as error:
        yield Finding.of("floor", error)


def _largest(plan: RoundPlan, recipe: Recipe, peer: int) -> float:
    return max((share for other, share in shares(plan, recipe).items() if other != peer), default=0.0)


def first_plan(federation: Federation, recipe: Recipe) -> RoundPlan:
    """Return the plan of round 0 with every peer there; weights and organisations of others are not known yet."""
    config, chosen = federation.config, federation.settings.aggregators
    roster = [RosterEntry(number, name, 1.0) for number, name in enumerate(federation.peers)]
    able = tuple(entry.peer for entry in roster if not chosen or entry.name in chosen)
    rules = Rules(
        run="rehearsal",
        aggregators=able[: recipe.policy.shards],
        participation=config.participation,
        normalisation=config.server.normalisation,
        min_contributors=config.server.min_contributors,
        deadlines=federation.deadlines,
    )
    return Coordinator(recipe, rules, roster, _NoJournal()).plan(now=0.0)
