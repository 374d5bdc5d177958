"""The wire version: one number for frames, documents and calls.

It rises with any change of a byte that peers exchange, sign or digest. A peer refuses another version by number, so
that an old peer is told to update instead of being told that its bytes are malformed.
"""

from __future__ import annotations

from eris.errors import Reason, Refused

__all__ = ["VERSION", "require_version"]

VERSION = 3  # 2 (eris 0.2): addresses were not signed; 1 (0.1): documents were JSON, every plan listed its roster


def require_version(found: int, what: str) -> None:
    """Refuse what another version wrote; the message reads the same on both sides.

    >>> require_version(4, "plan")
    Traceback (most recent call last):
    eris.errors.Refused: refused (wrong-version): a plan of wire version 4 met version 3: update the side with version 3
    """
    if found != VERSION:
        raise Refused(
            Reason.WRONG_VERSION,
            f"a {what} of wire version {found} met version {VERSION}",
            fix=f"update the side with version {min(found, VERSION)}",
        )
