"""The fleet: its peers, and how fast each can send and receive: one rate for all, or a TOML or CSV file of peers.

[[peer]]                     # fleet.toml          name,upload,download,memory,aggregate     (fleet.csv)
name = "oslo"                                      oslo,20MB/s,50MB/s,2GB,yes
upload = "20MB/s"                                  phone,1MB/s,5MB/s,,no
download = "50MB/s"
memory = "2GB"               # for aggregation; left out: no limit
aggregate = true             # may it hold a shard?
relayed = true               # nobody can dial it: all links to it go through the relay
count = 3                    # three of the same: oslo-1, oslo-2, oslo-3

[server]                     # for the methods that need one; left out: the fastest peer's rates
upload = "1Gbit/s"
download = "1Gbit/s"

[relay]                      # `eris relay`, for the peers that are relayed
upload = "1Gbit/s"
download = "1Gbit/s"
"""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import ConfigError
from eris.planner.quantity import parse_bytes, parse_rate

__all__ = ["Fleet", "Peer", "read_fleet"]

_KEYS = ("name", "upload", "download", "memory", "aggregate", "relayed", "count")
_YES, _NO = ("yes", "true", "1", ""), ("no", "false", "0")


@dataclass(frozen=True, slots=True)
class Peer:
    """One machine: bytes per second up and down (at the same time), and the memory it offers for aggregation."""

    name: str
    upload: float
    download: float
    memory: float = math.inf
    aggregate: bool = True
    relayed: bool = False  # it opens no port: what goes to it, or comes from it as an aggregator, is relayed

    def __post_init__(self) -> None:
        for way, rate in (("upload", self.upload), ("download", self.download)):
            if not (math.isfinite(rate) and rate > 0):
                raise ConfigError(
                    f"{way} rate is {rate}",
                    fix="give a rate above zero; leave out peers without a link",
                    peer=self.name,
                )
        if not self.memory > 0:
            raise ConfigError(f"memory is {self.memory}", fix="give bytes above zero, or leave it out", peer=self.name)


