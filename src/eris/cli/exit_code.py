"""What a command's exit code says; docs/exit-codes.md has a paragraph for each."""

from __future__ import annotations

from enum import IntEnum

from eris.errors import (
    CheckpointError,
    DataError,
    DiskError,
    ErisError,
    FloorError,
    MissingExtra,
    Refused,
    RunStopped,
    TaskError,
)

__all__ = ["ExitCode", "code_of", "code_of_end"]


class ExitCode(IntEnum):
    """How a command ended."""

    FINISHED = 0
    FAILED = 1  # a defect of eris: a traceback says where
    USAGE = 2  # an option, a setting or a file is wrong
    UNREACHABLE = 10
    TURNED_AWAY = 11  # by certificate
    REFUSED = 12  # by the rules of the run
    BELOW_FLOOR = 13
    STOPPED = 14
    TASK_FAILED = 15
    CHECKPOINT = 16
    NO_DATA = 17
    MISSING_EXTRA = 18
    MODELS_DIFFER = 19
    PEER_FAILED = 20
    UNHEALTHY = 21  # what `eris doctor` and `eris join --check` found
    NO_ROOM = 22
    OUT_OF_MEMORY = 23
    STOPPED_BY_HAND = 24  # not 14, or a supervisor would start the peer again at once
    NO_PLAN = 25  # no plan reaches the target that `eris plan` was given
    NO_PROGRESS = 26  # rounds were played, and nothing came of them
    INTERRUPTED = 130


_CODES: tuple[tuple[type[ErisError], ExitCode], ...] = (
    (Refused, ExitCode.REFUSED),
    (FloorError, ExitCode.BELOW_FLOOR),
    (RunStopped, ExitCode.STOPPED),
    (TaskError, ExitCode.TASK_FAILED),
    (CheckpointError, ExitCode.CHECKPOINT),
    (DataError, ExitCode.NO_DATA),
    (DiskError, ExitCode.NO_ROOM),
    (MissingExtra, ExitCode.MISSING_EXTRA),
)


def code_of(error: ErisError) -> ExitCode:
    """Return the exit code of an error.

    >>> code_of(TaskError("the loss is not a number")).name
    'TASK_FAILED'
    """
    from eris.transport.link import LinkError, LinkRefused

    if isinstance(error, LinkError):
        return ExitCode.TURNED_AWAY if isinstance(error, LinkRefused) else ExitCode.UNREACHABLE
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.USAGE)


def code_of_end(ended: str) -> ExitCode:
    """Return the exit code of how a run ended for a peer or for the coordinator.

    >>> code_of_end("stopped by birch").name
    'STOPPED_BY_HAND'
    """
    from eris.events import NO_PROGRESS

    if ended.startswith(NO_PROGRESS):
        return ExitCode.NO_PROGRESS
    if ended in ("finished", "left"):
        return ExitCode.FINISHED
    return ExitCode.STOPPED_BY_HAND if ended.startswith("stopped by ") else ExitCode.STOPPED
