"""Checks what a coordinator signed with only the federation's CA: during a run, or years later from a file.

Everywhere here `issued` says whether the CA gave a certificate to a name, and `names` are those who may coordinate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path

from eris.atomic_file import write_atomically
from eris.errors import InputError, Reason, Refused
from eris.protocol.false_manifest import LieProof
from eris.protocol.messages import MANIFEST_PURPOSE, Manifest, Receipt
from eris.protocol.roster import Roster
from eris.protocol.seal import SEAL_PURPOSE, CertifiedSeal, Contradiction
from eris.transport.certificates import fingerprint_of, read_certificate
from eris.transport.control import COORDINATOR
from eris.transport.signatures import verify_message
from eris.wire.schema import plain, read_plain

__all__ = ["is_sealed", "read_proof", "require_lie", "require_proof", "write_proof"]

Issued = Callable[[str, bytes], bool]  # whether the CA gave a certificate (DER) to a name


def is_sealed(certified: CertifiedSeal, issued: Issued, names: Collection[str] = (COORDINATOR,)) -> bool:
    """Return whether a coordinator of our CA with one of these names signed this; its certificate may have expired."""
    seal, certificate = certified.seal, certified.certificate
    signature = bytes.fromhex(seal.signature)
    named = any(issued(name, certificate) for name in names)
    return named and verify_message(certificate, SEAL_PURPOSE, seal.signed_bytes, signature)


def require_proof(proof: Contradiction, issued: Issued, names: Collection[str] = (COORDINATOR,)) -> None:
    """Refuse what does not prove that one coordinator told two stories, whoever presents it."""
    if not proof.first.seal.contradicts(proof.second.seal):
        raise Refused(Reason.MALFORMED, "an honest coordinator may have signed both")
    both = proof.first, proof.second
    if not any(all(is_sealed(certified, issued, (name,)) for certified in both) for name in names):
        raise Refused(Reason.BAD_SIGNATURE, "a coordinator of this federation did not sign both")


def require_lie(proof: LieProof, issued: Issued, names: Collection[str] = (COORDINATOR,)) -> str:
    """Return in words what an aggregator signed that no honest one does; refuse what does not prove it."""
    roster = {entry.peer: entry for entry in Roster.decode(proof.roster)}
    lie, accused = proof.lie(), roster.get(proof.aggregator)
    if not lie or accused is None:
        raise Refused(Reason.MALFORMED, "an honest aggregator may have signed this")
    key = fingerprint_of(read_certificate(proof.certificate, where="proof")) if proof.certificate else ""
    known = issued(accused.name, proof.certificate) and key == accused.fingerprint
    said: list[Manifest | Receipt] = [*proof.manifests, *([proof.receipt] if proof.receipt is not None else [])]
    signed = known and all(
        verify_message(proof.certificate, MANIFEST_PURPOSE, one.signed_bytes, bytes.fromhex(one.signature))
        for one in said
    )
    if not (signed and is_sealed(proof.seal, issued, names)):
        raise Refused(Reason.BAD_SIGNATURE, "the aggregator did not sign this, or the coordinator not its plan")
    return f"{accused.name} signed {lie}"


def write_proof(proof: Contradiction | LieProof, path: Path) -> None:
    """Write a proof to a file, for people and for `eris certs check-proof`."""
    write_atomically(path, (json.dumps(plain(proof), indent=2) + "\n").encode())


def read_proof(path: Path) -> Contradiction | LieProof:
    """Read a proof from a file."""
    try:
        data = json.loads(path.read_bytes())
        return read_plain(LieProof, data) if "manifests" in data else read_plain(Contradiction, data)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a proof: {error}", fix="give a proof file that a peer wrote") from None