@dataclass(frozen=True)
class Fleet:
    """The peers in order; a peer's number is its place. `server` stands for the one that central methods need."""

    peers: tuple[Peer, ...]
    given_server: Peer | None = None
    relay: Peer | None = None  # what joins the links of peers that nobody can dial

    def __post_init__(self) -> None:
        names = [peer.name for peer in self.peers]
        if not names:
            raise ConfigError("the fleet has no peers", fix="give at least one")
        if len(set(names)) != len(names):
            repeated = sorted({name for name in names if names.count(name) > 1})
            raise ConfigError(f"peer names repeat: {repeated}", fix="give every peer its own name, or use count")
        if self.relay is None and (relayed := [peer.name for peer in self.peers if peer.relayed]):
            what = f"{relayed[0]} is relayed, but the fleet has no relay"
            raise ConfigError(what, fix="add a table [relay] with upload and download", peer=relayed[0])

    @classmethod
    def uniform(
        cls,
        members: int,
        rate: float,
        *,
        memory: float = math.inf,
        server_rate: float | None = None,
        relay_rate: float | None = None,
    ) -> Fleet:
        """Return a fleet of equal peers, as the paper's tables assume; with `relay_rate` nobody opens a port.

        Rates are bytes per second, the same up and down; `memory` is what each peer offers for aggregation, in bytes.

        `server_rate` is that of the server of central methods; by default it is a peer's.
        """
        if members < 1:
            raise ConfigError(f"members is {members}", fix="use at least one member")
        server = None if server_rate is None else Peer("server", server_rate, server_rate)
        relay = None if relay_rate is None else Peer("relay", relay_rate, relay_rate)
        peer = Peer("peer", rate, rate, memory, relayed=relay is not None)
        return cls(tuple(replace(peer, name=f"peer-{k}") for k in range(members)), server, relay)

    def __len__(self) -> int:
        return len(self.peers)

    @cached_property
    def server(self) -> Peer:
        """The server of central methods: as given, else a machine with the fastest peer's rates."""
        fastest = max(self.peers, key=lambda peer: min(peer.upload, peer.download))
        return self.given_server or replace(fastest, name="server", memory=math.inf)

    @cached_property
    def uploads(self) -> NDArray[np.float64]:
        """Upload rate of each peer, then of the server."""
        return np.array([peer.upload for peer in (*self.peers, self.server)])

    @cached_property
    def downloads(self) -> NDArray[np.float64]:
        """Download rate of each peer, then of the server."""
        return np.array([peer.download for peer in (*self.peers, self.server)])

    @cached_property
    def relayed(self) -> NDArray[np.bool_]:
        """Whether links to each peer go through the relay; the server is always reachable."""
        return np.array([*(peer.relayed for peer in self.peers), False])

    @property
    def rate(self) -> float | None:
        """The one rate of all links, None if they differ."""
        rates = {*self.uploads.tolist(), *self.downloads.tolist()}
        return rates.pop() if len(rates) == 1 else None

    @cached_property
    def candidates(self) -> tuple[int, ...]:
        """Peers that may aggregate, strongest first: least time to take in and give out the same amount."""
        able = [k for k, peer in enumerate(self.peers) if peer.aggregate]
        return tuple(sorted(able, key=lambda k: 1 / self.peers[k].upload + 1 / self.peers[k].download))

    def strongest(self, count: int) -> tuple[int, ...]:
        """Return that many aggregators, in order of their numbers."""
        if not 1 <= count <= len(self.peers):
            raise ConfigError(
                f"there are {count} aggregators for {len(self.peers)} members",
                fix=f"aggregators are members: use 1 … {len(self.peers)}",
            )
        if count > len(self.candidates):
            raise ConfigError(
                f"{count} aggregators are asked for, but only {len(self.candidates)} peers may aggregate",
                fix="ask for fewer, or set aggregate = true for more peers",
            )
        return tuple(sorted(self.candidates[:count]))

    def numbers_of(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the numbers of the peers of these names, which must exist and be willing to aggregate."""
        number = {peer.name: k for k, peer in enumerate(self.peers)}
        names = list(names)
        if missing := [name for name in names if name not in number]:
            known = ", ".join(list(number)[:8]) + (", …" if len(number) > 8 else "")
            raise ConfigError(f"no peer of the fleet is named {', '.join(map(repr, missing))}", fix=f"it has {known}")
        if unwilling := [name for name in names if not self.peers[number[name]].aggregate]:
            raise ConfigError(f"{', '.join(unwilling)} may not aggregate", fix="set aggregate = true, or name others")
        if len(set(names)) != len(names):
            raise ConfigError("an aggregator is named twice", fix="name each once")
        return tuple(sorted(number[name] for name in names))


def read_fleet(path: str | Path) -> Fleet:
    """Read a fleet from TOML (`[[peer]]` tables) or CSV (a line for each peer)."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        data: dict[str, Any] = (
            tomllib.loads(text) if path.suffix.lower() == ".toml" else {"peer": list(_csv_rows(text))}
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"fleet {path} cannot be read: {error}", fix="give a TOML or CSV file of peers") from error
    if unknown := sorted(set(data) - {"peer", "server", "relay"}):
        raise ConfigError(f"fleet {path} has unknown tables: {unknown}", fix="use [[peer]], [server] and [relay]")
    if not isinstance(rows := data.get("peer"), list):
        raise ConfigError(f"fleet {path} names no peers", fix="add [[peer]] tables with name, upload and download")
    peers = [peer for row in rows for peer in _peers_of(row)]
    server, relay = (
        _peers_of({"name": name, **data[name]})[0] if name in data else None for name in ("server", "relay")
    )
    return Fleet(tuple(peers), server, relay)


def _csv_rows(text: str) -> Iterable[Mapping[str, Any]]:
    for row in csv.DictReader(text.splitlines(), skipinitialspace=True):
        if None in row:
            raise ConfigError(
                f"a line has more fields than the header: {row[None]}", fix="give one field for each column"
            )
        yield {key.strip(): value.strip() for key, value in row.items() if key and value and value.strip()}


def _peers_of(row: Mapping[str, Any]) -> Sequence[Peer]:
    name = str(row.get("name", ""))
    if unknown := sorted(set(row) - set(_KEYS)):
        raise ConfigError(f"unknown keys: {unknown}", fix=f"use {', '.join(_KEYS)}", peer=name)
    if missing := [key for key in ("name", "upload", "download") if key not in row]:
        raise ConfigError(
            f"a peer has no {' and no '.join(missing)}", fix="give every peer a name and two rates", peer=name
        )
    memory = parse_bytes(row["memory"]) if "memory" in row else math.inf
    rates = parse_rate(row["upload"]), parse_rate(row["download"])
    peer = Peer(name, *rates, memory, _flag(row, "aggregate", "yes"), _flag(row, "relayed", "no"))
    try:
        count = int(row.get("count", 1))
    except ValueError:
        count = 0
    if count < 1:
        raise ConfigError(f"count is {row['count']!r}", fix="use a whole number ≥ 1", peer=name)
    return [peer] if "count" not in row else [replace(peer, name=f"{name}-{number + 1}") for number in range(count)]


def _flag(row: Mapping[str, Any], key: str, otherwise: str) -> bool:
    word = str(row.get(key, otherwise)).lower()
    if word not in _YES + _NO:
        raise ConfigError(f"{key} is {word!r}", fix="use yes or no", peer=row.get("name"))
    return word in _YES
