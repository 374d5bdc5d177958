"""The roles of one peer, built from what the federation agreed on and from the peer's own settings."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from eris.compose import Composition
from eris.errors import Reason, Refused
from eris.local.task import BlockTask, Task
from eris.peer.address_book import AddressBook
from eris.peer.federation_file import FederationFile
from eris.peer.footprint import memory_need, pool_for
from eris.peer.node_settings import NodeSettings
from eris.peer.training import initial_model
from eris.privacy.masking import MaskKey
from eris.protocol.aggregator import Aggregator
from eris.protocol.member import Member
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.protocol.shown import RELEASED, SHOWN, Releases, Shown
from eris.protocol.step_guard import StepGuard, clipped_to
from eris.protocol.sums import SUMS, Sums
from eris.protocol.unmasker import Unmasker
from eris.seeds import Seed
from eris.storage.buffer_pool import BufferPool
from eris.transport.process_limits import link_memory, peer_descriptors, require_descriptors, require_process_memory

__all__ = ["Roles", "build_roles", "require_memory", "require_sockets"]


@dataclass(frozen=True, slots=True)
class Roles:
    """One peer's roles: a member, an aggregator and, with masked shards, an unmasker with its key."""

    member: Member
    aggregator: Aggregator
    unmasker: Unmasker | None
    key: MaskKey | None
    pool: BufferPool  # allocates the vectors of all of them


def build_roles(
    federation: FederationFile,
    composition: Composition,
    task: Task,
    private: Seed,
    settings: NodeSettings,
    book: AddressBook,
) -> Roles:
    """Build a peer's roles, before the first round.

    Args:
        composition: the run's recipe, as composed from its configuration.
        task: this peer's learning problem.
        private: this peer's private root of randomness.
        book: checks signatures and mask keys of other peers.
    """
    recipe, folder, number = composition.recipe, settings.folder, federation.number(settings.name)
    pool = pool_for(recipe, settings, members=federation.config.members, in_blocks=isinstance(task, BlockTask))
    signed: dict[str, Any] = {"sign": book.sign, "verify": book.verify}
    key = MaskKey(int(time.time())) if recipe.unmaskers else None
    sums = Sums(folder / SUMS if folder is not None else None)
    agreement = federation.agreement(composition.run)
    guard = StepGuard(federation.config.server.max_step, clipped_to(recipe))
    member = Member(
        number,
        recipe,
        initial_model(task, federation.config.seed),
        private,
        floor=settings.floor,
        agreement=agreement,
        shown=Shown(recipe, folder / SHOWN if folder is not None else None),
        verify=book.verify,
        pool=pool,
        key=key,
        knows_key=book.knows_key,
        sums=sums,
        guard=guard,
        releases=Releases(folder / RELEASED if folder is not None else None),
    )
    aggregator = Aggregator(number, recipe, pool=pool, agreement=agreement, guard=guard, **signed)
    unmasker = None
    if key is not None:
        least = max(2.0, agreement.min_effective)
        known: dict[str, Any] = {
            "knows_key": book.knows_key,
            "agreement": agreement,
            "sums": sums,
            "stands": partial(_require_standing, member),
        }
        unmasker = Unmasker(number, recipe, key, **signed, **known, least_effective=least, pool=pool)
    return Roles(member, aggregator, unmasker, key, pool)


def _require_standing(member: Member, plan: RoundPlan) -> None:
    """Refuse a plan that does not begin at our state: we may not have heard which sums led there."""
    if (plan.round, plan.chain) != (member.round, member.chain):
        raise Refused(
            Reason.WRONG_CHAIN, "this peer's state is not the one that the plan starts from", round=plan.round
        )


def require_sockets(federation: FederationFile, settings: NodeSettings) -> None:
    """Refuse a federation whose links need more descriptors than this process may have."""
    members, aggregators = len(federation.peers), federation.config.aggregators
    require_descriptors(peer_descriptors(members, aggregators, aggregates=settings.reachable), _crowd(federation))


def require_memory(federation: FederationFile, settings: NodeSettings, recipe: Recipe, task: Task) -> None:
    """Refuse a federation whose vectors and links need more memory than this process may have."""
    members, aggregators = len(federation.peers), federation.config.aggregators
    in_blocks = isinstance(task, BlockTask)
    vectors = memory_need(recipe, above=settings.spill_above, members=members, in_blocks=in_blocks)
    links = link_memory(members, aggregators, aggregates=settings.reachable)
    require_process_memory(links + sum(vectors.values()), f"{_crowd(federation)} of {recipe.spec.n:,} values")


def _crowd(federation: FederationFile) -> str:
    return f"a peer among {len(federation.peers):,} members and {federation.config.aggregators:,} aggregators"
