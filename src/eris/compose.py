"""Build the objects that a configuration describes, and check its settings against each other.

`eris.config` checks each key by itself; combinations that cannot work are refused here, before anything starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.choose import check_rule, rule_by_name
from eris.aggregate.encoding import FixedPoint, check_fixed_point, check_masking
from eris.aggregate.figures import MOST_FIGURES, Figures
from eris.aggregate.rule import Rule
from eris.config import Config, Server, concerning
from eris.errors import ConfigError
from eris.events import RunStarted
from eris.local.spec import ModelSpec
from eris.methods import Method, check_options, method_by_name, with_defaults
from eris.methods.masked import MASKED_FROM, check_masked, is_masked, smallest_sum
from eris.methods.noise_budget import SampleNoise, common_steps, multiplier, on_steps, on_sums, on_update
from eris.methods.own_model import own_model
from eris.privacy import noise_of
from eris.privacy.noise import GaussianNoise
from eris.privacy.ring_noise import RingNoise
from eris.protocol.crowd import Crowd
from eris.protocol.recipe import Recipe
from eris.protocol.roster import RosterEntry
from eris.seeds import Seed, public_root
from eris.shards.policy import ShardPolicy
from eris.step.choose import optimizer_by_name
from eris.step.optimizer import ServerOptimizer
from eris.step.schedule import Schedule, schedule_by_name
from eris.transforms import Chain, Transform, chain, normalise_steps

_MOST_LISTED = 2000  # with more members than this, plans list only those taking part

__all__ = [
    "Composition",
    "check_settings",
    "compose",
    "could_be_masked",
    "initial_seed",
    "shared_figures",
    "training_seed",
]


@dataclass(frozen=True)
class Composition:
    """One method of a configuration, ready to run: what all peers agree on, and who they are."""

    config: Config
    method: Method
    recipe: Recipe
    roster: Sequence[RosterEntry] | Crowd = field(repr=False)
    aggregators: tuple[int, ...]  # shard → aggregating peer
    sample_noise: SampleNoise | None = None  # DP-SGD's, in every local step

    @property
    def noise(self) -> GaussianNoise | RingNoise | SampleNoise | None:
        """The noise that the run's ε is computed from, if there is any."""
        return self.sample_noise or self.recipe.noise or noise_of(self.recipe.chain)

    @property
    def run(self) -> str:
        """The id of this run, carried by its plans and messages."""
        return f"{self.method.name}-{self.config.digest[:16]}"

    def started(self, first_round: int, notes: Sequence[str]) -> RunStarted:
        """Return the event with which this run begins, or goes on, at a round."""
        return RunStarted(
            run=self.run,
            method=self.method.name,
            rounds=self.config.rounds,
            first_round=first_round,
            members=self.config.members,
            aggregators=self.recipe.policy.shards,
            n=self.recipe.spec.n,
            chain=self.recipe.describe(),
            notes=tuple(notes),
        )


class _Ingredients(NamedTuple):
    """The parts of a method that can be built without a model."""

    chain: Chain
    rule: Rule
    optimizer: ServerOptimizer
    schedule: Schedule
    encoding: FixedPoint | None
    unmaskers: int
    noise: RingNoise | None
    steps: float


def check_settings(config: Config) -> None:
    """Refuse settings that cannot work for one of the configuration's methods; needs neither data nor model.

    Call this before running several methods: the last one may start hours after the first.
    """
    names = config.methods
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise ConfigError(f"method {twice[0]!r} is named twice", fix="name each once", key="method")
    check_options(config)
    for name in names:
        chosen = with_defaults(config, name)
        method = method_by_name(name)
        _check(chosen, method, config.members)
        _ingredients(chosen, method)


def could_be_masked(config: Config) -> bool:
    """Return whether this configuration could use masks but does not, and has enough members for them to matter."""
    if any(is_masked(with_defaults(config, name)) for name in config.methods) or config.members < MASKED_FROM:
        return False
    tables = {"privacy": config.privacy.model_copy(update={"masking": "pairs"})}
    try:
        check_settings(config.model_copy(update=tables))
    except ConfigError:
        return False
    return True


