"""The dialling side of a peer: one thread and one kept link for each aggregator.

A courier carries this member's parts to one aggregator, waits for what it publishes, and brings that back. It also
fetches shards by hash and snapshots, from any peer that can be dialled.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from eris.aggregate.shelf import Shelf
from eris.errors import Reason, Refused
from eris.peer import letters
from eris.peer.account import Account
from eris.peer.book import Book
from eris.peer.moments import Moments
from eris.peer.under_way import UnderWay
from eris.protocol.member import Snapshot
from eris.protocol.messages import Manifest, Published, Upload
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.transport.identity import PeerIdentity
from eris.transport.link import LinkError, LinkLimits, Traffic
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import Plaintext, Security, dial

__all__ = ["Courier", "Errand", "Result"]

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds between two tries to reach a peer


@dataclass(frozen=True, slots=True)
class Errand:
    """What a courier does for one round."""

    plan: RoundPlan
    uploads: tuple[Upload, ...]  # empty for a member that does not train in this round
    shards: tuple[int, ...]
    deadline: float


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one shard: published, or the reason why not."""

    plan: str
    shard: int
    peer: int  # who aggregates it
    published: Published | None = None
    manifest: Manifest | None = None  # alone, from the second aggregator of a shard
    reason: Reason | None = None  # the aggregator's word; None if the link failed
    refused_upload: Reason | None = None


