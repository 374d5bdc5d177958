"""What a certificate of a federation holds, and how to make and read one.

    CA certificate      subject CN = FEDERATION; signs peers and the list of revoked serials, nothing below a peer
    peer certificate    SAN NAME.FEDERATION (the identity), optional host SANs, server and client authentication
    fingerprint         sha256 of the public key: a renewed certificate of the same key keeps it

Keys are EC P-256: both Python's ssl and gRPC take them for TLS 1.3 (gRPC's TLS library refuses Ed25519 certificates),
and they sign manifests as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from eris.errors import ConfigError, MissingExtra
from eris.transport.identity import PeerIdentity
from eris.transport.names import check_host, full_name, split_name

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:  # pragma: no cover - the extra is installed wherever tests run
    raise MissingExtra("cryptography", "network", "a certificate") from error

__all__ = [
    "AUTHORITY_DAYS",
    "PEER_DAYS",
    "federation_of",
    "fingerprint_of",
    "identity_of",
    "is_authority",
    "is_issued_by",
    "issue_certificate",
    "key_bytes",
    "key_fingerprint",
    "names_of",
    "new_authority",
    "new_key",
    "new_request",
    "pem",
    "read_certificate",
    "read_certificates",
    "read_key",
    "read_request",
    "requested_name",
]

AUTHORITY_DAYS = 3650
PEER_DAYS = 397
CLOCK_SLACK = timedelta(hours=1)  # so that a peer whose clock is behind does not see a certificate from the future
_UNUSED = {"content_commitment": False, "key_encipherment": False, "data_encipherment": False,
           "key_agreement": False, "encipher_only": False, "decipher_only": False}  # fmt: skip

PrivateKey = ec.EllipticCurvePrivateKey


def new_key() -> PrivateKey:
    """Return a fresh P-256 key from the operating system's randomness."""
    return ec.generate_private_key(ec.SECP256R1())


def key_bytes(key: PrivateKey) -> bytes:
    """Return a key as PEM."""
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def read_key(data: bytes, *, where: object) -> PrivateKey:
    """Return the key in a PEM file."""
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"no private key can be read: {error}", fix="make a new one with `eris certs`", file=where
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise ConfigError("the key is not an EC P-256 key", fix="make it with `eris certs`", file=where)
    return key


def read_certificate(data: bytes, *, where: object) -> x509.Certificate:
    """Return the certificate in a PEM file, or in DER bytes from a handshake."""
    try:
        if data.lstrip().startswith(b"-----"):
            return x509.load_pem_x509_certificate(data)
        return x509.load_der_x509_certificate(data)
    except ValueError as error:
        raise ConfigError(
            f"no certificate can be read: {error}", fix="make a new one with `eris certs`", file=where
        ) from error


def read_certificates(data: bytes, *, where: object) -> tuple[x509.Certificate, ...]:
    """Return all certificates of a PEM file: while a CA is being replaced, ca.pem holds the new and the old one."""
    try:
        return tuple(x509.load_pem_x509_certificates(data))
    except ValueError as error:
        raise ConfigError(
            f"no certificate can be read: {error}", fix="make a new one with `eris certs`", file=where
        ) from error


def pem(value: x509.Certificate | x509.CertificateSigningRequest | x509.CertificateRevocationList) -> bytes:
    """Return a certificate, request or revocation list as PEM."""
    return value.public_bytes(serialization.Encoding.PEM)


def new_authority(key: PrivateKey, federation: str, *, days: int = AUTHORITY_DAYS) -> x509.Certificate:
    """Return the self-signed certificate of a federation's CA, valid for so many days."""
    name = _subject(federation)
    builder = _builder(name, name, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = x509.KeyUsage(digital_signature=False, key_cert_sign=True, crl_sign=True, **_UNUSED)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return builder.sign(key, hashes.SHA256())


def issue_certificate(
    authority: x509.Certificate, authority_key: PrivateKey, name: str, public_key: ec.EllipticCurvePublicKey, *,
    hosts: Sequence[str] = (), days: int = PEER_DAYS, start: datetime | None = None,
) -> x509.Certificate:  # fmt: skip
    """Return a certificate which states that this key is NAME of the authority's federation.

    Args:
        authority: the CA's certificate, and `authority_key` the key that signs.
        hosts: host names or addresses to list besides the identity.
        days: how long it is valid, but never longer than the CA.
        start: from when its days are counted; None: now. It is valid an hour earlier, for slow clocks.
    """
    federation = federation_of(authority)
    full = full_name(name, federation)
    names = [x509.DNSName(full), *(_host(check_host(host, federation)) for host in hosts)]
    builder = _builder(_subject(full), authority.subject, public_key, days, start, authority.not_valid_after_utc)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    usage = x509.KeyUsage(digital_signature=True, key_cert_sign=False, crl_sign=False, **_UNUSED)
    builder = builder.add_extension(usage, critical=True)
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]  # a peer dials and accepts
    builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return builder.add_extension(issuer, critical=False).sign(authority_key, hashes.SHA256())


