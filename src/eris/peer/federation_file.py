"""FEDERATION.toml, which all peers of a real run share: a run's configuration, and where and with whom it happens.

    [federation]
    name = "hospitals"                    # the CA's federation
    coordinator = "10.0.0.5:7443"
    peers = ["amber", "birch", "cedar"]   # names on certificates; the order gives each its number
    …                                     # then everything `eris run` understands, for one method

Members accept the file by its digest: two peers with the same digest mean the same run.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eris.compose import could_be_masked
from eris.config import Config, Faults, dump_config, load_config
from eris.errors import ConfigError, InputError
from eris.methods import with_defaults
from eris.protocol.agreement import Agreement
from eris.protocol.floor import Floor
from eris.protocol.round_plan import Deadlines
from eris.protocol.rules import Rules
from eris.protocol.take_over import majority_of
from eris.transport.control import COORDINATOR
from eris.transport.link import LinkLimits
from eris.transport.names import check_name
from eris.wire import HEADER_BYTES
from eris.wire.frame import LONGEST_CHUNK

__all__ = ["FederationFile", "load_federation", "parse_address"]

_UNREACHED_ROUNDS = 2  # one round may be a broken link; a second one is a closed port
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Settings(BaseModel):
    """The table [federation]."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="the federation on all certificates")
    coordinator: str = Field(description="host:port of the coordinator")
    standbys: dict[str, str] = Field(
        default_factory=dict,
        description="name on its certificate → host:port of whoever may take over from the coordinator; with any "
        "listed, a verdict needs more than half of the peers",
    )
    peers: tuple[str, ...] = Field(min_length=1, description="names of all members")
    aggregators: tuple[str, ...] = Field(
        default=(), description="who may aggregate; empty: everybody who can be dialled"
    )
    operators: tuple[str, ...] = Field(
        default=(), description="who may ask for the status and end the run, without being a peer"
    )
    connect: Seconds = Field(default=10.0, description="seconds to reach a peer")
    idle: Seconds = Field(default=30.0, description="seconds in which at least 64 KiB must move")
    round: Seconds = Field(default=120.0, description="most seconds from a round's plan to its verdict")
    quorum: Annotated[int, Field(ge=0)] = Field(
        default=0, description="peers that must hold a shard for it to count; 0: more than half"
    )
    max_share: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="largest share of an update that one peer may see, also when it stands in for another; "
        "by default two shards' worth, but never everything",
    )
    min_aggregators: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="fewest peers an update is divided among; by default 2, or all if fewer"
    )
    max_weight: Annotated[float, Field(gt=0, le=2.0**53)] = Field(
        default=2.0**53, description="most samples that a member may count for"
    )
    organisations: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="organisation → its peers; if given, peers cannot claim another one"
    )
    checkpoint_every: Annotated[int, Field(ge=1)] = Field(default=10, description="rounds between checkpoints")


