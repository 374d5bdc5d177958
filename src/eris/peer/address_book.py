"""The address book: names, addresses and certificates of the other peers, as the coordinator knows them.

The coordinator is not believed. A certificate counts only if the federation's CA signed it for the name that the peer's
number has in FEDERATION.toml, and a link is made only with the key that the roster pins; otherwise the coordinator
could put a friend in somebody's place, who would then receive what was meant for that peer. An address counts only if
its peer signed it: a link to another one would tell its owner who talks to whom and when, though never what.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from eris.errors import Reason, Refused
from eris.privacy.masking import MaskKey, key_statement
from eris.protocol.messages import MANIFEST_PURPOSE, ShownKey
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.transport.calls import PLACE_PURPOSE, BookAnswer, BookRequest, PeerRecord
from eris.transport.credentials import Credentials
from eris.transport.signatures import verify_message
from eris.wire.schema import encode

__all__ = ["AddressBook"]

_LOG = logging.getLogger(__name__)
MASK_PURPOSE = "mask-key"


class AddressBook:
    """What this peer knows about the others; safe to use from many threads."""

    def __init__(self, credentials: Credentials, run: str = "", *, peers: Sequence[str], federation: str = "") -> None:
        """Start with an empty book.

        Args:
            credentials: ours: they sign for us, and say whose certificates count.
            run: the run that mask keys are signed for.
            peers: all names, by number, as FEDERATION.toml has them.
            federation: that file's digest, which signed addresses name.
        """
        self._federation = federation
        self._placed: dict[int, tuple[PeerRecord, int]] = {}  # records with a signed place, and its counter
        self._credentials, self.run, self._peers = credentials, run, tuple(peers)
        self._keys: set[tuple[int, bytes]] = set()  # mask keys that were signed by their owners
        self._lock = threading.Lock()
        self.begun = threading.Event()  # set with the first roster
        self._records: dict[int, PeerRecord] = {}
        self._certificates: dict[str, bytes] = {}  # by fingerprint, including peers that have gone since
        self._edition = "", 0  # the board it was read from, and how far
        self._roster: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._followed: tuple[RosterEntry, ...] = ()  # the roster that these two belong to
        self._complete: tuple[dict[int, PeerRecord], tuple[RosterEntry, ...]] = {}, ()  # records that lack nobody of it

    def learn(self, fetch: Callable[[BookRequest], BookAnswer]) -> None:
        """Fetch what is newer than what we have, leaving out records whose certificate is not good."""
        more = True
        while more:
            answer = fetch(BookRequest(*self._edition))
            good = [record for record in answer.records if self._is_good(record)]
            with self._lock:
                self._certificates |= {
                    self._credentials.identify(r.certificate).fingerprint: r.certificate for r in good
                }
                known = self._records if answer.board == self._edition[0] else {}
                records = known | {record.peer: record for record in good}
                self._records = {peer: record for peer, record in records.items() if peer in answer.present}
                if len(good) == len(answer.records):  # otherwise the same records are requested again next time
                    self._edition = answer.board, answer.edition
            more = answer.more and len(good) == len(answer.records)

    def _is_good(self, record: PeerRecord) -> bool:
        if record.peer >= len(self._peers) or record.name != self._peers[record.peer]:
            _LOG.error("the coordinator gives %s the number %d, which is another peer's", record.name, record.peer)
            return False
        return self._credentials.vouches_for(record.certificate, record.name)

    def knows_key(self, peer: int, key: bytes) -> bool:
        """Return whether a peer signed this mask key as its own, under the certificate that we have of it."""
        with self._lock:
            if (peer, key) in self._keys:
                return True
            record = self._records.get(peer)
            known = record is not None and (shown := record.mask_key) is not None and self._signed(record, shown, key)
            self._keys |= {(peer, key)} if known else set()  # a signature stays good when its peer restarts
            return known

    def _signed(self, record: PeerRecord, shown: ShownKey, key: bytes) -> bool:
        if bytes.fromhex(shown.key) != key:
            return False
        fingerprint = self._credentials.identify(record.certificate).fingerprint
        statement = key_statement(self.run, record.peer, fingerprint, key, shown.counter)
        return verify_message(record.certificate, MASK_PURPOSE, statement, bytes.fromhex(shown.signature))

    def shown(self, peer: int, key: MaskKey) -> ShownKey:
        """Return this peer's own mask key, signed."""
        statement = key_statement(self.run, peer, self._credentials.identity.fingerprint, key.public, key.counter)
        signature = self._credentials.sign(MASK_PURPOSE, statement).hex()
        return ShownKey(key.public.hex(), key.counter, signature)

    def lacks_keys(self, plan: RoundPlan) -> bool:
        """Whether the plan shows a mask key that, as far as this book knows, nobody signed."""
        return not all(self.knows_key(peer, key) for peer, key in plan.keys.items())

    def follow(self, plan: RoundPlan) -> None:
        """Take over a round's roster: whose links are welcome, and under which key."""
        with self._lock:
            if plan.roster is self._followed:
                return
            self._followed = plan.roster
            self._roster = {entry.name: entry.fingerprint for entry in plan.roster}
            self._numbers = {entry.name: entry.peer for entry in plan.roster}
        self.begun.set()

    def record(self, peer: int) -> PeerRecord | None:
        """Return what is known of a peer."""
        with self._lock:
            return self._records.get(peer)

    def place(self, peer: int) -> PeerRecord | None:
        """Return where a peer can be dialled; refuse a place that it did not sign or has since replaced.

        This is checked when a peer is dialled, not when the book is learned: of a thousand peers most never are.
        """
        with self._lock:
            record, (known, counter) = self._records.get(peer), self._placed.get(peer, (None, 0))
        if record is None or not record.reachable or record is known:
            return record
        claim, signature = encode(record.place(self._federation)), bytes.fromhex(record.signature)
        signed = verify_message(record.certificate, PLACE_PURPOSE, claim, signature)
        if not signed or record.counter < counter:
            what = "has replaced since" if signed else "did not sign"
            raise Refused(
                Reason.BAD_SIGNATURE,
                f"the address book has an address of {record.name} that {record.name} {what}",
                fix="nothing is sent there; the coordinator is not honest",
                peer=peer,
            )
        with self._lock:
            self._placed[peer] = record, record.counter
        return record

    def certificate(self, fingerprint: str) -> bytes | None:
        """Return the certificate with this key that the CA gave to a peer, if it was ever in the book."""
        with self._lock:
            return self._certificates.get(fingerprint)

    def lacks(self, plan: RoundPlan) -> bool:
        """Whether some roster member is missing from the book, or is there with another key."""
        with self._lock:
            records = self._records
        if self._complete[0] is records and self._complete[1] is plan.roster:  # already checked with the last plan
            return False
        known = {r.name: self._credentials.identify(r.certificate).fingerprint for r in records.values()}
        lacking = any(known.get(entry.name) != entry.fingerprint for entry in plan.roster)
        if not lacking:
            self._complete = records, plan.roster
        return lacking

    def roster(self) -> dict[str, str]:
        """Return names and fingerprints of the members; callers must not change it."""
        return self._roster  # replaced as a whole

    def number(self, name: str) -> int | None:
        """Return a member's number."""
        with self._lock:
            return self._numbers.get(name)

    def dialable(self, but: int) -> list[int]:
        """Return the peers that can be dialled, or called by a relay, all except `but`."""
        with self._lock:
            return [number for number, record in self._records.items() if record.reachable and number != but]

    def sign(self, message: bytes) -> str:
        """Sign a manifest, a receipt, a cut or sums of pads as this peer; return the signature in hex."""
        return self._credentials.sign(MANIFEST_PURPOSE, message).hex()

    def verify(self, peer: int, message: bytes, signature: str) -> bool:
        """Return whether a peer signed this message (`signature` is in hex), by the certificate that the book has."""
        record = self.record(peer)
        try:
            return record is not None and verify_message(
                record.certificate, MANIFEST_PURPOSE, message, bytes.fromhex(signature)
            )
        except (TypeError, ValueError):
            return False
