"""Federated learning without a server."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eris.aggregate import Median, Rule, TrimmedMean, WeightedMean
    from eris.errors import (
        CheckpointError,
        ConfigError,
        DataError,
        DiskError,
        ErisError,
        FloorError,
        InputError,
        MissingExtra,
        ModelError,
        PlanError,
        Reason,
        Refused,
        RunStopped,
        SpecError,
        TaskError,
    )
    from eris.federation import Federation
    from eris.local.spec import ModelSpec, TensorSpec
    from eris.local.task import BlockResult, BlockTask, LocalResult, Task
    from eris.methods import Method, MethodFacts, MethodOptions
    from eris.privacy import clip_by_norm
    from eris.seeds import Seed, private_root, private_root_from_os, public_root
    from eris.shards.plan import ShardPlan
    from eris.shards.policy import ShardPolicy
    from eris.step import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedNova, FedYogi, ServerOptimizer
    from eris.transforms import Transform, chain, identity, rand_k, shift

__all__ = [
    "BlockResult",
    "BlockTask",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "DiskError",
    "ErisError",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedNova",
    "FedYogi",
    "Federation",
    "FloorError",
    "InputError",
    "LocalResult",
    "Median",
    "Method",
    "MethodFacts",
    "MethodOptions",
    "MissingExtra",
    "ModelError",
    "ModelSpec",
    "PlanError",
    "Reason",
    "Refused",
    "Rule",
    "RunStopped",
    "Seed",
    "ServerOptimizer",
    "ShardPlan",
    "ShardPolicy",
    "SpecError",
    "Task",
    "TaskError",
    "TensorSpec",
    "Transform",
    "TrimmedMean",
    "WeightedMean",
    "chain",
    "clip_by_norm",
    "identity",
    "private_root",
    "private_root_from_os",
    "public_root",
    "rand_k",
    "shift",
]

_HOMES = (
    "eris.errors",  # the lightest first: code that catches an error loads nothing else
    "eris.aggregate",
    "eris.federation",
    "eris.local.spec",
    "eris.local.task",
    "eris.methods",
    "eris.privacy",
    "eris.seeds",
    "eris.shards.plan",
    "eris.shards.policy",
    "eris.step",
    "eris.transforms",
)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that a command that needs no numpy does not load it."""
    if name not in __all__:
        raise AttributeError(f"module 'eris' has no attribute {name!r}")
    homes = map(importlib.import_module, _HOMES)
    value = next(getattr(home, name) for home in homes if name in home.__all__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
