"""The method: a named composition of transforms over one or many aggregators, or an exchange of its own.

A method knows everything about itself: its options, what members do locally, how many bytes leave and who sees them.
Planner, report, exposure and documentation ask it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from eris.allowed_values import allowed_by
from eris.config import Config
from eris.errors import ConfigError
from eris.methods.exchange import MakeExchange
from eris.transforms import Transform

__all__ = ["Method", "MethodFacts", "MethodOptions", "NoOptions", "Planned", "Seen"]


class MethodOptions(BaseModel):
    """The options of a method, in `[options.NAME]`; subclasses declare them with types, defaults, descriptions.

    >>> class Mine(MethodOptions):
    ...     strength: float = 0.5
    >>> Method("mine", "an example", options=Mine).settings(Config(options={"mine": {"strength": 2.0}})).strength
    2.0
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NoOptions(MethodOptions):
    """The options of a method that has none."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A round to be planned: how large the model is, how many take part, and how the run is configured."""

    n: int  # trainable values
    buffers: int
    participants: int
    config: Config

    @property
    def bytes(self) -> int:
        """Bytes of the whole model."""
        return 4 * (self.n + self.buffers)


@dataclass(frozen=True, slots=True)
class Seen:
    """The largest share of a member's values that one observer sees in a round, and who that is."""

    share: float
    observer: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class MethodFacts:
    """What is known of a method's round in advance; anything left out follows from the method's parts.

    `kept` is the share of an update that leaves a member, and `upload` the bytes it takes (for one server; shards add
    up to it). `download` are the bytes of what is published; by default, the whole model. In a method with an exchange,
    `messages` says how many a member sends each way and the bytes of one, and `sight` what a coalition of a given size
    sees of them. `vectors` counts vectors as long as the model that travel beside the update, in both directions.
    """

    kept: Callable[[Planned], float] | None = None
    upload: Callable[[Planned], float] | None = None
    download: Callable[[Planned], float] | None = None
    messages: Callable[[Planned], tuple[float, float]] | None = None
    sight: Callable[[Planned, int], Seen] | None = None
    vectors: int = 0


def _as_it_is(config: Config) -> Config:
    return config


@dataclass(frozen=True, slots=True)
class Method:
    """A named way to train together.

    Args:
        name: what configurations call it.
        summary: one line for `eris list`.
        packing: builds the last transform of the chain; None sends values as they are. Clipping and noise, if the
            configuration asks for them, come before it.
        server: there is one aggregator, and it is not a member: it sees every update whole.
        trusted: the server tells nobody what it sees, so nothing counts as seen.
        with_defaults: fills in the settings that make the method; applying it twice changes nothing. It may also name
            a correction of local gradients (`local.correction`).
        exchange: members have their own models and exchange messages; nobody aggregates.
        sends_models: models go through the exchange; otherwise gradients do.
        label: what tables and plots call it.
        options: the settings of the method's own table, `[options.NAME]`; read them with `settings`.
        transforms: come before everything else that is done to an update.
        check: refuses configurations that make no sense with the method.
        facts: bytes and sight of a round, for planner and reports.
    """

    name: str
    summary: str
    packing: Callable[[Config], Transform] | None = None
    server: bool = False
    trusted: bool = False
    with_defaults: Callable[[Config], Config] = _as_it_is
    exchange: MakeExchange | None = None
    sends_models: bool = True  # through the exchange; otherwise gradients
    label: str = ""  # as tables and plots call it
    options: type[Any] = NoOptions  # a pydantic model, or a dataclass
    transforms: Callable[[Config], Sequence[Transform]] | None = None
    check: Callable[[Config], None] | None = None
    facts: MethodFacts = MethodFacts()

    def aggregators(self, config: Config) -> int:
        """Return the number of shards A."""
        return 1 if self.server or self.exchange else config.aggregators

    @property
    def described_options(self) -> str:
        """What `[options.NAME]` takes, in one line."""
        fields = TypeAdapter(self.options).json_schema().get("properties", {})
        said = []
        for name, each in fields.items():
            default = f" = {json.dumps(each['default'])}" if "default" in each else ""
            said.append(f"{name}{default}: {each.get('description', '')}".removesuffix(": "))
        return "; ".join(said)

    def settings(self, config: Config) -> Any:
        """Return the method's own options: those that a configuration gives, and defaults for the rest."""
        table = config.options.get(self.name, {})
        try:
            return TypeAdapter(self.options).validate_json(json.dumps(table))
        except ValidationError as error:
            raise _explained(self, table, error) from None

    def completed(self, config: Config) -> Config:
        """Return the configuration for this method alone, with all its defaults filled in."""
        config = self.with_defaults(config)
        if config.privacy.masking == "pairs" and not (self.server or self.exchange):  # pads work on integers only
            config = config.model_copy(update={"server": config.server.model_copy(update={"encoding": "fixed"})})
        plain = TypeAdapter(self.options).dump_python(self.settings(config), mode="json", exclude_none=True)
        return config.model_copy(update={"options": {self.name: plain} if plain else {}})


def _explained(method: Method, table: dict[str, Any], error: ValidationError) -> ConfigError:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    key = f"options.{method.name}.{name}".rstrip(".")
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        known = TypeAdapter(method.options).json_schema().get("properties", {})
        fix = f"use {', '.join(sorted(known))}" if known else f"{method.name} takes no options"
        return ConfigError(f"there is no key {key}", fix=fix, key=key)
    if first["type"].startswith("missing"):
        return ConfigError(f"{method.name} needs {key}", fix=f"give it in [options.{method.name}]", key=key)
    return ConfigError(f"{key} cannot be {table.get(name)!r}", fix=allowed_by(error, name), key=key)
