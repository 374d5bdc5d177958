"""Which certificates a federation's CA has withdrawn: a signed, numbered list of serials (an X.509 CRL)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from eris.errors import ConfigError
from eris.transport.certificates import CLOCK_SLACK, PrivateKey

__all__ = ["Revocations", "revocation_list"]


@dataclass(frozen=True, slots=True)
class Revocations:
    """The serials a CA has withdrawn, and the number of the list: a higher number is newer."""

    number: int = 0
    serials: frozenset[int] = frozenset()

    @classmethod
    def read(cls, data: bytes, authority: x509.Certificate, *, where: object) -> Revocations:
        """Return what a revocation list says, if the federation's CA signed it."""
        try:
            listing = x509.load_pem_x509_crl(data)
            number = listing.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        except (ValueError, x509.ExtensionNotFound) as error:
            raise ConfigError(
                f"no revocation list can be read: {error}", fix="copy revoked.pem from the CA", file=where
            ) from error
        key = authority.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not listing.is_signature_valid(key):
            raise ConfigError(
                "the revocation list is not signed by this federation's CA",
                fix="copy revoked.pem from the CA",
                file=where,
            )
        return cls(number, frozenset(entry.serial_number for entry in listing))


def revocation_list(
    authority: x509.Certificate, authority_key: PrivateKey, revocations: Revocations
) -> x509.CertificateRevocationList:
    """Return the signed list of these serials."""
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.subject).last_update(now - CLOCK_SLACK)
    builder = builder.next_update(
        max(authority.not_valid_after_utc, now + CLOCK_SLACK)
    )  # it holds until it is replaced
    builder = builder.add_extension(x509.CRLNumber(revocations.number), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    for serial in sorted(revocations.serials):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(authority_key, hashes.SHA256())
