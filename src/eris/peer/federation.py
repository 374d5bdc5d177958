"""FEDERATION.toml: what all peers of a real run share. A run's configuration, and where and with whom it happens.

    [federation]
    name = "hospitals"                    # the CA's federation
    coordinator = "10.0.0.5:7443"
    peers = ["amber", "birch", "cedar"]   # names on certificates; the order gives each its number
    …                                     # then everything `eris run` understands, for one method

The file's digest is what a member accepts: two peers with the same digest mean the same run.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eris.config import Config, Faults, dump_config, load_config
from eris.errors import ConfigError
from eris.methods import settled
from eris.protocol.round_plan import Deadlines

__all__ = ["Federation", "load_federation"]

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Settings(BaseModel):
    """The table [federation]."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="the federation on all certificates")
    coordinator: str = Field(description="host:port of the coordinator")
    peers: tuple[str, ...] = Field(min_length=1, description="names of all members")
    aggregators: tuple[str, ...] = Field(
        default=(), description="who may aggregate; empty: everybody who can be dialled"
    )
    connect: Seconds = Field(default=10.0, description="seconds to reach a peer")
    idle: Seconds = Field(default=30.0, description="seconds in which at least 64 KiB must move")
    round: Seconds = Field(default=120.0, description="seconds from a round's plan to its verdict, at most")
    quorum: Annotated[int, Field(ge=0)] = Field(
        default=0, description="peers that must hold a shard for it to count; 0: more than half"
    )
    max_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="share of an update one peer may come to see when it stands in for another"
    )
    checkpoint_every: Annotated[int, Field(ge=1)] = Field(default=10, description="rounds between checkpoints")


class Federation:
    """A run over a network, as its file describes it."""

    def __init__(self, settings: dict[str, Any], config: Config) -> None:
        try:
            self.settings = _Settings(**settings)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(["federation", *map(str, first["loc"])])
            raise ConfigError(first["msg"], fix="see docs/first-hour.md for an example", key=key) from None
        if len(set(self.settings.peers)) != len(self.settings.peers):
            raise ConfigError("a peer is listed twice", fix="list every name once", key="federation.peers")
        if len(config.methods) != 1:
            raise ConfigError(
                f"method is {list(config.methods)}", fix="a federation runs one method at a time", key="method"
            )
        if config.members != len(self.settings.peers):
            raise ConfigError(
                f"members is {config.members}, but {len(self.settings.peers)} peers are listed",
                fix="leave members out: it is the number of peers",
                key="members",
            )
        if config.faults != Faults():
            raise ConfigError(
                "faults on purpose are for `eris run`; a real network has its own",
                fix="leave [faults] out",
                key="faults",
            )
        if config.local.cohort > 1:
            raise ConfigError(
                "a peer trains alone: cohorts are for `eris run`, and have other bits",
                fix="leave local.cohort out",
                key="local.cohort",
            )
        self.config = settled(config, config.methods[0])

    @property
    def name(self) -> str:
        """The federation's name."""
        return self.settings.name

    @property
    def peers(self) -> tuple[str, ...]:
        """All members; a member's number is its place here."""
        return self.settings.peers

    @property
    def coordinator(self) -> tuple[str, int]:
        """Host and port of the coordinator."""
        return parse_address(self.settings.coordinator, key="federation.coordinator")

    @property
    def deadlines(self) -> Deadlines:
        """An aggregator cuts after three quarters of the round's time; the rest is for publishing."""
        return Deadlines(contribute=0.75 * self.settings.round, report=self.settings.round)

    @property
    def digest(self) -> str:
        """What members accept: the file without where things are."""
        shared = self.settings.model_dump(exclude={"coordinator"}) | {"config": self.config.digest}
        return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()

    def number(self, name: str) -> int:
        """Return a member's number."""
        if name not in self.peers:
            raise ConfigError(f"{name} is not a peer of this federation", fix=f"use one of {list(self.peers)}")
        return self.peers.index(name)

    def dump(self) -> str:
        """Return the file's text."""
        settings = {key: value for key, value in self.settings.model_dump().items() if value not in ((), None)}
        table = tomli_w.dumps({"federation": {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}})
        return dump_config(self.config) + "\n" + table


def load_federation(path: Path) -> Federation:
    """Read FEDERATION.toml."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", fix="give the path of FEDERATION.toml") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}", fix="mend that line") from None
    settings = data.pop("federation", None)
    if not isinstance(settings, dict):
        raise ConfigError("there is no table [federation]", fix="see docs/first-hour.md for an example", path=path)
    peers = settings.get("peers")
    if isinstance(peers, list):
        data.setdefault("members", len(peers))
    return Federation(settings, load_config(data))


def parse_address(text: str, *, key: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[v6]:port``."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 65536:
        raise ConfigError(f"address is {text!r}", fix="use host:port, with [brackets] around an IPv6 address", key=key)
    return host.strip("[]"), int(port)
