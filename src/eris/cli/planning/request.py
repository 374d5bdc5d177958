"""The command line of `eris plan`, and the round it describes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from rich.markup import escape

from eris.cli.planning.plan_options import AdviceOptions, FleetOptions, MethodChoice, OutputOptions
from eris.config import Config, load_config
from eris.errors import ConfigError
from eris.methods import check_options
from eris.paper.table_rules import BaselineSettings
from eris.planner import Fleet, Scenario, allocate, model_size, read_fleet, scenario
from eris.planner.quantity import parse_rate, parse_share
from eris.planner.scenario import participants_of
from eris.report.units import format_bytes, format_count, format_percent

__all__ = ["Asked", "completed", "config_of", "describe", "headline", "kept_of", "printed_settings", "scenario_of"]


_SMALL_RATE = 1000  # bytes per second: whoever writes less without a unit forgot one


@dataclass(frozen=True)
class Asked(FleetOptions, MethodChoice, AdviceOptions, OutputOptions):
    """The command line as it was given."""

    model: str = "resnet9"
    encoding: str = "float"  # as a configuration file says
    config: Config = field(default_factory=Config)


def completed(asked: Asked) -> Asked:
    """Return what was asked, with a configuration file's settings or the defaults where nothing was said."""
    if asked.omega is not None and asked.keep:
        raise ConfigError("--keep and --omega set the same thing", fix="give one of the two")
    for rate in (asked.rate, asked.server_rate, asked.relay_rate):
        if rate.isdigit() and 0 < int(rate) < _SMALL_RATE:
            fix = f"write {rate}MB/s or {rate}Mbit/s"
            raise ConfigError(f"rate is {rate!r}, which would be bytes per second", fix=fix)
    if not asked.model.endswith(".toml"):
        return _filled(asked, participation="100%", keep="5%", masks="shared")
    config = load_config(asked.model)
    share, kept = str(config.participation), str(config.compression.keep)
    asked = _filled(asked, participation=share, keep=kept, masks=config.compression.masks)
    asked = replace(asked, config=config, encoding=config.server.encoding)
    if asked.members is not None or asked.fleet is not None:
        return asked  # another fleet than the file's
    return replace(asked, members=config.members, aggregators=asked.aggregators or str(config.aggregators))


def _filled(asked: Asked, **settings: str) -> Asked:
    return replace(asked, **{name: getattr(asked, name) or value for name, value in settings.items()})  # type: ignore[arg-type]


def kept_of(asked: Asked) -> float:
    """Return the share of the values that DSC keeps."""
    if asked.omega is None:
        return parse_share(asked.keep)
    if not asked.omega >= 0:
        raise ConfigError(f"ω is {asked.omega}", fix="use ω ≥ 0")
    return 1 / (1 + asked.omega)


def config_of(asked: Asked) -> Config:
    """Return what the methods read their options from: the file's, unless the command line says otherwise."""
    said: dict[str, dict[str, Any]] = {
        "priprune": {"prune": asked.prune},
        "priprune-pseudo": {"prune": asked.prune},
        "shatter": {"virtual_degree": asked.degree, "virtual_nodes": asked.chunks},
        "ako": {"partitions": asked.partitions},
    }
    options = dict(asked.config.options)
    for method, given in said.items():
        options[method] = {**options.get(method, {}), **{k: v for k, v in given.items() if v is not None}}
    config = asked.config.model_copy(update={"options": options})
    check_options(config)
    return config


def printed_settings(asked: Asked) -> BaselineSettings:
    """Return what the paper's tables depend on: its own figures, unless the command line says otherwise."""
    said = {
        "prune": asked.prune,
        "shatter_degree": asked.degree,
        "shatter_chunks": asked.chunks,
        "ako_partitions": asked.partitions,
    }
    return BaselineSettings(**{name: value for name, value in said.items() if value is not None})  # type: ignore[arg-type]