class Courier:
    """Talks to one peer."""

    def __init__(
        self,
        peer: int,
        book: Book,
        security: Security,
        recipe: Recipe,
        limits: LinkLimits,
        deliver: Callable[[Result], None],
        moments: Moments | None = None,
        shelf: Shelf | None = None,
        under_way: UnderWay | None = None,
    ) -> None:
        self.peer, self._book, self._security, self._recipe = peer, book, security, recipe
        self._limits, self._deliver, self._moments = limits, deliver, moments or Moments()
        self._shelf, self._under_way = shelf or Shelf(), under_way or UnderWay()
        self._link: StreamLink | None = None
        self._past = Account(str(peer))
        self._turn = threading.Lock()
        self._errands: queue.Queue[Errand | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=f"eris-courier {peer}", daemon=True)
        self._thread.start()

    def go(self, errand: Errand) -> None:
        """Send the courier off; results come through `deliver`."""
        self._errands.put(errand)

    def fetch(self, digest: str, round: int, deadline: float) -> Published:
        """Return a published shard of a round by its hash."""
        with self._turn, _Closing(self):
            link = self._connected()
            letters.ask(link, {"hash": digest}, deadline)
            return letters.receive_published(link, self._recipe, deadline, round=round, shelf=self._shelf)

    def snapshot(self, sizes: dict[str, int], deadline: float) -> Snapshot:
        """Return where the other peer stands."""
        with self._turn, _Closing(self):
            link = self._connected()
            letters.ask(link, {"snapshot": True}, deadline)
            return letters.receive_snapshot(link, sizes, deadline, shelf=self._shelf)

    @property
    def account(self) -> Account:
        """What has gone over this courier's links."""
        return self._past.plus(self._link)

    @property
    def carried(self) -> tuple[int, int]:
        """Bytes sent and received so far, without asking the kernel."""
        now = self._link.traffic if self._link is not None else Traffic()
        return self._past.sent + now.sent, self._past.received + now.received

    def close(self) -> None:
        """End thread and link."""
        self._errands.put(None)
        link = self._link
        if link is not None:
            link.close()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while (errand := self._errands.get()) is not None:
            open_shards = dict.fromkeys(errand.shards)
            pause = _FIRST_PAUSE
            while open_shards and not self._try(errand, open_shards):
                if not self._errands.empty() or time.monotonic() + pause >= errand.deadline:
                    break  # the next round, or the end of this one, is there: nobody waits for this any more
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            for shard in open_shards:
                self._deliver(Result(errand.plan.digest, shard, self.peer))
            del errand  # its parts are as long as our update: the next round wants that memory before the next errand

    def _try(self, errand: Errand, open_shards: dict[int, None]) -> bool:
        """Go once; a link that breaks is dialled anew, and what has arrived before is not sent twice in vain."""
        try:
            with self._turn, _Closing(self):
                self._carry(errand, open_shards)
        except LinkError as error:
            _LOG.info("round %d: peer %d: %s", errand.plan.round, self.peer, error)
            return False
        except Refused as error:
            _LOG.warning("round %d: peer %d: %s", errand.plan.round, self.peer, error)
        except Exception:  # noqa: BLE001 - a full disk, for one; without its thread every round would wait for it
            _LOG.exception("round %d: peer %d: the errand failed", errand.plan.round, self.peer)
            return False
        finally:
            self._under_way.arrived(errand.plan.digest, self.peer)
        return True

    def _carry(self, errand: Errand, open_shards: dict[int, None]) -> None:
        link = self._connected()
        parts = [upload for upload in errand.uploads if upload.shard in open_shards]
        shards = list(open_shards)
        for upload in parts:
            letters.send_upload(link, upload, self._recipe, errand.deadline, self._moments, more=True)
        for shard in shards:  # asked at once: the answer leaves the moment it is known, with no word between
            self._ask(link, errand, shard, more=shard != shards[-1])
        refused = {upload.shard: self._hear_receipt(link, upload, errand.deadline) for upload in parts}
        self._under_way.arrived(errand.plan.digest, self.peer)
        for shard in shards:
            result = self._collect(link, errand, shard, refused.get(shard))
            open_shards.pop(shard)
            self._deliver(result)

    def _ask(self, link: StreamLink, errand: Errand, shard: int, *, more: bool) -> None:
        plan = errand.plan
        if plan.assignment[shard] == self.peer:
            letters.ask_for_shard(link, plan, shard, errand.deadline, more=more)
        else:  # it only witnesses: its manifest, without values
            place = {"plan": plan.digest, "epoch": plan.epoch, "round": plan.round, "shard": shard}
            letters.ask(link, {**place, "alone": True}, errand.deadline, more=more)

    def _hear_receipt(self, link: StreamLink, upload: Upload, deadline: float) -> Reason | None:
        try:
            letters.receive_receipt(link, deadline)
        except Refused as refusal:
            _LOG.warning("round %d: peer %d refused our part: %s", upload.round, self.peer, refusal)
            return refusal.reason
        self._moments("receipt", round=upload.round, shard=upload.shard)
        return None

    def _collect(self, link: StreamLink, errand: Errand, shard: int, refused: Reason | None) -> Result:
        result = partial(Result, errand.plan.digest, shard, self.peer, refused_upload=refused)
        try:
            if errand.plan.assignment[shard] != self.peer:
                return result(manifest=letters.receive_manifest(link, errand.deadline, round=errand.plan.round))
            published = letters.receive_published(
                link, self._recipe, errand.deadline, round=errand.plan.round, shelf=self._shelf
            )
        except Refused as refusal:
            if refusal.reason in (Reason.MALFORMED, Reason.WRONG_SIZE, Reason.WRONG_ROUND):
                raise
            return result(reason=refusal.reason)
        return result(published=published)

    def _connected(self) -> StreamLink:
        if self._link is not None and not self._link.worn and self._is_welcome(self._link.peer):
            return self._link
        self._drop()
        page = self._book.page(self.peer)
        if page is None or page.address is None:
            raise Refused(Reason.NOT_A_MEMBER, "this peer has no address", peer=self.peer)
        fingerprint = self._book.roster().get(page.name)
        self._link = dial(
            page.address, self._security, expected=page.name, limits=self._limits, fingerprint=fingerprint
        )
        return self._link

    def _is_welcome(self, peer: PeerIdentity) -> bool:
        """Whether a peer that was welcome when it was dialled still is."""
        if isinstance(self._security, Plaintext):
            return True
        return self._security.refusal(peer, roster=self._book.roster()) is None

    def _drop(self) -> None:
        link = self._link
        if link is not None:
            link.close()
            self._past, self._link = self._past.plus(link), None


class _Closing:
    """After an error a link is of no more use: the next errand dials anew."""

    def __init__(self, courier: Courier) -> None:
        self._courier = courier

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._courier._drop()
