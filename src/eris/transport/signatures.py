"""Signatures with a certificate's key, each for one purpose (manifests, for example)."""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from eris.transport.certificates import PrivateKey, read_certificate

__all__ = ["sign_message", "verify_message"]


def sign_message(key: PrivateKey, purpose: str, message: bytes) -> bytes:
    """Sign a message for one purpose; the signature does not verify for another."""
    return key.sign(_purposed(purpose, message), ec.ECDSA(hashes.SHA256()))


def verify_message(certificate: bytes, purpose: str, message: bytes, signature: bytes) -> bool:
    """Return whether the key of a certificate (DER) signed the message for this purpose."""
    key = _key_of(certificate)
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        key.verify(signature, _purposed(purpose, message), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=4096)  # the same few peers sign in every round
def _key_of(certificate: bytes) -> CertificatePublicKeyTypes:
    return read_certificate(certificate, where="signature").public_key()


def _purposed(purpose: str, message: bytes) -> bytes:
    return b"eris\0" + purpose.encode() + b"\0" + message
