"""A readable summary of a certificate or request: names, fingerprint, validity, and a warning in time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from eris.errors import ConfigError
from eris.transport.certificates import (
    fingerprint_of,
    is_authority,
    names_of,
    read_certificate,
    read_certificates,
    read_request,
)
from eris.transport.credentials import CERTIFICATE, EXPIRY_WARNING_DAYS, REVOKED, ROOT, read_file
from eris.transport.revocations import Revocations

if TYPE_CHECKING:
    from cryptography import x509

__all__ = ["Summary", "summaries"]


@dataclass(frozen=True, slots=True)
class Summary:
    """One certificate or request, as `eris certs show` prints it."""

    path: Path  # the file it was read from
    kind: str  # "CA", "peer" or "request"
    names: tuple[str, ...]  # the identity first, then hosts
    fingerprint: str
    serial: str = ""  # in hex; a request has none
    not_before: datetime | None = None
    not_after: datetime | None = None
    revoked: bool = False  # according to the folder's own revoked.pem

    def warning(self, now: datetime | None = None) -> str | None:
        """Return what is wrong with it now, or will be within 30 days."""
        now = now or datetime.now(UTC)
        if self.revoked:
            return "revoked by the CA: links refuse it"
        if self.not_before is not None and now < self.not_before:
            return f"not valid before {self.not_before:%Y-%m-%d}: check the clock"
        if self.not_after is None or self.not_after - now > timedelta(days=EXPIRY_WARNING_DAYS):
            return None
        days = (self.not_after - now) / timedelta(days=1)
        return "has expired: renew it" if days <= 0 else f"expires in {days:.0f} days: renew it"


def summaries(path: Path | str) -> list[Summary]:
    """Describe a file, or every certificate of a peer's or a CA's folder."""
    path = Path(path)
    if not path.exists():
        raise ConfigError("there is no such file", fix="give a certificate, a request, or a folder of them", path=path)
    if not path.is_dir():
        return _summaries(path)
    found = [path / ROOT, path / CERTIFICATE, *path.glob(f"peers/*/{CERTIFICATE}"), *path.glob("*.csr")]
    return [summary for file in sorted(found) if file.exists() for summary in _summaries(file)]


def _summaries(path: Path) -> list[Summary]:
    data = read_file(path)
    if b"CERTIFICATE REQUEST" in data:
        request = read_request(data, where=path)
        return [Summary(path, "request", names_of(request), fingerprint_of(request))]
    some = read_certificates(data, where=path) if data.lstrip().startswith(b"-----") else ()
    return [_summary(path, certificate) for certificate in some or (read_certificate(data, where=path),)]


def _summary(path: Path, certificate: x509.Certificate) -> Summary:
    return Summary(
        path, "CA" if is_authority(certificate) else "peer", names_of(certificate), fingerprint_of(certificate),
        f"{certificate.serial_number:x}", certificate.not_valid_before_utc, certificate.not_valid_after_utc,
        certificate.serial_number in _revoked(path.parent),
    )  # fmt: skip


def _revoked(folder: Path) -> frozenset[int]:
    listing, root = folder / REVOKED, folder / ROOT
    if not (listing.exists() and root.exists()):
        return frozenset()
    authorities = read_certificates(root.read_bytes(), where=root)
    return Revocations.read(listing.read_bytes(), *authorities, where=listing).serials
