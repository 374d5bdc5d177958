"""Methods by name, one file per paper.

>>> method_by_name("eris+dsc").summary
'one shard each, compressed against a reference'
>>> [name for name in METHODS if METHODS[name].exchange]
['gossip', 'shatter', 'ako', 'qdpsgd']
"""

from __future__ import annotations

import json
import re

from pydantic import TypeAdapter

from eris.config import Config, concerning
from eris.methods.ako import AKO
from eris.methods.eris import ERIS, ERIS_DSC, ERIS_DSC_LDP, ERIS_DSC_MASKED, ERIS_LDP, ERIS_MASKED
from eris.methods.fedavg import FEDAVG, FEDAVG_COMPRESSED, FEDAVG_DPSGD, FEDAVG_LDP, MIN_LEAKAGE
from eris.methods.fedprox import FEDPROX
from eris.methods.gossip import GOSSIP
from eris.methods.method import Method, MethodFacts, MethodOptions, Planned, Seen
from eris.methods.priprune import PRIPRUNE, PRIPRUNE_PSEUDO
from eris.methods.qdpsgd import QDPSGD
from eris.methods.scaffold import SCAFFOLD
from eris.methods.shatter import SHATTER
from eris.methods.soteriafl import CDP_SGD, SOTERIAFL
from eris.registry import Registry

__all__ = [
    "METHODS",
    "Method",
    "MethodFacts",
    "MethodOptions",
    "Planned",
    "Seen",
    "check_options",
    "commented_options",
    "method_by_name",
    "with_defaults",
]

METHODS: Registry[Method] = Registry(
    "method",
    "eris.methods",
    {
        method.name: method
        for method in (
            *(FEDAVG, FEDAVG_LDP, FEDAVG_DPSGD, FEDAVG_COMPRESSED, MIN_LEAKAGE),
            *(SOTERIAFL, CDP_SGD, PRIPRUNE, PRIPRUNE_PSEUDO),
            *(GOSSIP, SHATTER, AKO, QDPSGD),
            *(ERIS, ERIS_DSC, ERIS_LDP, ERIS_DSC_LDP, ERIS_MASKED, ERIS_DSC_MASKED, FEDPROX, SCAFFOLD),
        )
    },
    refuses=lambda thing: "" if isinstance(thing, Method) else "make one with eris.Method(…)",
    about=lambda method: method.summary,
    options=lambda method: method.described_options,
)


def method_by_name(name: str) -> Method:
    """Return the method with this name or path `module:name`."""
    with concerning("method"):
        return METHODS.find(name)


def with_defaults(config: Config, name: str) -> Config:
    """Return the configuration for one method alone, completed with that method's own settings."""
    return method_by_name(name).completed(config.for_method(name))


def check_options(config: Config) -> None:
    """Refuse options of unknown methods, and options that a method does not take."""
    played = {method.name: method for method in map(method_by_name, config.methods)}  # some come by a path
    for name in config.options:
        with concerning(f"options.{name}"):
            (played.get(name) or METHODS.find(name)).settings(config)


def commented_options() -> str:
    """Return every method's own options as commented-out TOML, for the end of the file that `eris init` writes."""
    lines = ["", "# The methods' own options, each in its own table."]
    for method in METHODS.usable().values():
        fields = TypeAdapter(method.options).json_schema().get("properties", {})
        if fields:
            lines += ["", f"# [options.{_quoted(method.name)}]"]
        for name, about in fields.items():
            written = f"{name} = {json.dumps(about['default'])}" if "default" in about else f"{name} = …"
            lines.append(f"# {written:<34} # {about.get('description', '')}".rstrip(" #"))
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    """Return a name as a TOML key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
