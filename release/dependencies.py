"""What is installed because eris needs it, read from the packages' own metadata."""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

RUNTIME_EXTRAS = ("all", "hub")  # what a user may install; `dev`, `docs` and `release` are for who works on eris


def closure(package: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """Return the canonical names of all that a package with some extras cannot do without.

    Of a requirement that is not installed here only its name is known, not what it would bring.
    """
    found: set[str] = set()
    waiting = [(package, extras)]
    asked = set()
    while waiting:
        name, wanted = waiting.pop()
        for line in _requires(name):
            each = Requirement(line)
            needed = each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *wanted))
            step = (canonicalize_name(each.name), frozenset(each.extras))
            if needed and step not in asked:
                asked.add(step)
                waiting.append(step)
                found.add(step[0])
    return found - {canonicalize_name(package)}


def _requires(name: str) -> list[str]:
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
