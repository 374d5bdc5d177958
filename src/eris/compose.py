"""Configuration → objects, with the cross-checks.

What a single key allows is checked in `eris.config`; what only the combination shows to be impossible is refused here,
before anything has started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eris.aggregate.choose import rule_by_name
from eris.config import Config, load_config
from eris.errors import ConfigError
from eris.local.spec import ModelSpec
from eris.local.task import Task
from eris.methods import Method, method_by_name
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RosterEntry
from eris.seeds import Seed, public_root
from eris.shards.policy import ShardPolicy
from eris.step.choose import optimizer_by_name
from eris.transforms import Chain, chain, clip_by_norm

__all__ = ["Composition", "build_task", "compose", "initial_seed", "training_seed"]


@dataclass(frozen=True)
class Composition:
    """One method of a configuration, ready to run: what all peers agree on, and who they are."""

    config: Config
    method: Method
    recipe: Recipe
    roster: tuple[RosterEntry, ...]
    aggregators: tuple[int, ...]  # home of each shard

    @property
    def run(self) -> str:
        """What plans and messages of this run carry."""
        return f"{self.method.name}-{self.config.digest[:16]}"


def compose(config: Config, spec: ModelSpec, samples: list[int]) -> Composition:
    """Build what a configuration for one method describes, for a model and the members' numbers of samples."""
    if len(config.methods) != 1:
        raise ConfigError(f"method is {list(config.methods)}", fix="compose one method at a time", key="method")
    method = method_by_name(config.methods[0])
    _check_counts(config, method, len(samples))
    public = public_root(config.seed)
    recipe = Recipe(
        spec=spec,
        policy=_policy(config, method, spec, public),
        chain=_chain(config, method),
        rule=rule_by_name(config.server.rule, **config.server.rule_options),
        optimizer=optimizer_by_name(config.server.optimizer, **config.server.optimizer_options),
        public=public,
    )
    shards = method.aggregators(config)
    return Composition(config, method, recipe, _roster(config, samples), tuple(range(shards)))


def build_task(config: Mapping[str, Any]) -> Task:
    """Build the learning problem that plain configuration data describes: model, data, and who has which part."""
    resolved = load_config(config)
    if resolved.data.name.startswith("synthetic-"):
        return _synthetic_task(resolved)
    return _torch_task(resolved)


def initial_seed(seed: int) -> Seed:
    """Return where the initial model comes from: public, the same on every peer."""
    return public_root(seed).child("initial")


def training_seed(private: Seed, round: int) -> Seed:
    """Return where a member's batches of a round come from."""
    return private.child("round", round, "train")


def _check_counts(config: Config, method: Method, members: int) -> None:
    if members != config.members:
        raise ConfigError(f"the data has {members} members", fix=f"set members = {members}", key="members")
    if method.aggregators(config) > members:
        raise ConfigError(
            f"aggregators is {config.aggregators}, but there are {members} members",
            fix="aggregators are members: use as many or fewer",
            key="aggregators",
        )
    least, taking_part = config.server.min_contributors, max(1, int(config.participation * members + 0.5))
    if least > taking_part:
        raise ConfigError(
            f"min_contributors is {least}, but {taking_part} of {members} members take part in a round",
            fix="raise members or participation, or lower server.min_contributors (a mean of few shows each of them)",
            key="server.min_contributors",
        )


def _policy(config: Config, method: Method, spec: ModelSpec, public: Seed) -> ShardPolicy:
    shards, count = config.shards, method.aggregators(config)
    if shards.capacities and not method.server and len(shards.capacities) != count:
        raise ConfigError(
            f"{len(shards.capacities)} capacities for {count} aggregators",
            fix="give one for each aggregator, or none",
            key="shards.capacities",
        )
    return ShardPolicy(
        spec=spec,
        shards=count,
        seed=public,
        kind=shards.plan,
        block=shards.block,
        capacities=shards.capacities if shards.capacities and not method.server else None,
        schedule=shards.schedule,
        every=shards.every,
    )


def _chain(config: Config, method: Method) -> Chain:
    privacy = config.privacy
    transforms = [clip_by_norm(privacy.clip)] if privacy.clip else []
    return chain(*transforms, *([method.packing(config)] if method.packing else []))


def _roster(config: Config, samples: list[int]) -> tuple[RosterEntry, ...]:
    weighted = config.server.weights == "samples"
    return tuple(RosterEntry(k, f"member-{k}", float(count if weighted else 1)) for k, count in enumerate(samples))


def _synthetic_task(config: Config) -> Task:
    """Build a task that was made up, in plain numpy: for tests and demonstrations."""
    from eris.local.numpy_task import Descent, LogisticTask, QuadraticTask

    seed = public_root(config.data.fold).child("synthetic")
    descent = Descent(config.local.lr, config.local.momentum if config.local.keep_state else 0.0)
    if config.data.name == "synthetic-quadratic":
        return QuadraticTask.synthetic(config.members, int(config.model.options.get("n", 100)), seed, descent=descent)
    if config.data.name == "synthetic-clouds":
        batch = None if config.local.batch == "full" else config.local.batch
        samples = config.data.samples or 20
        return LogisticTask.synthetic(
            config.members, seed, samples=samples, epochs=config.local.epochs, batch=batch, descent=descent
        )
    known = "synthetic-quadratic, synthetic-clouds"
    raise ConfigError(f"there is no synthetic set {config.data.name!r}", fix=f"use one of {known}", key="data.name")


def _torch_task(config: Config) -> Task:
    from eris.data import partition
    from eris.local.torch_task import TorchTask
    from eris.local.torch_work import LocalWork
    from eris.models.registry import model_factory

    data, dataset = config.data, _dataset(config.data.name)
    shares = partition(
        dataset.train.labels,
        config.members,
        public_root(config.seed).child("data", data.fold),
        kind=data.partition,
        alpha=data.alpha,
        classes_per_member=data.classes_per_member,
        ids=dataset.train.ids,
        samples=data.samples or None,
        validation=data.validation,
    )
    return TorchTask(
        model_factory(config.model.name, **config.model.options),
        dataset.train,
        shares.train,
        test=dataset.test,
        validation=shares.validation,
        work=LocalWork(**config.local.model_dump()),
    )


def _dataset(name: str) -> Any:
    from eris.data import mnist_sample

    if name == "mnist-sample":
        return mnist_sample()
    raise ConfigError(f"there is no data set {name!r}", fix="see `eris data list`", key="data.name")
