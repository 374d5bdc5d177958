"""Compressors and the transform that applies one.

A compressor turns a vector into a `Packed`. It says whether it is unbiased and with which variance constant ω
(E‖C(x) − x‖² ≤ ω‖x‖²), whether the receiver can redraw its support (then no index travels), and whether its result is
independent of the shard plan (then any number of aggregators gives the same bits as one).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from eris.errors import ConfigError
from eris.local.spec import Vector
from eris.seeds import Seed
from eris.shards.plan import Coordinates, ShardPlan
from eris.transforms.kept import Blocks
from eris.transforms.packed import Code, Packed
from eris.transforms.transform import SendContext, Transform

__all__ = [
    "Compress",
    "CompressesBlocks",
    "CompressesDifference",
    "Compressor",
    "DenseCompressor",
    "OneMask",
    "require_compressor",
]


class Compressor(Protocol):
    """Makes a vector smaller."""

    @property
    def unbiased(self) -> bool:
        """Whether E C(x) = x."""
        ...

    @property
    def contractive(self) -> bool:
        """Whether E‖C(x) − x‖² ≤ (1 − δ)‖x‖² for some δ > 0: what a biased compressor needs behind a shift (EF21)."""
        ...

    @property
    def plan_invariant(self) -> bool:
        """Whether the result is the same for every shard plan."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether it drops coordinates (a median of such messages means nothing)."""
        ...

    @property
    def shared_support(self) -> bool:
        """Whether all members keep the same coordinates in a round (then the published mean is as short)."""
        ...

    def omega(self, n: int) -> float | None:
        """Return the variance constant for vectors of length n, None if biased."""
        ...

    def code(self, tensor_sizes: tuple[int, ...]) -> Code:
        """Return how values are written; both ends build the same one."""
        ...

    def support(self, shard: int, plan: ShardPlan, public: Seed, mask_key: bytes) -> Coordinates | None:
        """Return the coordinates of this shard that a message carries, as the receiver redraws them.

        None: all of them. Compressors whose support depends on the data (it travels with the message) raise Refused.

        Args:
            shard: its number.
            plan: the round's shard plan.
            public: the round's public seed, from which shared masks are drawn.
            mask_key: the secret of a member and an aggregator in the message; empty where masks are shared.
        """
        ...

    def compress(self, vector: Vector, context: SendContext) -> Packed:
        """Return the packed vector. Must not change `vector`."""
        ...


@runtime_checkable
class CompressesDifference(Protocol):
    """A compressor that touches few coordinates, and so can compress a difference without forming it."""

    def compress_difference(self, update: Vector, reference: Vector, context: SendContext) -> Packed:
        """Return the same bits as `compress(update - reference, context)`."""
        ...


@runtime_checkable
class OneMask(Protocol):
    """A compressor that draws one mask for the whole vector, whatever the shards (if it is plan-invariant)."""

    def mask(self, n: int, public: Seed) -> Coordinates | None:
        """Return the coordinates kept in a round, ascending; None: all."""
        ...


@runtime_checkable
class CompressesBlocks(Protocol):
    """A compressor that looks at each coordinate alone and keeps few: the vector may come in blocks."""

    def compress_blocks(self, blocks: Blocks, n: int, reference: Vector | None, context: SendContext) -> Packed:
        """Return the same bits as `compress(vector - reference, context)` (or `vector`, without a reference)."""
        ...


class DenseCompressor:
    """What compressors that keep every coordinate have in common."""

    plan_invariant = True
    sparse = False
    shared_support = True

    def support(self, shard: int, plan: ShardPlan, public: Seed, mask_key: bytes) -> Coordinates | None:
        """Return None: all coordinates of the shard."""
        del shard, plan, public, mask_key
        return None


def require_compressor(value: Compressor) -> Compressor:
    """Return the value if it is a compressor; refuse anything else before a round has begun."""
    if not hasattr(value, "compress"):
        raise ConfigError(f"{value!r} is not a compressor", fix="use one such as rand_k(0.01) or identity()")
    return value


class Compress(Transform):
    """Apply a compressor, without a shift."""

    only_sums = True  # if its compressor does: see `check_fixed_point`

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = require_compressor(compressor)
        self.needs_linear_rule = compressor.sparse

    def __repr__(self) -> str:
        return repr(self.compressor)

    def outgoing(self, update: Vector, context: SendContext) -> Packed:
        """Compress the update."""
        return self.compressor.compress(update, context)

    def outgoing_blocks(self, blocks: Blocks, n: int, context: SendContext) -> Packed:
        """Compress an update that comes in blocks."""
        assert isinstance(self.compressor, CompressesBlocks)
        return self.compressor.compress_blocks(blocks, n, None, context)
