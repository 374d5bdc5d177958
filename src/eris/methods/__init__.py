"""Methods by name: one paper a file.

>>> method_by_name("eris+dsc").summary
'one shard each, compressed against a reference'
>>> [name for name in METHODS if METHODS[name].exchange]
['gossip', 'shatter', 'ako', 'qdpsgd']
"""

from __future__ import annotations

import difflib

from eris.config import Config
from eris.errors import ConfigError
from eris.methods.ako import AKO
from eris.methods.eris import ERIS, ERIS_DSC, ERIS_DSC_LDP, ERIS_LDP
from eris.methods.fedavg import FEDAVG, FEDAVG_COMPRESSED, FEDAVG_DPSGD, FEDAVG_LDP, MIN_LEAKAGE
from eris.methods.gossip import GOSSIP
from eris.methods.method import Method
from eris.methods.priprune import PRIPRUNE, PRIPRUNE_PSEUDO
from eris.methods.qdpsgd import QDPSGD
from eris.methods.shatter import SHATTER
from eris.methods.soteriafl import CDP_SGD, SOTERIAFL

__all__ = ["METHODS", "Method", "method_by_name", "settled"]

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        *(FEDAVG, FEDAVG_LDP, FEDAVG_DPSGD, FEDAVG_COMPRESSED, MIN_LEAKAGE),
        *(SOTERIAFL, CDP_SGD, PRIPRUNE, PRIPRUNE_PSEUDO),
        *(GOSSIP, SHATTER, AKO, QDPSGD),
        *(ERIS, ERIS_DSC, ERIS_LDP, ERIS_DSC_LDP),
    )
}


def method_by_name(name: str) -> Method:
    """Return the method of that name."""
    if name not in METHODS:
        parts = sorted(name.split("+"))
        alike = [known for known in METHODS if sorted(known.split("+")) == parts]
        near = alike or difflib.get_close_matches(name, METHODS, n=1)
        fix = f"did you mean {near[0]}?" if near else f"use one of {', '.join(METHODS)}"
        raise ConfigError(f"there is no method {name!r}", fix=fix, key="method")
    return METHODS[name]


def settled(config: Config, name: str) -> Config:
    """Return the configuration for one method alone, with what makes it."""
    return method_by_name(name).settle(config.for_method(name))
