"""⑤ Server optimizers: every peer runs them on its own copy, aggregators do not."""

from eris.step.adaptive import FedAdagrad, FedAdam, FedYogi
from eris.step.choose import OPTIMIZERS, optimizer_by_name
from eris.step.freeze import apply_except
from eris.step.optimizer import ServerOptimizer, State
from eris.step.plain import FedAvg, FedAvgM, FedNova
from eris.step.schedule import at_round, schedule_by_name

__all__ = [
    "OPTIMIZERS",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedNova",
    "FedYogi",
    "ServerOptimizer",
    "State",
    "apply_except",
    "at_round",
    "optimizer_by_name",
    "schedule_by_name",
]
