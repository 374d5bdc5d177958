"""Check contributions and put them in the order in which every rule reads them: ascending member id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from eris.aggregate.rule import Contribution
from eris.errors import InputError
from eris.local.spec import Vector, as_vector

__all__ = ["BLOCK", "blocks", "in_order"]

BLOCK = 1 << 15  # values worked on at a time: a block and its scratch stay in the second-level cache


def blocks(n: int) -> Iterator[slice]:
    """Cut n coordinates into stretches of at most BLOCK."""
    return (slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK))


def in_order(contributions: Sequence[Contribution], out: Vector) -> list[Contribution]:
    """Return the contributions in ascending member id; refuse what cannot be folded, before `out` is touched."""
    as_vector(out, out.size, what="out")
    ordered = sorted(contributions, key=lambda contribution: contribution.member)
    if not ordered:
        raise InputError("there is nothing to fold", fix="mark a shard without contributions as lost")
    for before, after in pairwise(ordered):
        if before.member == after.member:
            raise InputError("a member contributes twice", fix="stage one contribution per member", member=after.member)
    for contribution in ordered:
        _check(contribution, out.size)
    return ordered


def _check(contribution: Contribution, n: int) -> None:
    member, weight, positions = contribution.member, contribution.weight, contribution.positions
    if not (np.isfinite(weight) and 0 <= weight <= 1):
        raise InputError(f"weight is {weight}", fix="use weights normalised over the whole roster", member=member)
    as_vector(contribution.values, n if positions is None else positions.size, what=f"contribution of member {member}")
    if positions is not None and positions.size and not (positions[0] >= 0 and positions[-1] < n):
        raise InputError(
            f"positions lie outside a shard of {n} values",
            fix="use ascending positions inside the shard",
            member=member,
        )