def new_request(key: PrivateKey, name: str) -> x509.CertificateSigningRequest:
    """Return a request that proves possession of the key and asks for a name; everything else is up to the CA."""
    return x509.CertificateSigningRequestBuilder().subject_name(_subject(name)).sign(key, hashes.SHA256())


def read_request(data: bytes, *, where: object) -> x509.CertificateSigningRequest:
    """Return the request in a PEM file."""
    try:
        return x509.load_pem_x509_csr(data)
    except ValueError as error:
        raise ConfigError(
            f"no request can be read: {error}", fix="make one with `eris certs request`", file=where
        ) from error


def requested_name(request: x509.CertificateSigningRequest, *, where: object) -> tuple[str, ec.EllipticCurvePublicKey]:
    """Return the name and key of a request whose signature has been checked."""
    key = request.public_key()
    if not request.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError(
            "the request is not signed by a P-256 key of its own", fix="use `eris certs request`", file=where
        )
    return _common_name(request.subject), key


def federation_of(authority: x509.Certificate) -> str:
    """Return the name of a CA's federation."""
    return _common_name(authority.subject)


def key_fingerprint(key: CertificatePublicKeyTypes) -> str:
    """Return the sha256 (hex) of a public key, which a roster pins."""
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(encoding, form)).hexdigest()


def fingerprint_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """Return the fingerprint of the key in a certificate or request."""
    return key_fingerprint(certificate.public_key())


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether a certificate may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def names_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> tuple[str, ...]:
    """Return every name a certificate carries: its identity first, then hosts; a CA or a request has just one."""
    names = _alternative_names(certificate) if isinstance(certificate, x509.Certificate) else None
    if names is None:
        return (_common_name(certificate.subject),)
    return tuple(str(name.value) for name in names)


def is_issued_by(certificate: x509.Certificate, *authorities: x509.Certificate) -> bool:
    """Return whether one of the authorities signed the certificate."""
    for authority in authorities:
        with contextlib.suppress(ValueError, TypeError, InvalidSignature):
            certificate.verify_directly_issued_by(authority)
            return True
    return False


def identity_of(certificate: x509.Certificate, federation: str) -> PeerIdentity:
    """Return whose certificate this is; the name is empty unless exactly one SAN lies in the federation.

    This says nothing about trust: whoever obtained the certificate must have checked its chain.
    """
    names = [name for full in _dns_names(certificate) if (name := split_name(full, federation))]
    return PeerIdentity(
        name=names[0] if len(names) == 1 else "",
        federation=federation,
        fingerprint=fingerprint_of(certificate),
        serial=certificate.serial_number,
        not_before=certificate.not_valid_before_utc.timestamp(),
        not_after=certificate.not_valid_after_utc.timestamp(),
        certificate=certificate.public_bytes(serialization.Encoding.DER),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int,
    start: datetime | None = None, latest: datetime | None = None,
) -> x509.CertificateBuilder:  # fmt: skip
    start = start or datetime.now(UTC)
    end = start + timedelta(days=days)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(start - CLOCK_SLACK)
    return builder.not_valid_after(end if latest is None else min(end, latest))  # nobody outlives the CA


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _common_name(name: x509.Name) -> str:
    attributes = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(attributes[0].value) if attributes else ""


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _dns_names(certificate: x509.Certificate) -> list[str]:
    names = _alternative_names(certificate)
    return [] if names is None else names.get_values_for_type(x509.DNSName)


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
