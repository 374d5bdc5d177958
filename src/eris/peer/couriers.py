"""All couriers of a peer: one for each other peer it has had to talk to."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import replace

from eris.aggregate.shelf import Shelf
from eris.events import RoleBytes
from eris.peer.account import Account
from eris.peer.book import Book
from eris.peer.courier import Courier, Result
from eris.peer.moments import Moments
from eris.peer.under_way import UnderWay
from eris.protocol.recipe import Recipe
from eris.transport.link import LinkLimits
from eris.transport.tls_link import Security

__all__ = ["Couriers"]


class Couriers:
    """Opens couriers as they are needed; what they bring is in `results`."""

    def __init__(
        self, book: Book, security: Security, recipe: Recipe, limits: LinkLimits, moments: Moments, shelf: Shelf
    ) -> None:
        self._book, self._security, self._recipe = book, security, recipe
        self._limits, self._moments, self._shelf = limits, moments, shelf
        self._couriers: dict[int, Courier] = {}
        self.under_way = UnderWay()
        self.results: queue.Queue[Result] = queue.Queue()

    def to(self, peer: int) -> Courier:
        """Return the courier to a peer."""
        if peer not in self._couriers:
            self._couriers[peer] = Courier(
                peer,
                self._book,
                self._security,
                self._recipe,
                self._limits,
                self.results.put,
                self._moments,
                self._shelf,
                self.under_way,
            )
        return self._couriers[peer]

    def accounts(self, names: Sequence[str]) -> list[Account]:
        """Return what went over links this peer dialled, for each aggregator."""
        return [replace(courier.account, peer=names[number]) for number, courier in sorted(self._couriers.items())]

    def carried(self) -> RoleBytes:
        """Return the bytes sent and received so far, without asking the kernel."""
        carried = [courier.carried for courier in self._couriers.values()]
        return RoleBytes(sum(sent for sent, _ in carried), sum(heard for _, heard in carried))

    def close(self) -> None:
        """End all threads and links."""
        for courier in self._couriers.values():
            courier.close()
