"""Check what a coordinator signed, with nothing but the federation's CA: in a run, or years later from a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from eris.atomic_file import write_atomically
from eris.errors import InputError, Reason, Refused
from eris.protocol.seal import SEAL_PURPOSE, CertifiedSeal, Contradiction
from eris.transport.control import COORDINATOR
from eris.transport.signatures import verify_message
from eris.wire.schema import plain, read_plain

__all__ = ["is_sealed", "read_proof", "require_proof", "write_proof"]

Issued = Callable[[str, bytes], bool]  # whether the CA gave a certificate (DER) to a name


def is_sealed(certified: CertifiedSeal, issued: Issued) -> bool:
    """Return whether a coordinator of our CA signed this; its certificate may have expired since."""
    seal, certificate = certified.seal, certified.certificate
    signature = bytes.fromhex(seal.signature)
    return issued(COORDINATOR, certificate) and verify_message(certificate, SEAL_PURPOSE, seal.signed_bytes, signature)


def require_proof(proof: Contradiction, issued: Issued) -> None:
    """Refuse what does not prove that a coordinator told two stories, whoever says so."""
    if not proof.first.seal.contradicts(proof.second.seal):
        raise Refused(Reason.MALFORMED, "an honest coordinator may have signed both")
    if not all(is_sealed(certified, issued) for certified in (proof.first, proof.second)):
        raise Refused(Reason.BAD_SIGNATURE, "a coordinator of this federation did not sign both")


def write_proof(proof: Contradiction, path: Path) -> None:
    """Keep a proof for people, and for `eris certs check-proof`."""
    write_atomically(path, (json.dumps(plain(proof), indent=2) + "\n").encode())


def read_proof(path: Path) -> Contradiction:
    """Read a proof that somebody kept."""
    try:
        return read_plain(Contradiction, json.loads(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no proof: {error}", fix="give a file that a peer wrote") from None
