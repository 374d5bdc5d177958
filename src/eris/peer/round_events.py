"""A peer's view of a round, as the same events that a simulation emits for all its members."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.encoding import Ring32
from eris.aggregate.fixed_point import decode_buffers
from eris.events import Received, Sent, ShardPublished
from eris.local.spec import Vector
from eris.protocol.aggregator import Aggregator
from eris.protocol.floor import shares
from eris.protocol.member import Member
from eris.protocol.messages import Published, Upload
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.shards.policy import Layout
from eris.wire.frame import CHUNK, HEADER_BYTES

__all__ = ["largest_share", "published_events", "received_events", "sent_event"]


def sent_event(
    uploads: list[Upload], arrived: Collection[tuple[int, int]], plan: RoundPlan, recipe: Recipe, member: int
) -> Sent:
    """Return the event for the parts that `member` sent; `arrived` holds (shard, aggregator) for each receipt."""
    layout, ordered = recipe.layout(plan.round), sorted(uploads, key=lambda upload: upload.shard)
    values = [upload.part.values() for upload in ordered]
    kept = [upload.part.coordinates for upload in ordered]
    if len(ordered) < plan.shards:  # the rest would have shown some peer too much
        kept = [
            layout.trainable.coordinates(upload.shard) if found is None else found
            for upload, found in zip(ordered, kept, strict=True)
        ]
    if any(coordinates is None for coordinates in kept):
        support, sent = None, layout.trainable.reassemble(values)
    else:
        scattered = np.concatenate([coordinates for coordinates in kept if coordinates is not None])
        order = np.argsort(scattered, kind="stable")
        support, sent = scattered[order], np.concatenate(values)[order]
    sizes = {upload.shard: _framed(upload.header().total) for upload in ordered}
    receivers = [[peer for shard, peer in arrived if shard == upload.shard] for upload in ordered]
    return Sent(
        round=plan.round,
        member=member,
        reached=tuple(upload.shard for upload, peers in zip(ordered, receivers, strict=True) if peers),
        bytes=tuple(
            sizes[upload.shard] * sum(peer != member for peer in peers)
            for upload, peers in zip(ordered, receivers, strict=True)
        ),
        weight=float(plan.weights[member]),
        steps=ordered[0].steps,
        values=sent,
        support=support,
        buffers=_meant(_buffers(ordered, layout), plan.weights[member]),
        limit=code.limit if isinstance(code := ordered[0].part.code, Ring32) else 0.0,
    )


def _buffers(uploads: list[Upload], layout: Layout) -> NDArray[Any]:
    """Return the buffers that were sent, with zeros where none were."""
    if len(uploads) == layout.shards:
        return layout.buffers.reassemble([upload.buffers for upload in uploads])
    sent = np.zeros(layout.buffers.n, uploads[0].buffers.dtype)
    for upload in uploads:
        sent[layout.buffers.coordinates(upload.shard)] = upload.buffers
    return sent


def received_events(aggregator: Aggregator, shard: int) -> Iterator[Received]:
    """Yield what an aggregator has of each contribution to one of its shards; nothing in fixed point."""
    if aggregator.plan is None:
        return
    round, recipe = aggregator.plan.round, aggregator.recipe
    layout, shared = recipe.layout(round), recipe.published_support(round, shard)
    for header, contribution, buffers in aggregator.staged(shard):
        if contribution.positions is not None:
            coordinates = layout.trainable.coordinates_at(shard, contribution.positions)
        else:
            coordinates = layout.trainable.coordinates(shard) if shared is None else shared
        yield Received(
            round=round,
            shard=shard,
            aggregator=aggregator.peer,
            member=header.member,
            weight=float(contribution.weight),
            steps=header.steps,
            coordinates=coordinates,
            values=contribution.values,
            buffer_coordinates=layout.buffers.coordinates(shard),
            buffers=buffers.values,
        )


def published_events(verdict: Verdict, member: Member) -> Iterator[ShardPublished]:
    """Yield what everybody learned of each shard; the member still has what its last round committed."""
    for entry in verdict.shards:
        published: Published | None = member.serve(entry.hash) if entry.committed else None
        values, scale = None if published is None else published.values, member.last_scale
        if values is not None and scale is not None:
            values = scale.decode_sum(values)
        size = 0 if published is None else _framed(published.values.nbytes + published.buffers.nbytes)
        who = entry.contributors
        yield ShardPublished(verdict.round, entry.shard, entry.aggregator, who, size, entry.lost, values)


def largest_share(plan: RoundPlan, recipe: Recipe, member: int) -> float:
    """Return the largest share of a member's update that a plan lets any other peer see; 0 if it sends none.

    Of masked parts no peer sees anything alone.
    """
    if member not in plan.participants or plan.unmaskers:
        return 0.0
    return max((share for peer, share in shares(plan, recipe).items() if peer != member), default=0.0)


def _meant(buffers: NDArray[Any], weight: np.float32) -> Vector:
    """Return the buffers that were sent, decoded if they are in fixed point."""
    return decode_buffers(buffers, weight) if buffers.dtype == np.uint64 else buffers


def _framed(payload: int) -> int:
    """Return a message's bytes on the wire.

    >>> _framed(100), _framed(CHUNK + 1) - CHUNK - 1
    (260, 320)
    """
    return payload + HEADER_BYTES * max(1, math.ceil(payload / CHUNK))