class FederationFile:
    """A run over a network, as its file describes it."""

    def __init__(self, settings: dict[str, Any], config: Config) -> None:
        try:
            self.settings = _Settings(**settings)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(["federation", *map(str, first["loc"])])
            raise ConfigError(first["msg"], fix="see docs/first-hour.md for an example", key=key) from None
        self._check_names()
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
                "simulated faults are for `eris run`; a real network has its own",
                fix="leave [faults] out",
                key="faults",
            )
        if config.local.cohort > 1:
            raise ConfigError(
                "a peer trains alone: cohorts are for `eris run`, and give different bits",
                fix="leave local.cohort out",
                key="local.cohort",
            )
        self.config = with_defaults(config, config.methods[0])

    def _check_names(self) -> None:
        """Refuse names that no certificate can carry: they become parts of paths and log lines."""
        settings = self.settings
        lists = {"name": (settings.name,), "peers": settings.peers, "operators": settings.operators}
        lists["standbys"] = tuple(settings.standbys)
        for key, names in lists.items():
            for name in names:
                try:
                    check_name(name, what="federation" if key == "name" else "peer")
                except InputError as error:
                    raise ConfigError(error.what, fix=error.fix, key=f"federation.{key}") from None
        everybody = (COORDINATOR, *settings.standbys, *settings.peers, *settings.operators)
        if any(everybody.count(name) > 1 for name in (COORDINATOR, *settings.standbys, *settings.operators)):
            raise ConfigError(
                "peers, operators, standbys and the coordinator must have different names",
                fix=f"call none of them {COORDINATOR!r}, and give no operator or standby a peer's name",
                key="federation.peers",
            )
        for name, place in settings.standbys.items():
            parse_address(place, key=f"federation.standbys.{name}")
        named = [name for names in settings.organisations.values() for name in names]
        if len(set(named)) != len(named) or not set(named) <= set(settings.peers):
            raise ConfigError(
                "an organisation lists a name that is not a peer, or two list the same peer",
                fix="list peers, each once",
                key="federation.organisations",
            )
        if strangers := set(settings.aggregators) - set(settings.peers):
            raise ConfigError(
                f"{', '.join(sorted(strangers))} may aggregate, but is not listed as a peer",
                key="federation.aggregators",
            )

    @property
    def name(self) -> str:
        """The federation's name."""
        return self.settings.name

    @property
    def peers(self) -> tuple[str, ...]:
        """All members; a member's number is its place here."""
        return self.settings.peers

    @property
    def organisations(self) -> dict[int, str]:
        """Peer number → organisation, as agreed; empty if each peer states its own."""
        return {
            self.number(name): organisation
            for organisation, names in self.settings.organisations.items()
            for name in names
        }

    @property
    def coordinator(self) -> tuple[str, int]:
        """Host and port of the coordinator."""
        return parse_address(self.settings.coordinator, key="federation.coordinator")

    @property
    def coordinators(self) -> dict[str, tuple[str, int]]:
        """All possible coordinators by name, with host and port: the first one, then the standbys."""
        standbys = self.settings.standbys.items()
        places = {name: parse_address(place, key=f"federation.standbys.{name}") for name, place in standbys}
        return {COORDINATOR: self.coordinator, **places}

    @property
    def majority(self) -> int:
        """How many listed peers must report for a verdict; 0 where nobody can take over."""
        return majority_of(len(self.peers)) if self.settings.standbys else 0

    @property
    def deadlines(self) -> Deadlines:
        """The deadlines of a round: aggregators cut after three quarters of its time; the rest is for publishing."""
        return Deadlines(contribute=0.75 * self.settings.round, report=self.settings.round)

    @property
    def link_limits(self) -> LinkLimits:
        """The limits that both ends of every link enforce."""
        connect, idle = self.settings.connect, self.settings.idle
        handshake = max(10.0, connect)  # where connecting is slow, greetings are too
        return LinkLimits(HEADER_BYTES, LONGEST_CHUNK, connect=connect, handshake=handshake, idle=idle)

    def rules(self, run: str, aggregators: tuple[int, ...]) -> Rules:
        """Return the coordinator's rules, if these peers aggregate the shards when all are here."""
        config, settings = self.config, self.settings
        return Rules(
            run=run,
            aggregators=aggregators,
            participation=config.participation,
            normalisation=config.server.normalisation,
            min_contributors=config.server.min_contributors,
            quorum=settings.quorum,
            majority=self.majority,
            max_share=settings.max_share,
            checkpoint_every=settings.checkpoint_every,
            unreached_rounds=_UNREACHED_ROUNDS,
            deadlines=self.deadlines,
        )

    @property
    def floor(self) -> Floor:
        """The default floor, for members that set none."""
        least = self.settings.min_aggregators or min(2, self.config.aggregators)
        return Floor(least, self.settings.max_share, min_contributors=self.config.server.min_contributors)

    def floor_of(
        self, *, min_aggregators: int | None, max_share: float | None, may_be_weaker: bool, **others: Any
    ) -> Floor:
        """Return the floor of a member that asked for these values; weaker than the federation's only if it said so.

        Args:
            min_aggregators: None: as the federation says.
            max_share: None: as the federation says.
            may_be_weaker: whether this member accepts less than the federation's floor.
            others: further fields of `Floor`.
        """
        agreed, shards = self.floor, self.config.shards
        load = min(1.0, shards.replicas / self.config.aggregators)
        usual = 2 * load if 2 * load < 1 else load
        largest = usual if agreed.max_share is None else agreed.max_share
        weaker = []
        if min_aggregators is not None and min_aggregators < agreed.min_aggregators:
            weaker.append(
                f"--min-aggregators {min_aggregators} lets fewer than {agreed.min_aggregators} peers see it all"
            )
        if max_share is not None and max_share > largest:
            weaker.append(f"--max-share {max_share:g} lets one peer see more than {largest:.0%} of every update")
        if weaker and not may_be_weaker:
            raise ConfigError(
                f"this floor is weaker than the federation's: {'; '.join(weaker)}",
                fix="leave it out, or add --show-more-than-agreed",
            )
        return Floor(
            agreed.min_aggregators if min_aggregators is None else min_aggregators,
            agreed.max_share if max_share is None else max_share,
            **others,
        )

    def agreement(self, run: str) -> Agreement:
        """Return what every plan of this run must say, whoever coordinates it."""
        config, chosen = self.config, self.settings.aggregators
        return Agreement(
            run=run,
            names=self.peers,
            aggregators=frozenset(map(self.number, chosen)) if chosen else None,
            participation=config.participation,
            normalisation=config.server.normalisation,
            min_contributors=config.server.min_contributors,
            uniform=config.server.weights == "uniform",
            organisations=self.organisations or None,
            heaviest=self.settings.max_weight,
            min_effective=Floor(min_contributors=config.server.min_contributors).effective,
            deadlines=self.deadlines,
        )

    @property
    def digest(self) -> str:
        """The digest that members accept: of the file without addresses."""
        shared = self.settings.model_dump(exclude={"coordinator", "standbys"}) | {"config": self.config.digest}
        if self.settings.standbys:
            shared["standbys"] = sorted(self.settings.standbys)  # who may take over is agreed; where it is may change
        return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()

    def number(self, name: str) -> int:
        """Return a member's number."""
        if name not in self.peers:
            raise ConfigError(f"{name} is not a peer of this federation", fix=f"use one of {list(self.peers)}")
        return self.peers.index(name)

    def dump(self) -> str:
        """Return the file's text."""
        settings = {key: value for key, value in self.settings.model_dump().items() if value not in ((), None, {})}
        table = tomli_w.dumps({"federation": {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}})
        return dump_config(self.config) + "\n" + table


