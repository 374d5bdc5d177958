"""What some transforms can do beyond their two halves: each capability is a protocol of one method.

Write the method and the chain calls it; there is nothing to inherit or declare.

States are dictionaries of vectors that are changed in place, never replaced, so that they can be stored in memory or in
a mapped file. **Private** state belongs to one member (its reference s_k, what it withheld).
**Public** state is the same at every peer, because it follows from what was published (the reference s). On the way out
a transform finds its states in the context, on the way back in the mean. Nothing moves before the round's verdict:
`settle` advances private state, `incoming` public state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from eris.local.spec import Vector
from eris.transforms.compress import Compressor
from eris.transforms.kept import Blocks
from eris.transforms.packed import Packed
from eris.transforms.transform import Accepted, SendContext, State, Transform

if TYPE_CHECKING:
    from eris.privacy.accountant import Epsilon  # for the type checker only

__all__ = [
    "AddsNoise",
    "BeginsEpochs",
    "BoundsNorm",
    "ChangesStart",
    "ChecksChain",
    "ChecksLength",
    "Drifts",
    "KeepsPrivateState",
    "KeepsPublicState",
    "Packs",
    "PacksBlocks",
    "Settles",
    "SettlesUpdate",
]

# ── state ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@runtime_checkable
class KeepsPrivateState(Protocol):
    """A transform for which a member keeps state from round to round."""

    def private_state(self, n: int) -> State:
        """Return a member's initial private state."""
        ...


@runtime_checkable
class KeepsPublicState(Protocol):
    """A transform for which all peers keep the same state."""

    def public_state(self, n: int) -> State:
        """Return the initial state that all peers share."""
        ...


@runtime_checkable
class Settles(Protocol):
    """A transform whose private state advances with what was sent."""

    def settle(self, sent: Vector | Packed, private: State, accepted: Accepted) -> None:
        """Advance the member's state after the verdict; `sent` came out of `outgoing`.

        `private` is changed in place, on the `accepted` coordinates only.
        """
        ...


@runtime_checkable
class SettlesUpdate(Protocol):
    """A transform whose private state advances with its input as well.

    Rare, because a member then holds one more vector while it waits for the verdict.
    """

    def settle_update(self, update: Vector, sent: Vector | Packed, private: State, accepted: Accepted) -> None:
        """Advance the member's state after the verdict; `update` went into `outgoing`, `sent` came out.

        `private` is changed in place, on the `accepted` coordinates only.
        """
        ...


@runtime_checkable
class BeginsEpochs(Protocol):
    """A transform whose private state only holds for fixed members and weights."""

    def new_epoch(self, private: State, public: State) -> None:
        """Begin a reference epoch: forget what only held for the old members and weights."""
        ...


@runtime_checkable
class ChangesStart(Protocol):
    """A transform that makes a member start its local training from another model than the common one."""

    def start(self, model: Vector, private: State) -> None:
        """Change, in place, the model this member trains from; its update is then measured from the changed one."""
        ...


@runtime_checkable
class Drifts(Protocol):
    """A transform that estimates how a member's gradients drift from those of all members."""

    def drift(self, private: State, public: State) -> Vector:
        """Return what is to be added to each of the member's local gradients in this round."""
        ...


# ── the end of a chain ───────────────────────────────────────────────────────────────────────────────────────────────


@runtime_checkable
class Packs(Protocol):
    """A transform that ends a chain: its `outgoing` returns a `Packed`."""

    @property
    def compressor(self) -> Compressor:
        """What a receiver needs to unpack."""
        ...


@runtime_checkable
class PacksBlocks(Packs, Protocol):
    """A transform that can take the update in blocks, if its compressor can."""

    def outgoing_blocks(self, blocks: Blocks, n: int, context: SendContext) -> Packed:
        """Do the same as `outgoing` for an update of n values that comes in blocks."""
        ...


# ── what is refused before a round has begun ─────────────────────────────────────────────────────────────────────────


@runtime_checkable
class ChecksChain(Protocol):
    """A transform that cannot follow just any other."""

    def check(self, before: Sequence[Transform]) -> None:
        """Refuse a chain in which this transform cannot follow those `before` it."""
        ...


@runtime_checkable
class ChecksLength(Protocol):
    """A transform whose settings depend on how long updates are."""

    def check_length(self, n: int) -> None:
        """Refuse settings that cannot work for vectors of n values."""
        ...


# ── privacy ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@runtime_checkable
class BoundsNorm(Protocol):
    """A transform that noise may follow."""

    def norm_bound(self, before: float | None) -> float | None:
        """Return the largest ℓ2 norm of what comes out if that of what goes in is `before` (None: unbounded)."""
        ...


@runtime_checkable
class AddsNoise(Protocol):
    """A transform that a privacy claim rests on, so nothing may bypass it."""

    def spent(self, rounds: int, delta: float) -> Epsilon:
        """Return what a member has spent after sending an update in `rounds` rounds."""
        ...