def compose(config: Config, spec: ModelSpec, samples: Sequence[int] | NDArray[np.int64]) -> Composition:
    """Build one method's composition for a model.

    Args:
        config: the configuration; it must name exactly one method.
        spec: the model's tensors.
        samples: how many training samples each member has.
    """
    if len(config.methods) != 1:
        raise ConfigError(f"method is {list(config.methods)}", fix="compose one method at a time", key="method")
    method = method_by_name(config.methods[0])
    config = method.completed(config)
    _check(config, method, len(samples))
    public = public_root(config.seed)
    if method.exchange is not None:
        _check_buffers(config, spec)
        with concerning(f"options.{method.name}"):
            method.exchange(config, spec, public)  # refuses impossible graphs and partitions
    noise = on_steps(config, samples)
    policy, ingredients = _policy(config, method, spec, public), _ingredients(config, method)
    with concerning("model"):  # only its buffers can still be a problem
        shared = shared_figures(config)
        recipe = Recipe(spec=spec, policy=policy, public=public, figures=shared, **ingredients._asdict())
        if noise is not None:
            spec.require_noise_is_possible()
    with concerning("compression.gamma"):
        recipe.chain.check_length(spec.n_trainable)
    shards = method.aggregators(config)
    return Composition(config, method, recipe, _roster(config, samples), tuple(range(shards)), noise)


def initial_seed(seed: int) -> Seed:
    """Return the seed of the initial model: public, the same on every peer."""
    return public_root(seed).child("initial")


def training_seed(of_round: Seed) -> Seed:
    """Return the seed of a member's batches, given its private seed for that round."""
    return of_round.child("train")


def _check(config: Config, method: Method, members: int) -> None:
    """Refuse settings that cannot work together for one method."""
    if config.stop == "fedavg-best":
        raise ConfigError(
            "stop is 'fedavg-best', but where FedAvg's loss is lowest is known only if FedAvg runs too",
            fix="use `eris compare`, or give rounds as a number",
            key="stop",
        )
    _check_counts(config, method, members)
    if method.exchange is not None:
        _check_own_models(config)
    if method.check is not None:
        method.check(config)
    check_masked(config, method, members)
    _check_figures(config, method)
    if (noise := on_sums(config)) is not None:
        noise.check_members(smallest_sum(config))
    _check_replicas(config)
    _check_slow_members(config)


def _ingredients(config: Config, method: Method) -> _Ingredients:
    """Build the parts that need no model; every error names its key."""
    server, chain = config.server, _chain(config, method)
    with concerning("server.rule"):
        rule = rule_by_name(server.rule, **server.rule_options)
        check_rule(rule, aggregators=method.aggregators(config), chain=chain)
    with concerning("server.optimizer"):
        optimizer = optimizer_by_name(server.optimizer, **server.optimizer_options)
    with concerning("server.schedule"):
        schedule = schedule_by_name(server.schedule, **server.schedule_options)
    unmaskers = config.privacy.unmaskers if is_masked(config) else 0
    if unmaskers:
        with concerning("privacy.masking"):
            check_masking(rule, chain, steps=common_steps(config))
    encoding, noise = _encoding(server, rule, chain), on_sums(config)
    steps = float(common_steps(config)) if unmaskers and chain.needs_steps else 0.0
    return _Ingredients(chain, rule, optimizer, schedule, encoding, unmaskers, noise, steps)


def _encoding(server: Server, rule: Rule, chain: Chain) -> FixedPoint | None:
    if server.encoding == "float":
        if server.limit != "auto":
            raise ConfigError(
                "server.limit applies to fixed point, but server.encoding is 'float'",
                fix="set server.encoding = 'fixed' too, or leave server.limit out",
                key="server.limit",
            )
        return None
    with concerning("server.encoding"):
        check_fixed_point(rule, chain)
    with concerning("server.limit"):
        return FixedPoint(None if server.limit == "auto" else server.limit)


def _check_counts(config: Config, method: Method, members: int) -> None:
    if members != config.members:
        raise ConfigError(f"the data has {members} members", fix=f"set members = {members}", key="members")
    config.network.check(members)
    if method.aggregators(config) > members:
        raise ConfigError(
            f"aggregators is {config.aggregators}, but there are {members} members",
            fix=f"every aggregator is a member: use {members} or fewer",
            key="aggregators",
        )
    least, taking_part = config.server.min_contributors, max(1, int(config.participation * members + 0.5))
    if least > taking_part:
        raise ConfigError(
            f"min_contributors is {least}, but only {taking_part} of {members} members take part in a round",
            fix="raise members or participation, or lower server.min_contributors (a mean of few reveals each of them)",
            key="server.min_contributors",
        )


