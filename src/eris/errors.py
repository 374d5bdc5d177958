"""Every way eris can fail, in one tree.

    ErisError
    ├── ConfigError        a setting is unknown, has the wrong type or conflicts with another
    ├── InputError         an array, weight or number that was passed in cannot be used
    │   ├── SpecError      tensors do not match the model spec
    │   └── PlanError      a shard plan is impossible or does not fit the vector
    ├── Refused            a message or plan was rejected; carries a typed `Reason`
    ├── FloorError         a round plan asks for more than this member is willing to show
    ├── DataError          a data set is missing, damaged or not what it claims to be
    ├── ModelError         a network cannot be trained, on this data or at all
    ├── TaskError          the user's own training code failed
    ├── CheckpointError    saved state is missing, damaged or belongs to another run
    ├── DiskError          the disk does not have enough space
    ├── RunStopped         the run ended early and says why (quorum lost, stopped by hand)
    ├── LinkError          a link between two peers failed or could not be opened (its tree: eris.transport.link)
    └── MissingExtra       an optional dependency is not installed

Each error says **what** happened, **where** (peer, round, shard, key) and **what to do**:

>>> print(InputError("weight is negative", fix="give a weight > 0", peer=3, round=7))
weight is negative [peer=3, round=7]: give a weight > 0
"""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "DiskError",
    "ErisError",
    "FloorError",
    "InputError",
    "MissingExtra",
    "ModelError",
    "PlanError",
    "Reason",
    "Refused",
    "RunStopped",
    "SpecError",
    "TaskError",
]


class ErisError(Exception):
    """A failure that eris can explain: what happened, where, and what to do about it."""

    def __init__(self, what: str, *, fix: str = "", **where: object) -> None:
        self.what, self.fix, self.where = what, fix, where
        place = f" [{', '.join(f'{key}={value}' for key, value in where.items())}]" if where else ""
        super().__init__(f"{what}{place}" + (f": {fix}" if fix else ""))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the keyword arguments too, so that an error survives its way back from a worker process."""
        return (_rebuild, (type(self), self.what, self.fix, self.where, self.__dict__))


def _rebuild(
    kind: type[ErisError], what: str, fix: str, where: dict[str, object], state: dict[str, object]
) -> ErisError:
    error = kind.__new__(kind)
    ErisError.__init__(error, what, fix=fix, **where)
    error.__dict__.update(state)
    return error


class ConfigError(ErisError):
    """A setting is unknown, has the wrong type or conflicts with another."""


class InputError(ErisError):
    """An array, weight or number that was passed in cannot be used."""


class SpecError(InputError):
    """Tensors do not match the model spec."""


class PlanError(InputError):
    """A shard plan is impossible or does not fit the vector."""


class Reason(StrEnum):
    """Why a message was rejected, in one word: the receiver counts it and tells the sender."""

    DUPLICATE = "duplicate"  # the same contribution again: harmless, and answered with the same receipt
    CONFLICT = "conflict"  # a different contribution from a member that has already contributed
    LATE = "late"  # the contribution was not complete when the shard was cut
    WRONG_VERSION = "wrong-version"  # another wire version: one of the two sides must be updated
    WRONG_RUN = "wrong-run"
    WRONG_EPOCH = "wrong-epoch"
    WRONG_ROUND = "wrong-round"
    WRONG_PLAN = "wrong-plan"
    WRONG_CHAIN = "wrong-chain"
    WRONG_SHARD = "wrong-shard"  # this peer does not own that shard in this round
    WRONG_SIZE = "wrong-size"
    WRONG_DIGEST = "wrong-digest"
    WRONG_SPEC = "wrong-spec"
    NOT_A_MEMBER = "not-a-member"  # the sender does not take part in this round
    NON_FINITE = "non-finite"
    OUT_OF_RANGE = "out-of-range"  # a value or sum that members within the fixed-point limit cannot produce
    MALFORMED = "malformed"
    NO_ROOM = "no-room"  # the receiver's disk is full
    TOO_FEW = "too-few"  # fewer contributors than min_contributors
    GONE = "gone"  # the aggregator cannot be reached
    RESTARTED = "restarted"  # the aggregator came back in mid-round, and never publishes a shard twice
    EQUIVOCATION = "equivocation"  # two different signed statements where an honest peer signs one
    FALSE_MANIFEST = "false-manifest"  # signed, but contradicts the plan it names: its author is excluded
    UNMASK = "unmask"  # the pads of a masked shard were not removed: no unmasker answered in time
    WRONG_PADS = "wrong-pads"  # the pads removed from a masked shard were not those of its contributions
    SUMMED_BEFORE = "summed-before"  # a second sum from the same state would reveal the values of few members
    REPLICAS_DIFFER = "replicas-differ"  # two aggregators of one shard published different means
    BAD_SIGNATURE = "bad-signature"


class Refused(ErisError):
    """A message or plan was rejected; `reason` says which rule it broke."""

    def __init__(self, reason: Reason, what: str, *, fix: str = "", **where: object) -> None:
        self.reason = reason
        super().__init__(f"refused ({reason.value}): {what}", fix=fix, **where)


class FloorError(ErisError):
    """A round plan asks for more than this member is willing to show."""


class DataError(ErisError):
    """A data set is missing, damaged or not what it claims to be."""


class ModelError(ErisError):
    """A network cannot be trained, on this data or at all."""


class TaskError(ErisError):
    """The user's own training code failed."""


class CheckpointError(ErisError):
    """Saved state is missing, damaged or belongs to another run."""


class DiskError(ErisError):
    """The disk does not have enough space."""


class RunStopped(ErisError):
    """The run ended early and says why."""


class MissingExtra(ErisError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f"{purpose} needs the package {package}", fix=f"pip install 'eris-fl[{extra}]'")
