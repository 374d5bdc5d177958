"""A federation's certificate authority: one folder, kept by whoever admits peers.

ca.pem, ca-key.pem (0600)     the CA; the key is best kept off any machine that trains
ca-key-old.pem (0600)         while the CA is replaced: the old one's key, and ca.pem holds both certificates
revoked.pem                   what was withdrawn; public, signed
issued/NAME/SERIAL.pem        every certificate ever given to a name
peers/NAME/                   what a peer needs, ready to be carried there (see credentials.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from eris.atomic_file import write_atomically
from eris.errors import ConfigError
from eris.transport.certificates import (
    AUTHORITY_DAYS,
    PEER_DAYS,
    PrivateKey,
    federation_of,
    fingerprint_of,
    is_issued_by,
    issue_certificate,
    key_bytes,
    key_fingerprint,
    names_of,
    new_authority,
    new_key,
    new_request,
    pem,
    read_certificate,
    read_certificates,
    read_key,
    read_request,
    requested_name,
)
from eris.transport.credentials import CERTIFICATE, KEY, REVOKED, ROOT, read_file, read_private
from eris.transport.names import check_name
from eris.transport.revocations import Revocations, revocation_list

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["Authority", "request"]

_AUTHORITY_KEY, _OLD_KEY = "ca-key.pem", "ca-key-old.pem"


class Authority:
    """The CA of one federation."""

    def __init__(self, folder: Path | str) -> None:
        """Open the CA in `folder`."""
        self.folder = Path(folder)
        if not (self.folder / _AUTHORITY_KEY).exists():
            raise ConfigError("there is no CA here", fix=f"make one with `eris certs init {folder}`", folder=folder)
        self._key = read_key(read_private(self.folder / _AUTHORITY_KEY), where=self.folder / _AUTHORITY_KEY)
        self._certificates = read_certificates(read_file(self.folder / ROOT), where=self.folder / ROOT)
        self._certificate = self._of(self._key)

    def _of(self, key: PrivateKey) -> x509.Certificate:
        """Return the certificate of a CA's key; the key in ca-key.pem signs everything issued from now on."""
        for certificate in self._certificates:
            if certificate.public_key() == key.public_key():
                return certificate
        raise ConfigError("ca.pem and the CA's key do not belong together", fix="restore both", folder=self.folder)

    @classmethod
    def create(cls, folder: Path | str, federation: str, *, days: int = AUTHORITY_DAYS) -> Authority:
        """Make a CA for a federation, valid for so many days; an existing one is never overwritten."""
        folder = Path(folder)
        check_name(federation, what="federation")
        if (folder / _AUTHORITY_KEY).exists() or (folder / ROOT).exists():
            raise ConfigError("there is a CA here already", fix="use it, or choose another folder", folder=folder)
        if folder.exists() and not folder.is_dir():
            raise ConfigError("this is a file, not a folder", fix="choose another folder", path=folder)
        key = new_key()
        certificate = new_authority(key, federation, days=days)
        _write(folder / _AUTHORITY_KEY, key_bytes(key), mode=0o600)
        _write(folder / ROOT, pem(certificate))
        authority = cls(folder)
        authority._write_revocations(Revocations(number=1))
        return authority

    @property
    def federation(self) -> str:
        """The federation's name."""
        return federation_of(self._certificate)

    @property
    def revocations(self) -> Revocations:
        """The certificates that were withdrawn."""
        path = self.folder / REVOKED
        return Revocations.read(read_file(path), *self._certificates, where=path)

    def issue(self, name: str, *, hosts: Sequence[str] = (), days: int = PEER_DAYS, replace: bool = False) -> Path:
        """Make a folder with key and certificate for a peer, and return it.

        An existing key is kept, so that the fingerprint survives a renewal; after a revocation the key is always fresh.

        Args:
            hosts: host names or addresses to list in the certificate besides the identity.
            days: how long the certificate is valid, but never longer than the CA.
            replace: make a fresh key, and withdraw the certificates of the old one.
        """
        folder = self._peer_folder(name)
        key = (None if replace else self._renewable_key(name, folder)) or new_key()
        certificate = self._certify(name, key.public_key(), hosts, days, replace=replace)
        _write(folder / KEY, key_bytes(key), mode=0o600)
        return self._hand_over(name, certificate)

    def sign(
        self, request: Path | str, *, hosts: Sequence[str] = (), days: int = PEER_DAYS, replace: bool = False
    ) -> Path:
        """Certify the key of a request; return the folder whose files the peer must add to its own.

        Args:
            request: the file that `eris certs request` wrote.
            hosts: as for `issue`.
            days: as for `issue`.
            replace: withdraw the name's certificates with other keys, instead of refusing the request.
        """
        name, public_key = requested_name(_read_request(Path(request)), where=request)
        folder = self._peer_folder(name)
        if key_fingerprint(public_key) in self._withdrawn_keys(name):
            raise ConfigError(
                "the key of this request was revoked", fix="make a fresh one with `eris certs request`", peer=name
            )
        certificate = self._certify(name, public_key, hosts, days, replace=replace)
        (folder / KEY).unlink(missing_ok=True)  # from an earlier `issue`; it no longer fits, and the peer has its own
        return self._hand_over(name, certificate)

    def renew(self, name: str, *, days: int = PEER_DAYS) -> Path:
        """Issue a new certificate for the key, name and hosts of the newest valid one; return the peer's folder.

        The key need not be here: a peer that sent a request gets what it had before, valid for longer.
        """
        check_name(name)
        live = self._live(name)
        if not live:
            fix = f"admit it with `eris certs issue {self.folder} {name}` or `eris certs sign`"
            raise ConfigError(f"{name!r} has no valid certificate", fix=fix, folder=self.folder)
        newest = max(live, key=lambda certificate: certificate.not_valid_before_utc)
        key = cast("ec.EllipticCurvePublicKey", newest.public_key())  # every certificate we issue has one
        return self._hand_over(name, self._certify(name, key, names_of(newest)[1:], days, replace=False))

    def holds_until(self, name: str) -> float:
        """Return when the last certificate of a name expires (seconds since 1970); 0 if none is valid."""
        return max((certificate.not_valid_after_utc.timestamp() for certificate in self._live(name)), default=0.0)

    def names(self) -> list[str]:
        """Return the names that have a valid certificate."""
        return [name for path in sorted((self.folder / "issued").glob("*")) if self._live(name := path.name)]

    def rotate(self, *, days: int = AUTHORITY_DAYS) -> None:
        """Make a new CA beside the old one; until `retire`, ca.pem holds both and peers trust both."""
        if len(self._certificates) > 1:
            fix = f"finish with `eris certs rotate {self.folder} --finish`"
            raise ConfigError("this CA is already being replaced", fix=fix, folder=self.folder)
        revocations, key = self.revocations, new_key()
        certificate = new_authority(key, self.federation, days=days)
        _write(self.folder / _OLD_KEY, key_bytes(self._key), mode=0o600)
        self._certificates = (*self._certificates, certificate)
        self._write_roots()  # before the new key: a CA whose key is in no ca.pem could not be opened
        _write(self.folder / _AUTHORITY_KEY, key_bytes(key), mode=0o600)
        self._key, self._certificate = key, certificate
        self._write_revocations(Revocations(revocations.number + 1, revocations.serials))

    def retire(self) -> None:
        """Trust the new CA alone; refused while some peer's only certificate is from the old one."""
        if len(self._certificates) < 2:
            fix = f"begin with `eris certs rotate {self.folder}`"
            raise ConfigError("there is no old CA to retire", fix=fix, folder=self.folder)
        behind = [
            name for name in self.names() if not any(is_issued_by(c, self._certificate) for c in self._live(name))
        ]
        if behind:
            fix = f"`eris certs renew {self.folder}`, and carry the certificates to the peers"
            raise ConfigError(f"{', '.join(behind)} would be shut out, without a certificate of the new CA", fix=fix)
        revocations = self.revocations
        self._certificates = (self._certificate,)
        self._write_roots()
        (self.folder / _OLD_KEY).unlink(missing_ok=True)
        self._write_revocations(Revocations(revocations.number + 1, revocations.serials))

    def revoke(self, name: str) -> tuple[int, ...]:
        """Withdraw every valid certificate of a name; return their serials."""
        check_name(name)
        issued = self._issued(name)
        if not issued:
            known = sorted(path.name for path in (self.folder / "issued").glob("*"))
            raise ConfigError(f"nothing was issued to {name!r}", fix=f"use one of {known}", folder=self.folder)
        return self._withdraw(self._live(name))

    def _certify(
        self, name: str, key: ec.EllipticCurvePublicKey, hosts: Sequence[str], days: int, *, replace: bool
    ) -> x509.Certificate:
        others = [other for other in self._live(name) if fingerprint_of(other) != key_fingerprint(key)]
        if others and not replace:
            raise ConfigError(
                f"{name!r} has a certificate with another key ({fingerprint_of(others[0])[:12]}…)",
                fix="renew with that key, choose another name, or withdraw the old one with --replace",
            )
        certificate = issue_certificate(self._certificate, self._key, name, key, hosts=hosts, days=days)
        self._withdraw(others)
        return certificate

    def _hand_over(self, name: str, certificate: x509.Certificate) -> Path:
        folder = self._peer_folder(name)
        _write(self.folder / "issued" / name / f"{certificate.serial_number:x}.pem", pem(certificate))
        _write(folder / ROOT, read_file(self.folder / ROOT))
        _write(folder / REVOKED, read_file(self.folder / REVOKED))
        _write(folder / CERTIFICATE, pem(certificate))
        return folder

    def _peer_folder(self, name: str) -> Path:
        return self.folder / "peers" / check_name(name)

    def _renewable_key(self, name: str, folder: Path) -> PrivateKey | None:
        if not (folder / KEY).exists():
            return None
        key = read_key(read_private(folder / KEY), where=folder / KEY)
        return None if key_fingerprint(key.public_key()) in self._withdrawn_keys(name) else key

    def _issued(self, name: str) -> list[x509.Certificate]:
        paths = sorted((self.folder / "issued" / name).glob("*.pem"))
        return [read_certificate(path.read_bytes(), where=path) for path in paths]

    def _live(self, name: str) -> list[x509.Certificate]:
        gone, now = self.revocations.serials, datetime.now(UTC)
        return [c for c in self._issued(name) if c.serial_number not in gone and c.not_valid_after_utc > now]

    def _withdrawn_keys(self, name: str) -> set[str]:
        gone = self.revocations.serials
        return {fingerprint_of(certificate) for certificate in self._issued(name) if certificate.serial_number in gone}

    def _withdraw(self, certificates: Sequence[x509.Certificate]) -> tuple[int, ...]:
        serials = tuple(certificate.serial_number for certificate in certificates)
        if serials:
            known = self.revocations
            self._write_revocations(Revocations(known.number + 1, known.serials | set(serials)))
        return serials

    def _write_revocations(self, revocations: Revocations) -> None:
        keys = [self._key]
        if len(self._certificates) > 1:  # the old one first: a peer that has only its certificate reads that one
            keys.insert(0, read_key(read_private(self.folder / _OLD_KEY), where=self.folder / _OLD_KEY))
        data = b"".join(pem(revocation_list(self._of(key), key, revocations)) for key in keys)
        for folder in self._folders():
            _write(folder / REVOKED, data)

    def _write_roots(self) -> None:
        data = b"".join(map(pem, self._certificates))
        for folder in self._folders():
            _write(folder / ROOT, data)

    def _folders(self) -> list[Path]:
        return [self.folder, *(self.folder / "peers").glob("*")]


def _read_request(path: Path) -> x509.CertificateSigningRequest:
    if not path.is_file():
        raise ConfigError("there is no such file", fix="give the request that `eris certs request` wrote", path=path)
    return read_request(path.read_bytes(), where=path)


def _write(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data, mode=mode)


def request(name: str, folder: Path | str) -> Path:
    """Make a key for a peer in its own folder, and a request for the CA; only the request leaves the machine."""
    folder = Path(folder)
    check_name(name)
    path = folder / KEY
    key = read_key(read_private(path), where=path) if path.exists() else new_key()
    _write(path, key_bytes(key), mode=0o600)
    _write(folder / f"{name}.csr", pem(new_request(key, name)))
    return folder / f"{name}.csr"
