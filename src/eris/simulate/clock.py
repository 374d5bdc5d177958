"""A virtual clock: how long a round would take, from the bytes of every link and the rate of every peer.

A round distributes in two phases: contributions go up, published shards come down. In each a peer sends and receives at
the same time, and the phase lasts as long as its slowest peer needs. For equal rates R, K members that all aggregate
and messages of b' bytes up and b down, that is ((K−1)/K)·(b' + b)/R; for a server K·(b' + b)/R.

The time of the whole round includes local training. A member sends as soon as it has trained, so one that trains slowly
on a good link may be done before one that trains quickly on a bad link. If everybody trains equally long, a round takes
that time plus its distribution.

>>> links = Links.equal(members=2, up=10.0, down=10.0)
>>> links.phase(np.array([100, 0]), np.array([0, 100]))
10.0
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from eris.config import Network

__all__ = ["Links", "links_of"]

Bytes = NDArray[np.int64]
Rates = NDArray[np.float64]


@dataclass(frozen=True)
class Links:
    """Bytes per second that each peer can send and receive; a server, if there is one, comes last."""

    up: Rates
    down: Rates
    compute: Rates  # virtual seconds of local training

    @classmethod
    def equal(cls, members: int, *, up: float, down: float) -> Links:
        """Give every peer the same rates; training takes no time."""
        return cls(np.full(members, up), np.full(members, down), np.zeros(members))

    def of(self, peers: NDArray[np.int64]) -> Links:
        """Return the links of some peers alone, in their order."""
        return Links(self.up[peers], self.down[peers], self.compute[peers])

    def slowest_down(self, members: int, besides: NDArray[np.int64]) -> float:
        """Return the lowest receiving rate of all members that are not among `besides` (ascending)."""
        if self._equal:
            return float(self.down[0])
        first = self._by_rate[self._by_rate < members][: besides.size + 1]
        return float(self.down[first[~np.isin(first, besides)][0]])

    @cached_property
    def _equal(self) -> bool:
        return bool((self.down == self.down[0]).all())

    @cached_property
    def _by_rate(self) -> NDArray[np.int64]:
        return np.argsort(self.down, kind="stable")

    def phase(self, sent: Bytes, received: Bytes) -> float:
        """Return the seconds until the slowest peer has sent and received its bytes."""
        peers = sent.size
        return float(max((sent / self.up[:peers]).max(initial=0.0), (received / self.down[:peers]).max(initial=0.0)))

    def gathered(self, senders: Sequence[int], sent: Bytes, received: Bytes) -> float:
        """Return when everything has arrived; receivers begin with whoever has trained first.

        `senders` are the peers that train and send; `sent` and `received` are the bytes of every peer.
        """
        if not senders:
            return 0.0
        peers, trained = received.size, self.compute[list(senders)]
        sending = trained + sent[list(senders)] / self.up[list(senders)]
        return float(max(sending.max(), trained.min() + (received / self.down[:peers]).max()))

    def finished(self, member: int, sent: int) -> float:
        """Return when a member has trained and sent so many bytes."""
        return float(self.compute[member] + sent / self.up[member])


def links_of(network: Network, members: int, slow: Collection[int], slow_factor: float) -> Links:
    """Return the links of a configuration; a server's are as good as the best member's, and never slow.

    The `slow` members send, receive and train `slow_factor` times more slowly.
    """
    factor = np.ones(members + 1)
    factor[list(slow)] = slow_factor
    up, down = (np.append(each, max(each)) for each in (network.of_each(key, members) for key in ("up", "down")))
    return Links(up / factor, down / factor, np.append(network.of_each("compute", members), 0.0) * factor)
