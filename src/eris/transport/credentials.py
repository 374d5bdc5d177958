"""A peer's credentials: a folder with its key, its certificate, the federation's CA, and what the CA has revoked.

    key.pem            0600; never leaves this machine
    certificate.pem    NAME.FEDERATION, signed by the CA
    ca.pem             the CA's certificate, which this peer trusts; while the CA is replaced, the old one's too
    revoked.pem        optional: certificates the CA has withdrawn, signed by it

`refresh` picks up new files while the peer runs, so a renewed certificate or a revocation needs no restart.
"""

from __future__ import annotations

import logging
import os
import ssl
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from eris.atomic_file import write_atomically
from eris.errors import ConfigError, ErisError
from eris.transport.certificates import (
    PrivateKey,
    federation_of,
    identity_of,
    is_issued_by,
    read_certificate,
    read_certificates,
    read_key,
)
from eris.transport.identity import PeerIdentity, Refusal, refusal_of
from eris.transport.revocations import Revocations
from eris.transport.signatures import sign_message

if TYPE_CHECKING:
    from cryptography import x509

__all__ = [
    "CERTIFICATE",
    "EXPIRY_WARNING_DAYS",
    "KEY",
    "REVOKED",
    "ROOT",
    "Credentials",
    "issued_to",
    "read_file",
    "read_private",
]

KEY, CERTIFICATE, ROOT, REVOKED = "key.pem", "certificate.pem", "ca.pem", "revoked.pem"
EXPIRY_WARNING_DAYS = 30
_DAY = 86_400.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Loaded:
    """The folder's files at one moment, checked for consistency."""

    stamp: tuple[object, ...]  # changes when a file does
    authorities: tuple[x509.Certificate, ...] = field(repr=False)
    key: PrivateKey = field(repr=False)
    identity: PeerIdentity
    revocations: Revocations
    server: ssl.SSLContext = field(repr=False)  # for links that are accepted
    client: ssl.SSLContext = field(repr=False)  # for links that are dialled

    def knowing(self, before: _Loaded) -> _Loaded:
        """Return the same with the earlier revocation list, if that is newer: it may have come in a message only."""
        same = not set(before.authorities).isdisjoint(self.authorities)
        newer = same and before.revocations.number > self.revocations.number
        return replace(self, revocations=before.revocations) if newer else self


