"""The run's configuration as plain typed data, TOML in and out.

This module does not know what the names mean: `eris.compose` does. Types, ranges and unknown keys are checked here, and
every error names the key, its value and what is allowed.

>>> config = load_config(changes=["rounds=3", "data.partition=dirichlet"])
>>> config.rounds, config.data.partition, config.aggregators == config.members
(3, 'dirichlet', True)
>>> load_config(changes=["round=3"])
Traceback (most recent call last):
...
eris.errors.ConfigError: there is no key round [key=round, value=3]: did you mean rounds?
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from eris.allowed_values import DEVICE, STOP, allowed_values
from eris.errors import ConfigError

__all__ = [
    "MOST_AGGREGATORS",
    "Compression",
    "Config",
    "Data",
    "Faults",
    "Local",
    "Model",
    "Network",
    "Privacy",
    "Server",
    "Shards",
    "commented_config",
    "concerning",
    "dump_config",
    "load_config",
]

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Options = dict[str, str | int | float | bool]

# Where the settings of the former table [baselines] are now: old key → (method, option).
_MOVED: dict[str, tuple[tuple[str, str], ...]] = {
    "prune": (("priprune", "prune"), ("priprune-pseudo", "prune")),
    "soteria_keep": (("soteriafl", "keep"), ("cdp-sgd", "keep")),
    "virtual_nodes": (("shatter", "virtual_nodes"),),
    "virtual_degree": (("shatter", "virtual_degree"),),
    "partitions": (("ako", "partitions"),),
    "ako_combine": (("ako", "combine"),),
    "degree": (("gossip", "degree"), ("qdpsgd", "degree")),
    "consensus": (("qdpsgd", "consensus"),),
    "levels": (("qdpsgd", "levels"),),
    "start": tuple((method, "start") for method in ("gossip", "shatter", "ako", "qdpsgd")),
}
MOST_AGGREGATORS = 50  # by default: a round has members × aggregators messages
_FOLLOWING = {"aggregators", "momentum"}  # unless given, their values follow another setting


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Data(_Table):
    """Which data to train on, and how it is divided among members."""

    name: str = Field(
        default="mnist-sample", description="a data set by name (`eris list datasets`), or package.module:function"
    )
    partition: str = Field(
        default="iid", description="how samples are divided: iid, dirichlet, label-skew, quantity-skew, natural"
    )
    partition_options: Options = Field(default_factory=dict, description="arguments of a partition of your own")
    alpha: Positive = Field(default=0.5, description="Dirichlet parameter: the smaller, the more uneven")
    classes_per_member: Count = Field(default=2, description="for label-skew")
    samples: Annotated[int, Field(ge=0)] = Field(
        default=0, description="training samples per member; 0: all that it has"
    )
    test_samples: Annotated[int, Field(ge=0)] = Field(default=0, description="test samples to evaluate on; 0: all")
    validation: NotNegative = Field(default=0.1, description="validation samples per training sample")
    fold: Annotated[int, Field(ge=0)] = Field(
        default=0, description="each fold is a different partition of the same data"
    )


class Model(_Table):
    """Which network to train."""

    name: str = Field(default="lenet5", description="a model by name, or package.module:Class")
    options: Options = Field(default_factory=dict, description="arguments of the model")


class Local(_Table):
    """What a member does with its data in a round."""

    epochs: Count = Field(default=1, description="passes over the member's samples")
    steps: Annotated[int, Field(ge=0)] = Field(
        default=6, description="batches per round instead of epochs; 0: use epochs"
    )
    batch: Literal["full"] | Count = Field(default=32, description="samples per batch, or full")
    micro_batch: Annotated[int, Field(ge=0)] = Field(
        default=0, description="samples of a batch to compute at once, for large models; 0: all"
    )
    optimizer: Literal["sgd", "adam", "adamw"] = Field(default="sgd", description="optimizer of local training")
    lr: Positive = Field(default=0.05, description="learning rate of the local optimizer")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9, description="for sgd")
    betas: tuple[float, float] = Field(default=(0.9, 0.999), description="for adam and adamw")
    eps: Positive = Field(default=1e-8, description="for adam and adamw")
    weight_decay: NotNegative = Field(default=0.0, description="weight decay of the local optimizer")
    keep_state: bool = Field(default=False, description="carry momentum or moments over to the next round")
    send: Literal["delta", "gradient"] = Field(
        default="delta", description="what is sent: start − end, or one gradient"
    )
    estimator: Literal["sgd", "svrg", "saga"] = Field(default="sgd", description="for send = gradient")
    refresh: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="for svrg: probability of a new snapshot"
    )
    correction: str = Field(
        default="", description="what to add to every local gradient, by name (`eris list corrections`)"
    )
    correction_options: Options = Field(default_factory=dict, description="arguments of the correction")
    buffers: Literal["average", "local", "frozen"] = Field(
        default="average", description="what happens to the model's running statistics"
    )
    loss: Annotated[str, Field(min_length=1)] = Field(
        default="cross-entropy",
        description="cross-entropy, mse, bce, tokens, next-token, model, or package.module:function",
    )
    metrics: tuple[str, ...] = Field(default=(), description="further metrics, each as package.module:function")
    keep: tuple[str, ...] = Field(
        default=(), description='tensors that stay with their member, by pattern: ["head.*", "*.bn*"]'
    )
    device: Annotated[str, Field(pattern=DEVICE)] = Field(
        default="cpu", description="where this machine trains: auto, cpu, cuda, cuda:1, mps"
    )
    precision: Literal["float32", "bf16", "fp16"] = Field(
        default="float32", description="number format of training; weights stay float32"
    )
    cohort: Count = Field(
        default=1,
        description="members trained in one vectorised call: faster, but not bit for bit what a real peer computes",
    )

    @model_validator(mode="before")
    @classmethod
    def _whoever_says_epochs_means_epochs(cls, data: Any) -> Any:
        if isinstance(data, dict) and "steps" not in data and {"epochs", "batch", "send"} & set(data):
            return {**data, "steps": 0}
        return data

    @model_validator(mode="before")
    @classmethod
    def _momentum_is_a_matter_of_sgd(cls, data: Any) -> Any:
        if isinstance(data, dict) and "momentum" not in data and data.get("optimizer", "sgd") != "sgd":
            return {**data, "momentum": 0.0}
        return data


class Shards(_Table):
    """How the model is cut into shards."""

    plan: Literal["random", "contiguous", "tensor"] = Field(
        default="random", description="which coordinates go together"
    )
    block: Count = Field(default=1, description="coordinates dealt out at a time")
    schedule: Literal["fixed", "redraw", "rotate"] = Field(default="fixed", description="whether the plan changes")
    every: Count = Field(default=1, description="rounds between changes")
    capacities: tuple[NotNegative, ...] = Field(
        default=(), description="relative capacity of each aggregator; empty: equal"
    )
    replicas: Annotated[int, Field(ge=1, le=2)] = Field(
        default=1, description="aggregators of each shard; 2: their means are compared, and both see it"
    )


class Compression(_Table):
    """What `+dsc` methods compress with, and how references move."""

    compressor: str = Field(default="rand_k", description="a compressor by name (`eris list compressors`)")
    keep: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.2, description="kept share p of a sparsifier (ω = 1/p − 1)"
    )
    masks: Literal["shared", "independent"] = Field(
        default="shared", description="one mask per round, or one for each member"
    )
    options: Options = Field(default_factory=dict, description="further arguments of the compressor")
    gamma: Literal["paper", "diana"] | Annotated[float, Field(gt=0, le=1)] = Field(
        default="paper", description="reference step: paper, diana or a number (1 for biased compressors)"
    )
    shared_reference: bool = Field(default=False, description="one reference for all instead of one for each member")
    gamma_schedule: str = Field(
        default="constant", description="γ_t over the rounds: constant, cosine, inverse_sqrt, stepwise"
    )
    gamma_schedule_options: Options = Field(default_factory=dict, description="arguments of that schedule")


class Privacy(_Table):
    """How an update is protected before compression."""

    clip: NotNegative = Field(default=0.0, description="ℓ2 bound of an update; 0: off")
    noise_multiplier: NotNegative = Field(
        default=0.0, description="noise σ in units of the sensitivity (a member's 2C, a sample's C); 0: off"
    )
    epsilon: Literal["auto", "none"] | Positive = Field(
        default="auto",
        description="set noise by its ε instead; auto: 10 over all rounds for methods made of noise; none: no noise",
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(default=1e-5, description="the δ that goes with ε")
    accounting: Literal["all-rounds", "per-round"] = Field(
        default="all-rounds", description="whether epsilon covers the whole run or each round alone"
    )
    unit: Literal["member", "sample"] = Field(
        default="member", description="whose privacy: noise on the update, or on every local step (DP-SGD)"
    )
    noise: Literal["own", "shares"] = Field(
        default="own",
        description="which noise must be enough: each member's own, or that of a masked sum (members add shares)",
    )
    colluders: Annotated[int, Field(ge=0)] = Field(
        default=1, description="for noise = shares: members that may collude with an observer by revealing their noise"
    )
    masking: Literal["none", "pairs"] = Field(
        default="none",
        description="with pairs, aggregators see only sums, and another peer removes the pads; "
        "without, each aggregator sees its part of every update",
    )
    unmaskers: Annotated[int, Field(ge=1, le=4)] = Field(
        default=1, description="for masking: peers that must collude with an aggregator to see a member's values"
    )
    per_sample: Literal["auto", "vmap", "hooks", "ghost", "loop"] = Field(
        default="auto",
        description="how DP-SGD computes the gradient of each sample; auto goes by the network's layers",
    )


class Server(_Table):
    """How aggregators combine contributions, and how every peer then moves its model."""

    rule: str = Field(default="mean", description="mean, median, trimmed_mean, or another (`eris list rules`)")
    rule_options: Options = Field(default_factory=dict, description="arguments of the rule")
    weights: Literal["samples", "uniform"] = Field(default="samples", description="how much a member counts")
    optimizer: str = Field(default="fedavg", description="a server optimizer by name")
    optimizer_options: Options = Field(default_factory=dict, description="arguments of the optimizer")
    schedule: str = Field(
        default="constant", description="λ_t over the rounds: constant, cosine, inverse_sqrt, stepwise"
    )
    schedule_options: Options = Field(default_factory=dict, description="arguments of the schedule")
    normalisation: Literal["contributors", "participation", "none"] = Field(
        default="contributors", description="how a mean treats missing members"
    )
    min_contributors: Count = Field(default=3, description="a shard with fewer contributors is not published")
    encoding: Literal["float", "fixed"] = Field(
        default="float",
        description="what members send: floats, or integers whose sum does not depend on the order",
    )
    max_step: Literal["auto", "off"] | Positive = Field(
        default="auto",
        description="longest mean that peers accept; auto: ten times the usual length; off: any",
    )
    limit: Literal["auto"] | Positive = Field(
        default="auto",
        description="for fixed: largest |value| sent, a power of two; auto: follows what moved the model",
    )


class Faults(_Table):
    """Faults to simulate."""

    aggregator_dropout: Share = Field(
        default=0.0, description="average share of aggregators that are absent from a round"
    )
    link_failure: Share = Field(
        default=0.0, description="probability that a member's message to one aggregator is lost"
    )
    slow_members: Share = Field(default=0.0, description="share of members with slow links (fixed for the run)")
    slow_factor: Annotated[float, Field(ge=1)] = Field(default=10.0, description="how much slower they are")


class Network(_Table):
    """Links for the virtual clock (a simulation sends nothing); a list gives one number for each member."""

    up: Positive | tuple[Positive, ...] = Field(default=20e6, description="bytes per second a peer can send")
    down: Positive | tuple[Positive, ...] = Field(default=20e6, description="bytes per second a peer can receive")
    compute: NotNegative | tuple[NotNegative, ...] = Field(default=0.0, description="virtual seconds of local training")
    deadline: NotNegative = Field(
        default=0.0, description="virtual seconds until an aggregator cuts its shard; 0: never"
    )
    ray: str = Field(default="", description="address of a Ray cluster for engine = ray; empty: a local one")
    ray_gpus: NotNegative = Field(default=0.0, description="GPUs for each worker on Ray; 0.5: two workers share one")
    ray_folder: str = Field(default="", description="folder with your own code and data, sent to all Ray nodes")

    def of_each(self, key: Literal["up", "down", "compute"], members: int) -> tuple[float, ...]:
        """Return a setting for each member: its own value, or the one shared by all."""
        value: float | tuple[float, ...] = getattr(self, key)
        each = value if isinstance(value, tuple) else (value,) * members
        if len(each) != members:
            raise ConfigError(
                f"network.{key} has {len(each)} numbers for {members} members",
                fix="give one for each member, or one for all",
                key=f"network.{key}",
            )
        return each

    def check(self, members: int) -> None:
        """Refuse lists whose length is not the number of members."""
        for key in ("up", "down", "compute"):
            self.of_each(key, members)

    @property
    def equal_rate(self) -> float | None:
        """The rate of all links in both directions; None if they differ."""
        return self.up if self.up == self.down and not isinstance(self.up, tuple) else None


class Config(_Table):
    """One configured training, or several side by side that differ in their method."""

    method: Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        default=("fedavg", "eris", "eris+dsc", "eris+masked"), description="one method, or several to run side by side"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(default=1, description="seed of all randomness")
    rounds: Count = Field(default=80, description="rounds to train; fedavg-best (for compare): see stop")
    stop: Annotated[str, Field(pattern=STOP)] = Field(
        default="rounds",
        description="rounds: after that many; patience:N: after N evaluations in a row without a new best; "
        "fedavg-best (for compare): where FedAvg's validation loss is lowest",
    )
    keep: Literal["last", "best"] = Field(
        default="last", description="which model is the result: the last, or the one that members scored best"
    )
    figures: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description='what members share of their evaluations, as sums: ["loss", "accuracy"]; the first one decides',
    )
    members: Count = Field(default=10, description="peers that train")
    aggregators: Count = Field(
        default=10, description="peers that aggregate; by default as many as members, at most 50"
    )
    participation: Annotated[float, Field(gt=0, le=1)] = Field(default=1.0, description="share of members in a round")
    workers: Annotated[int, Field(ge=0)] = Field(default=0, description="processes that train; 0: one for each core")
    engine: Literal["local", "ray"] = Field(
        default="local", description="what runs the jobs: processes of this machine, or a Ray cluster"
    )
    evaluate_every: Count = Field(default=1, description="rounds between two evaluations")
    gradient_norm: bool = Field(default=False, description="measure ‖∇f‖² over all training data at every evaluation")

    options: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="the methods' own settings, a table for each: [options.NAME]"
    )
    data: Data = Data()
    model: Model = Model()
    local: Local = Local()
    shards: Shards = Shards()
    compression: Compression = Compression()
    privacy: Privacy = Privacy()
    server: Server = Server()
    faults: Faults = Faults()
    network: Network = Network()

    @model_validator(mode="before")
    @classmethod
    def _aggregators_default_to_members(cls, data: Any) -> Any:
        members = data.get("members") if isinstance(data, dict) else None
        if members is None or "aggregators" in data:
            return data
        return {**data, "aggregators": min(members, MOST_AGGREGATORS) if isinstance(members, int) else members}

    @model_validator(mode="before")
    @classmethod
    def _rounds_may_say_where_to_stop(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("rounds") == "fedavg-best":
            return {**{key: value for key, value in data.items() if key != "rounds"}, "stop": "fedavg-best"}
        return data

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods to run, in order."""
        return (self.method,) if isinstance(self.method, str) else self.method

    def for_method(self, name: str) -> Config:
        """Return the same configuration for one method alone."""
        return self.model_copy(update={"method": name})

    @property
    def shared_figures(self) -> tuple[str, ...]:
        """What members share of their evaluations: the figures named, or the loss if `stop` or `keep` depends on it."""
        return self.figures or (("loss",) if self.patience or self.keep == "best" else ())

    @property
    def patience(self) -> int:
        """Number of evaluations without improvement after which the run ends; 0: never."""
        return int(self.stop.partition(":")[2] or 0)

    @property
    def digest(self) -> str:
        """A sha256 of every setting that affects the result.

        How the work is spread over processes and devices does not, so it is left out.
        """
        spread: Any = {
            "workers": True,
            "engine": True,
            "network": {"ray", "ray_gpus", "ray_folder"},
            "local": {"device"},
        }
        plain = self.model_dump(mode="json", exclude=spread)
        return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def load_config(source: Path | str | Mapping[str, Any] | None = None, *, changes: Iterable[str] = ()) -> Config:
    """Read a TOML file (or plain data, or nothing for the defaults) and apply `key=value` changes to it."""
    data = _read(Path(source)) if isinstance(source, str | Path) else _copied(source or {})
    for change in changes:
        _apply(data, change)
    data = _with_baselines_moved(data)
    try:
        return Config.model_validate(_tuples(data))
    except ValidationError as error:
        raise _explained(error, data) from None


