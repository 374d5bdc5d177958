"""Which extra brings a module that is not installed.

>>> str(missing_extra(ModuleNotFoundError("No module named 'torch'", name="torch")))
"this command needs the package torch: pip install 'eris-fl[torch]'"
"""

from __future__ import annotations

import re
from importlib import metadata

from eris.errors import MissingExtra

__all__ = ["missing_extra"]

_IMPORTED_AS = {"google": "protobuf", "grpc": "grpcio", "PIL": "pillow"}  # where a package is not named like its module


def missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """Return the extra that provides a module that was not found; None if none does, which is then a bug."""
    module = (error.name or "").partition(".")[0]
    package = _IMPORTED_AS.get(module, module)
    extra = _extras().get(_plain(package))
    return MissingExtra(package, extra, "this command") if extra else None


def _extras() -> dict[str, str]:
    """Return package → extra; where several extras have it, the one that is named like it, or else the first."""
    found: dict[str, str] = {}
    for line in metadata.requires("eris-fl") or []:
        if match := re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", line):
            package, extra = _plain(match[1]), match[2]
            if package == extra or extra not in ("all", "dev"):
                found[package] = extra if package == extra else found.get(package, extra)
    return found


def _plain(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()
