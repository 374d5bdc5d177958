"""Federated learning without a server."""

from eris.aggregate import Mean, Median, Rule, TrimmedMean
from eris.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DiskError,
    ErisError,
    FloorError,
    InputError,
    MissingExtra,
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
from eris.seeds import Seed, private_root, private_root_from_os, public_root
from eris.shards.plan import ShardPlan
from eris.shards.policy import ShardPolicy
from eris.step import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedNova, FedYogi, ServerOptimizer
from eris.transforms import Transform, chain, clip_by_norm, identity, rand_k, shift

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
    "Mean",
    "Median",
    "MissingExtra",
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
    "chain",
    "clip_by_norm",
    "identity",
    "private_root",
    "private_root_from_os",
    "public_root",
    "rand_k",
    "shift",
]
