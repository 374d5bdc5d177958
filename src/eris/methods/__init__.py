"""Methods by name: one paper a file.

>>> sorted(METHODS)
['eris', 'eris+dsc', 'fedavg']
>>> method_by_name("eris+dsc").summary
'one shard each, compressed against a reference'
"""

from __future__ import annotations

from eris.errors import ConfigError
from eris.methods.eris import ERIS, ERIS_DSC
from eris.methods.fedavg import FEDAVG
from eris.methods.method import Method

__all__ = ["METHODS", "Method", "method_by_name"]

METHODS: dict[str, Method] = {method.name: method for method in (FEDAVG, ERIS, ERIS_DSC)}


def method_by_name(name: str) -> Method:
    """Return the method of that name."""
    if name not in METHODS:
        raise ConfigError(f"there is no method {name!r}", fix=f"use one of {', '.join(METHODS)}", key="method")
    return METHODS[name]
