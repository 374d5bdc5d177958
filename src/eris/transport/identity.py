"""The identity of the peer at the other end of a link, and the reasons for refusing it.

Identity is the certificate: NAME.FEDERATION under the federation's CA, plus the fingerprint that the roster pins for
that name. Host and address say nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["PeerIdentity", "Refusal", "refusal_of"]


class Refusal(StrEnum):
    """Why a link was refused: a one-word reason sent to the other side; the log also names the peer."""

    NOT_TLS = "not-tls"  # plain text, or a TLS version below 1.3
    NO_CERTIFICATE = "no-certificate"
    UNKNOWN_CA = "unknown-ca"  # a stranger, or a peer of another federation
    EXPIRED = "expired"
    NOT_YET_VALID = "not-yet-valid"  # one of the two clocks is wrong
    REVOKED = "revoked"
    WRONG_FEDERATION = "wrong-federation"  # the CA is ours, but none of the certificate's names is
    WRONG_NAME = "wrong-name"  # a peer other than the dialled one answered
    WRONG_FINGERPRINT = "wrong-fingerprint"  # the name is on the roster with another key
    NOT_ON_ROSTER = "not-on-roster"
    WRONG_VERSION = "wrong-version"  # of the link protocol
    BUSY = "busy"
    BAD_CERTIFICATE = "bad-certificate"  # anything else the TLS library objects to


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """One peer as its certificate shows it."""

    name: str  # empty: none of its names lies in the federation
    federation: str = ""
    fingerprint: str = ""  # sha256 of the public key, hex
    serial: int = 0  # by which the CA revokes it
    not_before: float = float("-inf")  # seconds since 1970
    not_after: float = float("inf")
    certificate: bytes = field(default=b"", repr=False)  # DER; whoever must verify a signature needs it
    address: str = field(default="", compare=False)  # where it calls from, if known; proves nothing

    def __str__(self) -> str:
        return f"{self.name or '?'}.{self.federation or '?'} ({self.fingerprint[:12] or 'no key'})"


def refusal_of(
    peer: PeerIdentity, *, now: float, expected: str | None = None, roster: Mapping[str, str] | None = None,
    revoked: Collection[int] = (),
) -> Refusal | None:  # fmt: skip
    """Return why a peer whose chain is good must still be refused; None if it is welcome.

    Call it again on a link that is kept over rounds: a certificate may expire or be revoked meanwhile.

    Args:
        now: seconds since 1970.
        expected: the name that was dialled.
        roster: name → fingerprint.
        revoked: serials of withdrawn certificates.

    >>> refusal_of(PeerIdentity("alice", fingerprint="ab"), now=0.0, roster={"alice": "cd"})
    <Refusal.WRONG_FINGERPRINT: 'wrong-fingerprint'>
    """
    if not peer.name:
        return Refusal.WRONG_FEDERATION
    if peer.serial in revoked:
        return Refusal.REVOKED
    if now > peer.not_after:
        return Refusal.EXPIRED
    if now < peer.not_before:
        return Refusal.NOT_YET_VALID
    if expected is not None and peer.name != expected:
        return Refusal.WRONG_NAME
    if roster is None:
        return None
    if peer.name not in roster:
        return Refusal.NOT_ON_ROSTER
    # An empty fingerprint pins nothing and therefore admits nobody.
    pinned = roster[peer.name]
    return None if pinned and pinned == peer.fingerprint else Refusal.WRONG_FINGERPRINT