@contextmanager
def concerning(key: str) -> Iterator[None]:
    """Add the key to a `ConfigError` raised by code that knows values but not where they came from.

    >>> with concerning("server.rule"):
    ...     raise ConfigError("there is no rule 'mode'")
    Traceback (most recent call last):
    ...
    eris.errors.ConfigError: there is no rule 'mode' [key=server.rule]
    """
    try:
        yield
    except ConfigError as error:
        if "key" in error.where:
            raise
        raise ConfigError(error.what, fix=error.fix, key=key, **error.where) from error


def dump_config(config: Config) -> str:
    """Return the resolved configuration as TOML; running it again gives the same bits."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def commented_config() -> str:
    """Return the defaults as TOML with a comment on every line: what `eris init` writes."""
    lines = ["# A run of eris. Every setting is at its default; leave out those you do not change."]
    plain = Config().model_dump(mode="json")
    tables = [name for name, value in plain.items() if isinstance(value, dict) and name != "options"]
    plain.pop("options")  # methods describe their own: `eris.methods.commented_options`
    lines += _commented(Config, {name: value for name, value in plain.items() if name not in tables})
    for table in tables:
        kind = Config.model_fields[table].annotation
        assert isinstance(kind, type)
        assert issubclass(kind, _Table)
        lines += ["", f"# {kind.__doc__}", f"[{table}]", *_commented(kind, plain[table])]
    return "\n".join(lines) + "\n"


def _commented(table: type[_Table], values: Mapping[str, Any]) -> list[str]:
    """Return a line for each setting; where the default follows another setting, the line is commented out."""
    lines = []
    for name, value in values.items():
        field = table.model_fields[name]
        choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        about = f"{field.description}: {', '.join(choices)}" if choices else field.description
        written = json.dumps(value) if value is not None else "…"
        setting = f"{name} = {'{}' if value == {} else written}"
        lines.append(f"{'# ' if value is None or name in _FOLLOWING else ''}{setting:<36} # {about}")
    return lines


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError("there is no such configuration file", fix="`eris init` writes one", path=path) from None
    except OSError as error:
        raise ConfigError(f"the settings cannot be read: {error.strerror}", fix=_instead_of(path), path=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file is not valid TOML: {error}", fix="correct that line", path=path) from None


def _instead_of(path: Path) -> str:
    if (path / "config.toml").is_file():
        return f"resume the run in this folder with --resume {path}, or start it afresh from {path / 'config.toml'}"
    return "give a TOML file (`eris init` writes one)" if path.is_dir() else ""


def _copied(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in data.items()}


def _tuples(value: Any) -> Any:
    """Turn lists into tuples: the configuration is frozen, and strict validation tells the two apart."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _apply(data: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise ConfigError(f"{change!r} is not a setting", fix="write --set key=value, e.g. --set data.alpha=0.2")
    *tables, name = key.strip().split(".")
    for table in tables:
        data = data.setdefault(table, {})
        if not isinstance(data, dict):
            raise ConfigError(f"{table} is not a table", fix="see `eris run --show-config`", key=key)
    data[name] = _value(text.strip())


