"""Named points of a round at which fault tests strike.

For tests only: to learn how a run goes, listen to its events (`eris.events`), which say what happened; a fault point
says where in the code a process is.

plan        a member has accepted a round plan              chunk      one chunk of a part has left (j of m)
receipt     a part has arrived and was staged               cut        an aggregator has closed a shard
manifest    the coordinator has the manifest                served     a member has been sent a published shard
reported    a member has said what it holds                 stepped    a member has moved on the verdict
written     the coordinator's verdict is durable, unannounced
settled     enough peers have the verdict on disk, and none has heard so (with standbys)
planned     the coordinator's plan is durable, unannounced   noted      the coordinator has heard a manifest or a report
shown       an unmasker has been shown a cut                 unmasked   it has added the pads up, and not yet answered
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

__all__ = ["FaultPoints"]

_LOG = logging.getLogger(__name__)


class FaultPoints:
    """Calls one listener in the running thread, at the very point the code passes.

    >>> points = FaultPoints()
    >>> points.listener = lambda point, facts: print(point, facts)
    >>> points("cut", round=3, shard=1)
    cut {'round': 3, 'shard': 1}
    """

    def __init__(self) -> None:
        self.listener: Callable[[str, dict[str, Any]], None] | None = None

    def __call__(self, point: str, /, **facts: Any) -> None:
        """Report that a point is passed."""
        _LOG.debug("%s %s", point, facts)
        if self.listener is not None:
            self.listener(point, facts)
