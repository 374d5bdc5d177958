"""Rules for the names of peers, federations and hosts, which must be safe in a certificate, a path and a log line."""

from __future__ import annotations

import ipaddress
import re

from eris.errors import InputError

__all__ = ["check_host", "check_name", "full_name", "is_loopback", "split_name"]

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*\.?")


def check_name(name: str, *, what: str = "peer") -> str:
    """Return a name that a certificate can carry; refuse any other.

    Lower case only: DNS names are compared without case, and two peers must not differ by case alone.

    >>> check_name("hospital-a")
    'hospital-a'
    """
    if not _LABEL.fullmatch(name):
        raise InputError(
            f"{name!r} cannot name a {what}",
            fix="use 1 to 63 lower-case letters, digits and dashes, no dash at either end",
        )
    return name


def full_name(name: str, federation: str) -> str:
    """Return the name a certificate carries: NAME.FEDERATION.

    >>> full_name("hospital-a", "cardio")
    'hospital-a.cardio'
    """
    return f"{check_name(name)}.{check_name(federation, what='federation')}"


def split_name(full: str, federation: str) -> str | None:
    """Return the NAME part of a full name of this federation; None if it is of another one, or not a name.

    >>> split_name("hospital-a.cardio", "cardio"), split_name("hospital-a.other", "cardio")
    ('hospital-a', None)
    """
    name, dot, rest = full.partition(".")
    return name if dot and rest == federation and _LABEL.fullmatch(name) else None


def check_host(host: str, federation: str) -> str:
    """Return a host name or address that a certificate may list besides its identity; refuse any other."""
    if _is_address(host):
        return host
    # A host inside the federation's own name space would be a second identity.
    inside = host.lower().rstrip(".").endswith(f".{federation}") or host.lower() == federation
    if inside or not _HOST.fullmatch(host) or len(host) > 253:
        raise InputError(
            f"{host!r} cannot be a host of a certificate",
            fix=f"use a DNS name or an IP address, and none that ends in .{federation}: those are the peers' names",
        )
    return host


def is_loopback(host: str) -> bool:
    """Return whether an address never leaves this machine."""
    address = _address(host.partition("%")[0])
    if address is None:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _is_address(host: str) -> bool:
    return _address(host) is not None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
