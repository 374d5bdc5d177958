"""The certificates that a federation's CA has withdrawn: a signed, numbered list of serials (an X.509 CRL)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from eris.errors import ConfigError
from eris.transport.certificates import CLOCK_SLACK, PrivateKey

__all__ = ["Revocations", "revocation_list"]

_END = b"-----END X509 CRL-----"


@dataclass(frozen=True, slots=True)
class Revocations:
    """The serials a CA has withdrawn, and the number of the list; a higher number is newer."""

    number: int = 0
    serials: frozenset[int] = frozenset()

    @classmethod
    def read(cls, data: bytes, *authorities: x509.Certificate, where: object) -> Revocations:
        """Read a revocation list, if one of these CAs signed it.

        While a CA is being replaced, the file holds the same list twice, signed by the old one and by the new one, so
        that peers that trust either can read it.
        """
        fix = "copy revoked.pem from the CA"
        try:
            parts = [part + _END for part in data.split(_END) if part.strip()]
            lists = [x509.load_pem_x509_crl(part) for part in parts or [data]]
            known = [_numbered(listing) for listing in lists if _is_signed(listing, authorities)]
        except (ValueError, x509.ExtensionNotFound) as error:
            raise ConfigError(f"no revocation list can be read: {error}", fix=fix, file=where) from error
        if not known:
            raise ConfigError("the revocation list is not signed by this federation's CA", fix=fix, file=where)
        return max(known, key=lambda revocations: revocations.number)


def _numbered(listing: x509.CertificateRevocationList) -> Revocations:
    number = listing.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    return Revocations(number, frozenset(entry.serial_number for entry in listing))


def _is_signed(listing: x509.CertificateRevocationList, authorities: Iterable[x509.Certificate]) -> bool:
    keys = [authority.public_key() for authority in authorities]
    return any(isinstance(key, ec.EllipticCurvePublicKey) and listing.is_signature_valid(key) for key in keys)


def revocation_list(
    authority: x509.Certificate, authority_key: PrivateKey, revocations: Revocations
) -> x509.CertificateRevocationList:
    """Return the list of these serials, signed with `authority_key`; `authority` is the CA's certificate."""
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.subject).last_update(now - CLOCK_SLACK)
    builder = builder.next_update(max(authority.not_valid_after_utc, now + CLOCK_SLACK))  # valid until it is replaced
    builder = builder.add_extension(x509.CRLNumber(revocations.number), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    for serial in sorted(revocations.serials):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(authority_key, hashes.SHA256())
