"""The moments of a round, as they happen in a process: what fault tests act on, and a log for the curious.

plan        a member has accepted a round plan              chunk      one chunk of a part has left (j of m)
receipt     a part has arrived and was staged               cut        an aggregator has closed a shard
manifest    the coordinator has the manifest                served     a member has been sent a published shard
reported    a member has said what it holds                 stepped    a member has moved on the verdict
written     the coordinator's verdict is durable, unannounced
planned     the coordinator's plan is durable, unannounced   noted      the coordinator has heard a manifest or a report
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

__all__ = ["Moments"]

_LOG = logging.getLogger(__name__)


class Moments:
    """Passes moments on to one listener, in the thread and at the very point at which they happen.

    >>> moments = Moments()
    >>> moments.listener = lambda moment, facts: print(moment, facts)
    >>> moments("cut", round=3, shard=1)
    cut {'round': 3, 'shard': 1}
    """

    def __init__(self) -> None:
        self.listener: Callable[[str, dict[str, Any]], None] | None = None

    def __call__(self, moment: str, /, **facts: Any) -> None:
        """Tell of a moment."""
        _LOG.debug("%s %s", moment, facts)
        if self.listener is not None:
            self.listener(moment, facts)
