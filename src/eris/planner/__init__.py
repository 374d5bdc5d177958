"""What a round will cost, how fast it can be, how private it is: closed forms, before anything is run.

    fleet, model_size, scenario     what is planned
    traffic, duration, memory,      bytes, seconds, memory and exposure of every method
    exposure
    allocation, advice              shard sizes by capacity; what to choose for a target
    convergence, leakage, rates,    the theory as calculators
    lemmas, evidence

The paper's own arithmetic, its plots and what is wrong with its statements are in `eris.paper`.

>>> from eris import planner
>>> round = planner.scenario(n=11_700_000, fleet=planner.Fleet.uniform(10, rate=20e6))
>>> planner.traffic("eris", round).member_upload, planner.distribution_time("eris", round)
(42120000.0, 4.212)
"""

from __future__ import annotations

from eris.methods import METHODS
from eris.planner.advice import Advice, Target, advise
from eris.planner.allocation import Allocation, allocate
from eris.planner.convergence import SgdVariance, Theorem, beta_limit, potential
from eris.planner.duration import Bottleneck, bottlenecks, distribution_time
from eris.planner.exposure import Exposure, exposure
from eris.planner.fleet import Fleet, Peer, read_fleet
from eris.planner.leakage import Leakage, capacity_from_transcripts, gaussian_capacity, leakage
from eris.planner.memory import aggregator_memory, memory_of_aggregators, require_memory
from eris.planner.model_size import ModelSize, model_size
from eris.planner.rates import Rate, rates
from eris.planner.scenario import Scenario, scenario
from eris.planner.traffic import Phase, PlannedTraffic, phases, traffic

__all__ = [
    "METHODS",
    "Advice",
    "Allocation",
    "Bottleneck",
    "Exposure",
    "Fleet",
    "Leakage",
    "ModelSize",
    "Peer",
    "Phase",
    "PlannedTraffic",
    "Rate",
    "Scenario",
    "SgdVariance",
    "Target",
    "Theorem",
    "advise",
    "aggregator_memory",
    "allocate",
    "beta_limit",
    "bottlenecks",
    "capacity_from_transcripts",
    "distribution_time",
    "exposure",
    "gaussian_capacity",
    "leakage",
    "memory_of_aggregators",
    "model_size",
    "phases",
    "potential",
    "rates",
    "read_fleet",
    "require_memory",
    "scenario",
    "traffic",
]