def _fleet(asked: Asked) -> Fleet:
    if asked.fleet is None:
        server, relay = (parse_rate(rate) if rate else None for rate in (asked.server_rate, asked.relay_rate))
        members = 50 if asked.members is None else asked.members
        return Fleet.uniform(members, parse_rate(asked.rate), server_rate=server, relay_rate=relay)
    fleet = read_fleet(asked.fleet)
    if asked.relay_rate:
        raise ConfigError("--relay-rate is for a fleet of equal peers", fix="add a table [relay] to the fleet's file")
    if asked.members not in (None, len(fleet)):
        raise ConfigError(
            f"--members is {asked.members}, the fleet has {len(fleet)} peers", fix="leave --members out with --fleet"
        )
    return fleet


def scenario_of(asked: Asked, *, choose: bool = False) -> Scenario:
    """Return the round that was asked for; with `choose` the aggregators are left to the advice."""
    fleet = _fleet(asked)
    wanted = [name.strip() for name in asked.aggregators.split(",") if name.strip()]
    number = len(wanted) == 1 and wanted[0].lstrip("-").isdigit()
    owners = None if choose or not wanted else int(wanted[0]) if number else fleet.numbers_of(wanted)
    share = parse_share(asked.participation)
    round = scenario(
        n=model_size(asked.model),
        fleet=fleet,
        aggregators=owners,
        participants=None if share == 1 else participants_of(len(fleet), share),
        audience=asked.audience,  # type: ignore[arg-type]  # checked by scenario
        keep=kept_of(asked),
        masks=asked.masks,  # type: ignore[arg-type]
        header=asked.header,
        chunk=asked.chunk or math.inf,
        config=config_of(asked),
        replicas=asked.replicas,
        encoding=asked.encoding,  # type: ignore[arg-type]  # checked with the file
    )
    return round if choose else _with_shards(round, asked.shards)


def _with_shards(round: Scenario, shards: str) -> Scenario:
    if shards == "even":
        return round
    if shards != "capacity":
        raise ConfigError(f"--shards is {shards!r}", fix="use even or capacity")
    found = allocate(round)
    if found is None:
        raise ConfigError("no shard sizes fit the memory of these aggregators", fix="use more of them, or --advise")
    return replace(round, shares=found.shares)


def describe(round: Scenario) -> dict[str, Any]:
    """Return the round as plain data."""
    names = [peer.name for peer in round.fleet.peers]
    return {
        "model": round.model.name,
        "values": round.model.n,
        "buffers": round.model.buffers,
        "members": round.members,
        "participants": len(round.participants),
        "audience": len(round.audience),
        "aggregators": [names[peer] for peer in round.aggregators],
        "shard_sizes": round.shard_sizes.tolist(),
        "replicas": round.replicas,
        "keep": round.keep,
        "omega": round.omega,
        "masks": round.masks,
        "encoding": round.encoding,
        "rate": round.fleet.rate,
    }


def headline(round: Scenario) -> str:
    """Say in one line what is planned."""
    model = f"{escape(round.model.name)}, " if round.model.name else ""
    buffers = f" + {format_count(round.model.buffers)} buffers" if round.model.buffers else ""
    rate = f"{format_bytes(round.fleet.rate)}/s each way" if round.fleet.rate else "rates of the fleet"
    relay = f", relayed at {format_bytes(at.upload)}/s" if (at := round.fleet.relay) is not None else ""
    part = "" if len(round.participants) == round.members else f" ({len(round.participants)} take part)"
    twice = " (two for each shard)" if round.replicas > 1 else ""
    size = f"{format_count(round.model.n)} values{buffers} ({format_bytes(round.model.bytes)})"
    return (
        f"[bold]One round[/]: {model}{size}, "
        f"{round.members} members{part}, aggregators: {len(round.aggregators)}{twice}, {rate}{relay}"
        + (f"; DSC keeps {format_percent(round.keep)}, {round.masks} masks" if round.keep < 1 else "")
    )