def load_federation(path: Path) -> FederationFile:
    """Read FEDERATION.toml."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}",
            fix="give the path of FEDERATION.toml, or write one with `eris init --peers A,B,C,D`",
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}", fix="correct that line") from None
    settings = data.pop("federation", None)
    if not isinstance(settings, dict):
        raise ConfigError("there is no table [federation]", fix="see docs/first-hour.md for an example", path=path)
    peers = settings.get("peers")
    if isinstance(peers, list):
        data.setdefault("members", len(peers))
        data.setdefault("aggregators", data["members"])  # all who can, whatever a simulation would take
    federation = FederationFile(settings, load_config(data))
    _require_choice(data, federation.config, path)
    return federation


def _require_choice(data: Mapping[str, Any], config: Config, path: Path) -> None:
    """Refuse a file that shows aggregators every member's values without a word about it, where masks would not.

    Only files are held to this: whoever builds a `FederationFile` has a configuration at hand.
    """
    privacy = data.get("privacy")
    if not (isinstance(privacy, dict) and "masking" in privacy) and could_be_masked(config):
        raise ConfigError(
            "it does not say whether shards are masked; if not, each aggregator sees its part of your update",
            fix='under [privacy] write masking = "pairs" (aggregators see sums), or masking = "none" to accept that',
            key="privacy.masking",
            path=path,
        )


def parse_address(text: str, *, key: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[v6]:port``."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 65536:
        raise ConfigError(f"address is {text!r}", fix="use host:port, with [brackets] around an IPv6 address", key=key)
    return host.strip("[]"), int(port)
