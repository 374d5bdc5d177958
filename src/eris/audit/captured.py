"""The bytes that an aggregator of masked shards has of one member, read as if there were no pad on them.

An aggregator p receives y = z + pad mod 2³² of every member, the sum of all pads from the unmasker, and publishes the
difference; so beside what is broadcast it has y, and nothing else that depends on single members. An audit that gave it
the broadcasts alone would take for granted what it is to measure. Here the pad is the real one, AES-256 in counter mode
over the values in their order; its key comes from the run's seed, as all randomness of a simulation does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from eris.aggregate.encoding import Ring32
from eris.audit.observer import Vantage
from eris.audit.transcript import RoundTranscript
from eris.local.spec import Vector
from eris.privacy.masking import add_pad
from eris.seeds import Seed
from eris.shards.plan import Coordinates
from eris.transforms.packed import NO_SCALES
from eris.view import seen_shards, view_of

__all__ = ["Captured", "captured_by"]


class Captured(NamedTuple):
    """Values under pads: where, and what they would be if they were under none."""

    coordinates: Coordinates
    values: Vector

    @classmethod
    def nothing(cls) -> Captured:
        """Return what is captured of plain shards, where everything that is received can be read."""
        return cls(np.empty(0, np.int64), np.empty(0, np.float32))


def captured_by(vantage: Vantage, record: RoundTranscript, victim: int, pads: Seed, *, padded: bool = True) -> Captured:
    """Return what some aggregators received of a victim and cannot read, having none of the unmaskers among them.

    `padded` is for whoever wants to see that the pad is what protects: without it the values lie open.
    """
    sent = record.sent[victim]
    if not record.unmaskers or vantage.reach != "own" or not sent.limit:
        return Captured.nothing()
    received = seen_shards(sent.reached, record.assignment, vantage.peers, record.witnesses)
    hidden = tuple(shard for shard in received if shard not in vantage.shards(sent, *record.owners))
    view = view_of(replace(sent, reached=hidden), record.layout, record.assignment, set(record.assignment))
    code = Ring32(sent.limit, np.float32(sent.weight))
    words = code.encode(view.values).values
    if padded and hidden:
        add_pad(words, pads.child("pad", record.round, victim, *hidden).words(8).astype("<u4").tobytes())
    return Captured(view.coordinates, code.decode(words, NO_SCALES, None))