def _check_figures(config: Config, method: Method) -> None:
    """Refuse to share members' scores if that would break a privacy promise or mean nothing."""
    names, key = config.shared_figures, "figures" if config.figures else "stop" if config.patience else "keep"
    if not names:
        return
    if len(set(names)) != len(names) or len(names) > MOST_FIGURES:
        raise ConfigError(f"figures are {list(names)}", fix=f"name each once, {MOST_FIGURES} at most", key="figures")
    if method.exchange is not None:
        raise ConfigError(
            f"members of {method.name} have their own models: there is no shared model to score",
            fix="leave figures, keep and stop at their defaults",
            key=key,
        )
    if multiplier(config):
        raise ConfigError(
            "members would share their scores without noise, and no ε covers that",
            fix="leave figures, keep and stop at their defaults, or train without noise",
            key=key,
        )
    if config.keep == "best" and config.rounds < 2:
        raise ConfigError(
            "members score the model at the start of a round: with only one round, that is the untrained model",
            fix="use rounds = 2 or more, or keep = 'last'",
            key="keep",
        )


def shared_figures(config: Config) -> Figures | None:
    """Return what members share of their evaluations and what it decides; None if they share nothing."""
    names = config.shared_figures
    return Figures(names, config.evaluate_every, config.patience, config.keep == "best") if names else None


def _check_replicas(config: Config) -> None:
    faults = config.faults
    if config.shards.replicas > 1 and (faults.aggregator_dropout or faults.link_failure):
        raise ConfigError(
            "simulated faults work only with one aggregator per shard",
            fix="leave out faults.aggregator_dropout and faults.link_failure, or use shards.replicas = 1",
            key="shards.replicas",
        )


def _check_slow_members(config: Config) -> None:
    share, members = config.faults.slow_members, config.members
    if share and not int(share * members + 0.5):
        raise ConfigError(
            f"{share} of {members} members rounds to none: no member would be slow",
            fix=f"use {1 / members:.2g} or more, or 0",
            key="faults.slow_members",
        )


def _check_buffers(config: Config, spec: ModelSpec) -> None:
    if spec.n_buffer:
        raise ConfigError(
            f"members of {config.methods[0]} have their own models, and running statistics cannot be shared among them",
            fix="set local.buffers = 'local', or use a model without running statistics",
            key="model",
        )


def _check_own_models(config: Config) -> None:
    """Refuse settings that mean nothing if each member has its own model."""
    server = config.server
    impossible = {
        "participation": config.participation < 1,
        "faults": config.faults.aggregator_dropout > 0 or config.faults.link_failure > 0,
        "network.deadline": config.network.deadline > 0,
        "local.send": config.local.send != "delta",
        "server.rule": server.rule != "mean",
        "server.optimizer": server.optimizer != "fedavg" or bool(server.optimizer_options),
        "server.encoding": server.encoding != "float",
    }
    for key in (key for key, found in impossible.items() if found):
        raise ConfigError(
            f"{key} does not work with {config.methods[0]}, whose members have their own models",
            fix="leave it at its default",
            key=key,
        )


def _policy(config: Config, method: Method, spec: ModelSpec, public: Seed) -> ShardPolicy:
    shards, count = config.shards, method.aggregators(config)
    capacities = shards.capacities if not (method.server or method.exchange) else ()
    if capacities and len(capacities) != count:
        raise ConfigError(
            f"shards.capacities has {len(capacities)} numbers for {count} aggregators",
            fix="give one for each aggregator, or none",
            key="shards.capacities",
        )
    with concerning("shards"):
        return ShardPolicy(
            spec=spec,
            shards=count,
            seed=public,
            kind=shards.plan,
            block=shards.block,
            capacities=capacities or None,
            schedule=shards.schedule,
            every=shards.every,
            replicas=1 if method.server or method.exchange else shards.replicas,
        )


def _chain(config: Config, method: Method) -> Chain:
    transforms: list[Transform] = [] if method.exchange is None else [own_model()]
    if method.transforms is not None:
        transforms += method.transforms(config)
    if config.server.optimizer == "fednova":
        transforms.append(normalise_steps())
    transforms += on_update(config)
    with concerning("compression"):
        if method.packing is not None:
            transforms.append(method.packing(config))
        return chain(*transforms)


def _roster(config: Config, samples: Sequence[int] | NDArray[np.int64]) -> Sequence[RosterEntry] | Crowd:
    """Return the members: listed one by one, or as a crowd if there are many and few take part at a time."""
    counts = np.asarray(samples, np.int64)
    crowd = Crowd(counts if config.server.weights == "samples" else np.ones_like(counts))
    least = int(crowd.weights.argmin())
    if len(crowd) > _MOST_LISTED and config.participation < 1 and crowd[least].weight > 0:  # an entry refuses the rest
        return crowd
    return [crowd[member] for member in range(len(crowd))]