def _with_baselines_moved(data: dict[str, Any]) -> dict[str, Any]:
    """Read the old table [baselines] as options of each method; the new tables take precedence."""
    if not isinstance(former := data.get("baselines", {}), Mapping):
        raise ConfigError("baselines is not a table", fix="use [options.METHOD] tables", key="baselines")
    options = _copied(data.get("options", {})) if isinstance(data.get("options", {}), Mapping) else data["options"]
    for key, value in former.items():
        if key not in _MOVED:
            fix = _close(key, [f"{method}.{name}" for places in _MOVED.values() for method, name in places])
            raise ConfigError(f"there is no key baselines.{key}", fix=fix, key=f"baselines.{key}", value=value)
        for method, name in _MOVED[key]:
            options.setdefault(method, {}).setdefault(name, value)
    plain = {key: value for key, value in data.items() if key != "baselines"}
    return {**plain, "options": options} if options else plain


def _close(key: str, known: list[str]) -> str:
    near = [place for place in known if difflib.get_close_matches(key, [place.partition(".")[2]], n=1)]
    return f"each method has its own table: use [options.{'METHOD'}], e.g. options.{(near or known)[0]}"


def _value(text: str) -> Any:
    """Read a value as TOML; anything else is taken as a string, so that quotes may be omitted."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explained(error: ValidationError, data: Mapping[str, Any]) -> ConfigError:
    entries = error.errors(include_url=False)
    first, path = entries[0], _path(entries[0]["loc"])
    key, value = ".".join(path), _looked_up(data, path)
    if first["type"] == "extra_forbidden":
        return ConfigError(f"there is no key {key}", fix=_nearest(path), key=key, value=value)
    fix = allowed_values(entry for entry in entries if _path(entry["loc"]) == path)
    return ConfigError(f"{key} cannot be {value!r}", fix=fix, key=key)


def _path(location: tuple[int | str, ...]) -> list[str]:
    """Return the keys of a pydantic location, without the union branches that follow them."""
    path: list[str] = []
    table: Any = Config
    for part in location:
        if table is None:
            break
        path.append(str(part))
        field = table.model_fields.get(part)
        inner = field.annotation if field else None
        table = inner if isinstance(inner, type) and issubclass(inner, _Table) else None
    return path


def _looked_up(data: Any, path: list[str]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _nearest(path: list[str]) -> str:
    model: Any = Config
    for key in path[:-1]:
        model = model.model_fields[key].annotation
    known = list(getattr(model, "model_fields", {}))
    close = difflib.get_close_matches(path[-1], known, n=1)
    return f"did you mean {'.'.join([*path[:-1], close[0]])}?" if close else f"use one of {', '.join(sorted(known))}"