class Credentials:
    """A peer's own identity, whom it trusts, and the TLS contexts made from both."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._lock = threading.Lock()
        self._now = _load(self.folder)
        self.edition = 1  # rises when files are picked up, so that users of the old ones know to rebuild
        self._warned = -_DAY

    def __repr__(self) -> str:
        return f"Credentials({self.identity})"

    @property
    def identity(self) -> PeerIdentity:
        """Who this peer is."""
        return self._now.identity

    @property
    def name(self) -> str:
        """This peer's name."""
        return self.identity.name

    @property
    def federation(self) -> str:
        """The federation's name."""
        return self.identity.federation

    @property
    def revocations(self) -> Revocations:
        """What the CA has withdrawn, as far as this peer knows."""
        return self._now.revocations

    @property
    def days_left(self) -> float:
        """Days until the certificate expires."""
        return (self.identity.not_after - time.time()) / _DAY

    def expiry_warning(self) -> str | None:
        """Return a sentence if the certificate expires within 30 days."""
        if self.days_left > EXPIRY_WARNING_DAYS:
            return None
        when = "has expired" if self.days_left <= 0 else f"expires in {self.days_left:.0f} days"
        return f"the certificate of {self.identity} {when}: renew it with `eris certs renew` (no restart needed)"

    def context(self, *, server_side: bool) -> ssl.SSLContext:
        """Return the TLS context made from the newest files."""
        return self._now.server if server_side else self._now.client

    def new_context(self, *, server_side: bool, protocols: Sequence[str] = ()) -> ssl.SSLContext:
        """Return a new TLS context that offers these application protocols (ALPN)."""
        context = _context(self.folder, ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(list(protocols))
        return context

    def identify(self, certificate: bytes) -> PeerIdentity:
        """Return whose certificate (DER) this is in this federation."""
        return _identity(certificate, self.federation)

    def vouches_for(self, certificate: bytes, name: str) -> bool:
        """Return whether a CA we trust issued this certificate (DER) to that peer, and it is valid now."""
        return self.issued(name, certificate) and self.refusal(self.identify(certificate), expected=name) is None

    def issued(self, name: str, certificate: bytes) -> bool:
        """Return whether a CA we trust issued this certificate (DER) to that peer, whether or not it is still valid."""
        return issued_to(name, certificate, self._now.authorities)

    def refusal(
        self, peer: PeerIdentity, *, expected: str | None = None, roster: Mapping[str, str] | None = None
    ) -> Refusal | None:
        """Return why a peer must be refused now, or None; ask again once a round for links that are already open.

        Args:
            expected: the name that was dialled.
            roster: name → pinned fingerprint.
        """
        revoked = self.revocations.serials
        return refusal_of(peer, now=time.time(), expected=expected, roster=roster, revoked=revoked)

    def sign(self, purpose: str, message: bytes) -> bytes:
        """Sign a message with this peer's key."""
        return sign_message(self._now.key, purpose, message)

    def read(self, file: str) -> bytes:
        """Return the bytes of one of the folder's files (gRPC takes PEM)."""
        return (self.folder / file).read_bytes()

    def refresh(self) -> bool:
        """Pick up files that changed; while the new ones are incomplete or invalid, keep the old ones."""
        with self._lock:
            self._warn_daily()
            if _stamp(self.folder) == self._now.stamp:
                return False
            try:
                self._now = _load(self.folder).knowing(self._now)
            except (ErisError, OSError) as error:
                _LOG.warning("new files in %s are not used yet: %s", self.folder, error)
                return False
            self.edition += 1
            _LOG.info("new files in %s are used from now on: %s", self.folder, self.identity)
            return True

    def _warn_daily(self) -> None:
        """Warn once a day that the certificate is about to expire; this runs with every link and call."""
        now = time.monotonic()
        if now >= self._warned + _DAY and (warning := self.expiry_warning()):
            self._warned = now
            _LOG.warning("%s", warning)

    def adopt_revocations(self, data: bytes) -> bool:
        """Keep a revocation list sent to us if the CA signed it and it is newer than ours; return whether it was."""
        listing = Revocations.read(data, *self._now.authorities, where="message")
        with self._lock:
            if listing.number <= self.revocations.number:
                return False
            self._now = replace(self._now, revocations=listing)
        try:
            write_atomically(self.folder / REVOKED, data)
        except ErisError as error:  # credential folders are often read-only
            _LOG.warning("the new revocation list holds until this process ends: %s", error)
        self.refresh()
        return True


@lru_cache(maxsize=4096)
def issued_to(name: str, certificate: bytes, authorities: tuple[x509.Certificate, ...]) -> bool:
    """Return whether one of these CAs ever issued this certificate (DER) to a peer of that name."""
    try:
        issued = is_issued_by(read_certificate(certificate, where="book"), *authorities)
        return issued and _identity(certificate, federation_of(authorities[0])).name == name
    except ConfigError:
        return False


@lru_cache(maxsize=4096)  # every call shows the same few certificates
def _identity(certificate: bytes, federation: str) -> PeerIdentity:
    return identity_of(read_certificate(certificate, where="handshake"), federation)


def _load(folder: Path) -> _Loaded:
    stamp = _stamp(folder)
    authorities = read_certificates(read_file(folder / ROOT), where=folder / ROOT)
    certificate = read_certificate(read_file(folder / CERTIFICATE), where=folder / CERTIFICATE)
    key = read_key(read_private(folder / KEY), where=folder / KEY)
    _require_consistent(folder, authorities, certificate, key)
    return _Loaded(
        stamp, authorities, key, identity_of(certificate, federation_of(authorities[0])),
        _revocations(folder, authorities),
        _context(folder, ssl.PROTOCOL_TLS_SERVER), _context(folder, ssl.PROTOCOL_TLS_CLIENT),
    )  # fmt: skip


def _require_consistent(
    folder: Path, authorities: tuple[x509.Certificate, ...], certificate: x509.Certificate, key: PrivateKey
) -> None:
    federation = federation_of(authorities[0])
    if any(federation_of(authority) != federation for authority in authorities):
        raise ConfigError("ca.pem has CAs of several federations", fix="copy ca.pem from the CA", folder=folder)
    if certificate.public_key() != key.public_key():
        raise ConfigError(
            "key and certificate do not belong together", fix="issue or sign a new certificate", folder=folder
        )
    if not is_issued_by(certificate, *authorities):
        fix = "take ca.pem and certificate.pem from the same federation"
        raise ConfigError("the certificate is not signed by this CA", fix=fix, folder=folder)
    if not identity_of(certificate, federation).name:
        fix = f"issue it with `eris certs issue`, so that it carries NAME.{federation}"
        raise ConfigError("the certificate names no peer of its federation", fix=fix, folder=folder)


def _context(folder: Path, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # identity is NAME.FEDERATION and the fingerprint; a host name proves nothing here
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(folder / ROOT)
    context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # a resumed session would skip the certificate
    return context


def _revocations(folder: Path, authorities: tuple[x509.Certificate, ...]) -> Revocations:
    path = folder / REVOKED
    return Revocations.read(path.read_bytes(), *authorities, where=path) if path.exists() else Revocations()


def read_file(path: Path) -> bytes:
    """Return a file's bytes, or raise an error that says which `eris certs` command makes it."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        fix = "make the folder with `eris certs issue`, or copy there what `eris certs sign` wrote"
        raise ConfigError(f"{path.name} is missing", fix=fix, folder=path.parent) from error


def read_private(path: Path) -> bytes:
    """Return the bytes of a key, if only its owner can read it."""
    data = read_file(path)
    if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError("others can read the private key", fix=f"chmod 600 {path}", file=path)
    return data


def _stamp(folder: Path) -> tuple[object, ...]:
    place = str(folder)  # checked with every call: plain strings, because paths take five times as long
    return tuple(_stamp_of(f"{place}/{file}") for file in (KEY, CERTIFICATE, ROOT, REVOKED))


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - see above
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)
